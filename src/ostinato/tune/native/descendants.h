// The processes below this one, as /proc shows them.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "descriptor.h"

namespace ostinato::reaper {

struct Process {
    pid_t pid;
    pid_t parent;

    // Empty if it cannot be read.
    std::string read(const char* name) const {
        const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
        return read_all(Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
    }

    struct State {
        char letter = 'X';  // of /proc/PID/stat; X: there is no such process
        pid_t parent = 0;

        bool living() const { return letter != 'X' && letter != 'Z'; }
    };

    State state() const {
        State state;
        const std::string stat = read("stat");
        // The name in parentheses is the program's choice, so it may hold anything.
        if (const std::size_t name_end = stat.rfind(") "); name_end != std::string::npos) {
            std::sscanf(stat.c_str() + name_end, ") %c %d", &state.letter, &state.parent);
        }
        return state;
    }

    std::uint64_t resident() const {
        std::uint64_t pages = 0;
        std::sscanf(read("statm").c_str(), "%*u %" SCNu64, &pages);
        return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    }

    // Resident bytes, with each page divided by the number of processes that share it; plain resident bytes where the
    // kernel does not say.
    std::uint64_t proportional() const {
        const std::string text = read("smaps_rollup");
        const std::size_t at = text.find("\nPss:");
        std::uint64_t kibibytes = 0;
        const bool known =
            at != std::string::npos && std::sscanf(text.c_str() + at, "\nPss: %" SCNu64, &kibibytes) == 1;
        return known ? kibibytes * 1024 : resident();
    }

    // Between vfork and exec a child runs in its parent's memory.
    bool borrows_memory() const { return ::syscall(SYS_kcmp, pid, parent, KCMP_VM, 0, 0) == 0; }

    // Returns whether it was alive.
    bool kill() const {
        const pid_t self = ::getpid();
        if (parent == self) {
            // Nobody but us waits for it, so its number is its own.
            return state().living() && (::kill(pid, SIGKILL), true);
        }
        // Numbers are used again: it is the process that was listed only if it still has that parent, or got us for
        // one.
        const Descriptor fixed(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
        const State now = state();
        if (fixed.number() >= 0 && (now.parent == parent || now.parent == self)) {
            ::syscall(SYS_pidfd_send_signal, fixed.number(), SIGKILL, nullptr, 0);
        }
        return now.living();
    }

    // A child belongs to the thread that made it.
    void add_children(std::vector<Process>& processes) const {
        const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
        const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(tasks.c_str()), ::closedir);
        while (const dirent* thread = directory ? ::readdir(directory.get()) : nullptr) {
            if (thread->d_name[0] != '.') {
                const std::string text = read(("task/" + std::string(thread->d_name) + "/children").c_str());
                char* end = nullptr;
                for (const char* at = text.c_str(); const auto child = std::strtol(at, &end, 10); at = end) {
                    processes.push_back({static_cast<pid_t>(child), pid});
                }
            }
        }
    }
};

inline std::vector<Process> list_descendants() {
    std::vector<Process> processes;
    Process{::getpid(), 0}.add_children(processes);
    for (std::size_t next = 0; next < processes.size(); ++next) {
        Process{processes[next]}.add_children(processes);  // a copy: the list grows
    }
    return processes;
}

// Sends SIGKILL to every living descendant but `spared`, and returns them. One that is born or gets another parent
// meanwhile may be missed; but a process that is killed forks no more, so when this is called again and again, none
// remains.
inline std::vector<pid_t> kill_descendants(pid_t spared) {
    std::vector<pid_t> living;
    for (const Process& process : list_descendants()) {
        if (process.pid != spared && process.kill()) {
            living.push_back(process.pid);
        }
    }
    return living;
}

// Bytes that all descendants together have resident. Where that is more than `limit`, counts what they share once.
inline std::uint64_t resident_bytes(std::uint64_t limit) {
    const std::vector<Process> processes = list_descendants();
    std::uint64_t sum = 0;
    for (const Process& process : processes) {
        sum += process.resident();
    }
    if (sum <= limit || processes.size() == 1) {
        return sum;
    }
    sum = 0;
    for (const Process& process : processes) {
        sum += process.borrows_memory() ? 0 : process.proportional();
    }
    return sum;
}

}  // namespace ostinato::reaper
