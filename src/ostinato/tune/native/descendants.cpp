#include "descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "descriptor.h"

namespace ostinato::reaper {

namespace {

struct Process {
    pid_t pid;
    pid_t parent;
};

struct State {
    char letter = 'X';  // of /proc/PID/stat; X: there is no such process
    pid_t parent = 0;

    bool living() const { return letter != 'X' && letter != 'Z'; }
};

std::string proc_path(pid_t pid, const char* name) { return "/proc/" + std::to_string(pid) + "/" + name; }

// Empty if it cannot be read.
std::string contents(const std::string& path) {
    std::string text;
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.number() < 0) {
        return text;
    }
    for (std::size_t size = 0;;) {
        text.resize(size + 4096);
        const ssize_t count = ::read(file.number(), text.data() + size, 4096);
        size += count > 0 ? static_cast<std::size_t>(count) : 0;
        if (count <= 0) {
            text.resize(size);
            return text;
        }
    }
}

// Numbers separated by spaces, up to the first thing that is none.
std::vector<std::uint64_t> numbers(std::string_view text) {
    std::vector<std::uint64_t> found;
    for (;;) {
        const std::size_t begin = text.find_first_not_of(' ');
        if (begin == std::string_view::npos) {
            return found;
        }
        text.remove_prefix(begin);
        std::uint64_t number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (error != std::errc{}) {
            return found;
        }
        found.push_back(number);
        text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    }
}

State state(pid_t pid) {
    const std::string stat = contents(proc_path(pid, "stat"));
    // The name in parentheses is the program's choice, so it may hold anything.
    const std::size_t name_end = stat.rfind(") ");
    if (name_end == std::string::npos || name_end + 4 > stat.size()) {
        return {};
    }
    const auto fields = numbers(std::string_view(stat).substr(name_end + 4));
    return {stat[name_end + 2], fields.empty() ? 0 : static_cast<pid_t>(fields[0])};
}

// A child belongs to the thread that made it.
void add_children(pid_t parent, std::vector<Process>& processes) {
    const std::string tasks = proc_path(parent, "task");
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(tasks.c_str()), ::closedir);
    if (!directory) {
        return;
    }
    while (const dirent* thread = ::readdir(directory.get())) {
        if (thread->d_name[0] != '.') {
            for (const std::uint64_t pid : numbers(contents(tasks + "/" + thread->d_name + "/children"))) {
                processes.push_back({static_cast<pid_t>(pid), parent});
            }
        }
    }
}

std::vector<Process> descendants() {
    std::vector<Process> processes;
    add_children(::getpid(), processes);
    for (std::size_t next = 0; next < processes.size(); ++next) {
        add_children(processes[next].pid, processes);
    }
    return processes;
}

// Returns whether `process` was alive.
bool kill_if_living(const Process& process) {
    const pid_t self = ::getpid();
    if (process.parent == self) {
        // Nobody but us waits for it, so its number is its own.
        return state(process.pid).living() && (::kill(process.pid, SIGKILL), true);
    }
    // Numbers are used again: it is the process that was listed only if it still has that parent, or got us for one.
    const Descriptor fixed(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
    const State now = state(process.pid);
    if (fixed.number() >= 0 && (now.parent == process.parent || now.parent == self)) {
        ::syscall(SYS_pidfd_send_signal, fixed.number(), SIGKILL, nullptr, 0);
    }
    return now.living();
}

std::uint64_t resident(pid_t pid) {
    const auto pages = numbers(contents(proc_path(pid, "statm")));
    return pages.size() < 2 ? 0 : pages[1] * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Resident bytes, with each page divided by the number of processes that share it; plain resident bytes where the
// kernel does not say.
std::uint64_t proportional(pid_t pid) {
    const std::string text = contents(proc_path(pid, "smaps_rollup"));
    const std::size_t at = text.find("\nPss:");
    const auto kibibytes = at == std::string::npos ? std::vector<std::uint64_t>{} : numbers(text.data() + at + 5);
    return kibibytes.empty() ? resident(pid) : kibibytes[0] * 1024;
}

bool same_memory(const Process& process) {
    return ::syscall(SYS_kcmp, process.pid, process.parent, KCMP_VM, 0, 0) == 0;
}

}  // namespace

std::vector<pid_t> kill_descendants(pid_t spared) {
    std::vector<pid_t> living;
    for (const Process& process : descendants()) {
        if (process.pid != spared && kill_if_living(process)) {
            living.push_back(process.pid);
        }
    }
    return living;
}

std::uint64_t resident_bytes(std::uint64_t limit) {
    const std::vector<Process> processes = descendants();
    std::uint64_t sum = 0;
    for (const Process& process : processes) {
        sum += resident(process.pid);
    }
    if (sum <= limit || processes.size() == 1) {
        return sum;
    }
    sum = 0;
    for (const Process& process : processes) {
        // Between vfork and exec a child runs in its parent's memory.
        sum += same_memory(process) ? 0 : proportional(process.pid);
    }
    return sum;
}

}  // namespace ostinato::reaper
