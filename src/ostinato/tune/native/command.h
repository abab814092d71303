// Starting a command.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "descriptor.h"
#include "messages.h"

namespace ostinato::reaper {

// The clock of limits and durations.
inline std::int64_t now_ns() {
    timespec time;
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// What all commands of a reaper run on.
struct Placement {
    std::vector<std::byte> core_mask;  // empty: not bound
    bool idle_priority = false;
};

class Command {
public:
    // `words`: a file of arguments, variables (`name=value`) and the working directory, each ended by a zero byte.
    // `targets`: numbers that `descriptors` have in the command; the others of 0, 1 and 2 are this process's.
    Command(const Descriptor& words, const Spawn& counts, std::vector<int> targets,
            std::span<const Descriptor> descriptors)
        : text_(read_all(words)), targets_(std::move(targets)) {
        char* word = text_.data();
        char* const last = text_.data() + text_.size();
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
        list_programs(arguments_[0], path);
        for (const Descriptor& descriptor : descriptors) {
            sources_.push_back(descriptor.number());
        }
    }

    struct Outcome {
        pid_t pid = -1;
        std::int64_t began_ns = 0;  // when the program was executed
        int error = 0;              // 0: it runs
        Stage stage = Stage::fork;  // that failed
    };

    // Returns when the program has been executed, or could not be.
    Outcome start(const Placement& placement) {
        // The child borrows our memory until it executes the program: quick whatever our size, and it can tell us here
        // what went wrong.
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

private:
    // Along PATH, unless the name has a slash. An empty part of PATH is the working directory.
    void list_programs(const std::string& name, std::string_view path) {
        if (name.empty() || name.find('/') != std::string::npos) {
            programs_.push_back(name);
            return;
        }
        for (;;) {
            const std::size_t end = std::min(path.find(':'), path.size());
            programs_.push_back(end == 0 ? "./" + name : std::string(path.substr(0, end)) + "/" + name);
            if (end == path.size()) {
                return;
            }
            path.remove_prefix(end + 1);
        }
    }

    // In the child. It may call only what is safe in a signal handler, and must not return.
    [[noreturn]] void become(const Placement& placement, pid_t reaper, volatile Outcome& outcome) {
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

    bool set_up(const Placement& placement, pid_t reaper) {
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
        // First out of the way of the numbers that they are to have. Whatever else is open closes at the execution.
        const int above = targets_.empty() ? 0 : *std::ranges::max_element(targets_) + 1;
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

    // Returns only if it fails: the error.
    int execute() {
        sigset_t none;
        ::sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        int error = ENOENT;
        for (const std::string& program : programs_) {
            ::execve(program.c_str(), arguments_.data(), variables_.data());
            // As a shell does: a program that may not be executed is an error unless another is found; one that is not
            // there is passed over.
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

    std::string text_;
    std::vector<char*> arguments_, variables_;  // each ends with a null pointer
    const char* directory_ = "";
    std::vector<std::string> programs_;  // to be tried in this order
    std::vector<int> targets_, sources_;
};

}  // namespace ostinato::reaper
