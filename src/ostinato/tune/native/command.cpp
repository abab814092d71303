#include "command.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "clock.h"

namespace ostinato::reaper {

namespace {

std::vector<char> contents(const Descriptor& file) {
    struct stat about{};
    ::fstat(file.number(), &about);
    std::vector<char> text(static_cast<std::size_t>(about.st_size));
    std::size_t size = 0;
    while (size < text.size()) {
        const ssize_t count = ::pread(file.number(), text.data() + size, text.size() - size, static_cast<off_t>(size));
        if (count <= 0) {
            break;
        }
        size += static_cast<std::size_t>(count);
    }
    text.resize(size);
    text.push_back('\0');
    return text;
}

// Where a program may be: along PATH, unless its name has a slash. An empty part of PATH is the working directory.
std::vector<std::string> candidates(const std::string& name, std::string_view path) {
    if (name.empty() || name.find('/') != std::string::npos) {
        return {name};
    }
    std::vector<std::string> found;
    for (;;) {
        const std::size_t end = std::min(path.find(':'), path.size());
        found.push_back(end == 0 ? "./" + name : std::string(path.substr(0, end)) + "/" + name);
        if (end == path.size()) {
            return found;
        }
        path.remove_prefix(end + 1);
    }
}

}  // namespace

Command::Command(const Descriptor& words, const Spawn& counts, std::vector<int> targets,
                 std::span<const Descriptor> descriptors)
    : text_(contents(words)), targets_(std::move(targets)) {
    char* word = text_.data();
    char* const last = text_.data() + text_.size() - 1;
    const auto next = [&word, last] { return std::exchange(word, std::min(word + std::strlen(word) + 1, last)); };
    std::string_view path = "/bin:/usr/bin";
    for (std::uint32_t i = 0; i < counts.arguments; ++i) {
        arguments_.push_back(next());
    }
    for (std::uint32_t i = 0; i < counts.variables; ++i) {
        const std::string_view variable = variables_.emplace_back(next());
        if (variable.starts_with("PATH=")) {
            path = variable.substr(5);
        }
    }
    directory_ = next();
    arguments_.push_back(nullptr);
    variables_.push_back(nullptr);
    programs_ = candidates(arguments_[0], path);
    for (const Descriptor& descriptor : descriptors) {
        sources_.push_back(descriptor.number());
    }
}

Command::Outcome Command::start(const Placement& placement) {
    // The child borrows our memory until it executes the program: quick whatever our size, and it can tell us here what
    // went wrong.
    volatile Outcome outcome;
    const pid_t reaper = ::getpid();
    const pid_t pid = ::vfork();
    if (pid == 0) {
        become(placement, reaper, outcome);
    }
    if (pid < 0) {
        return {.error = errno};
    }
    if (outcome.error != 0) {
        ::waitpid(pid, nullptr, 0);
    }
    return {pid, outcome.began_ns, outcome.error, outcome.stage};
}

// In the child. It may call only what is safe in a signal handler, and must not return.
void Command::become(const Placement& placement, pid_t reaper, volatile Outcome& outcome) {
    outcome.stage = Stage::setup;
    if (set_up(placement, reaper)) {
        outcome.stage = Stage::chdir;
        if (::chdir(directory_) == 0) {
            outcome.stage = Stage::exec;
            outcome.began_ns = now_ns();
            errno = execute();
        }
    }
    outcome.error = errno;
    ::_exit(127);
}

bool Command::set_up(const Placement& placement, pid_t reaper) {
    ::setsid();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != reaper) {
        ::_exit(127);  // the reaper was killed before the line above: nobody listens
    }
    const auto& mask = placement.core_mask;
    if (!mask.empty() && ::syscall(SYS_sched_setaffinity, 0, mask.size(), mask.data()) < 0) {
        return false;
    }
    const sched_param none{};
    if (placement.idle_priority && ::sched_setscheduler(0, SCHED_IDLE, &none) < 0) {
        ::setpriority(PRIO_PROCESS, 0, 19);
    }
    return place_descriptors();
}

bool Command::place_descriptors() {
    // First out of the way of the numbers that they are to have. Whatever else is open closes at the execution.
    const int above = targets_.empty() ? 0 : *std::max_element(targets_.begin(), targets_.end()) + 1;
    for (int& source : sources_) {
        source = ::fcntl(source, F_DUPFD_CLOEXEC, above);
        if (source < 0) {
            return false;
        }
    }
    for (std::size_t i = 0; i < targets_.size(); ++i) {
        if (::dup2(sources_[i], targets_[i]) < 0) {
            return false;
        }
    }
    return true;
}

int Command::execute() {
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    int error = ENOENT;
    for (const std::string& program : programs_) {
        ::execve(program.c_str(), arguments_.data(), variables_.data());
        // Like a shell: what may not be executed is told if there is nothing else, what is not there is passed over.
        if (errno == EACCES) {
            error = EACCES;
        } else if (errno != ENOENT && errno != ENOTDIR) {
            return errno;
        } else if (programs_.size() == 1) {
            error = errno;
        }
    }
    return error;
}

}  // namespace ostinato::reaper
