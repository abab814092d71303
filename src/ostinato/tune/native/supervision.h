// One command at a time, and nothing of it left behind: what is to be done when a process ends or time passes. The
// caller waits; this never does.
//
//   idle --start--> running --the command ends, a limit, kill--> killing --no child left--> idle
//
// A child subreaper gets every orphan below it for a child, so no process of a command is left exactly when there is no
// child. A sweep kills all but the command itself, while it runs on.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <set>
#include <vector>

#include "channel.h"
#include "command.h"
#include "descendants.h"
#include "messages.h"

namespace ostinato::reaper {

class Supervision {
public:
    explicit Supervision(Channel& channel) : channel_(channel) {}

    bool idle() const { return phase_ == Phase::idle; }

    void start(Command& command, const Placement& placement, const Spawn& limits) {
        const Command::Outcome outcome = command.start(placement);
        if (outcome.error != 0) {
            channel_.send(NotStarted{.error = outcome.error, .stage = outcome.stage});
            return;
        }
        phase_ = Phase::running;
        command_ = outcome.pid;
        began_ = outcome.began_ns;
        limit_ = static_cast<std::int64_t>(limits.limit_ns);
        deadline_ = limit_ == 0 ? -1 : began_ + limit_;
        stalls_ = 0;
        memory_ = limits.memory;
        next_measurement_ = memory_ == 0 ? -1 : began_ + shortest_interval;
        cause_ = Cause::exit;
        exited_ = {};
        channel_.send(Started{.pid = command_});
    }

    void kill(Cause cause) {
        if (phase_ != Phase::running) {
            return;
        }
        cause_ = cause;
        phase_ = Phase::killing;
        // The whole group at one blow, so that a process that forks fast does not get away. The command has not been
        // waited for, so the number is its own.
        ::kill(-command_, SIGKILL);
        begin_hunt();
    }

    void sweep() {
        swept_.clear();
        sweeping_ = true;
        if (phase_ == Phase::running) {
            begin_hunt();
            hunt();
        } else if (phase_ == Phase::idle) {
            end_sweep();
        }
    }

    // To be called when children have ended, or time has passed.
    void look() {
        if (phase_ == Phase::idle) {
            return;
        }
        // Before the limits: a command that has ended in time has ended in time.
        if (!reap()) {
            phase_ = Phase::idle;
            if (sweeping_) {
                end_sweep();
            }
            channel_.send(exited_);
            return;
        }
        if (phase_ == Phase::running) {
            check_limits();
        }
        if (phase_ == Phase::killing || sweeping_) {
            hunt();
        }
    }

    // When to look at the latest; negative: there is no need.
    std::int64_t next_look() const {
        std::int64_t next = -1;
        const auto at = [&next](std::int64_t moment) {
            if (moment >= 0) {
                next = next < 0 ? moment : std::min(next, moment);
            }
        };
        if (phase_ == Phase::running) {
            at(deadline_);
            at(next_measurement_);
        }
        if (phase_ == Phase::killing || sweeping_) {
            at(next_hunt_);
        }
        return next;
    }

private:
    enum class Phase { idle, running, killing };

    static constexpr std::int64_t millisecond = 1'000'000;
    // Of measurements of memory: as long as it cannot fill up meanwhile.
    static constexpr std::int64_t shortest_interval = 20 * millisecond;
    static constexpr std::int64_t longest_interval = 200 * millisecond;
    static constexpr std::uint64_t fills_at_most = 20;  // bytes in a nanosecond
    static constexpr std::int64_t first_pause = millisecond;
    static constexpr std::int64_t longest_pause = 100 * millisecond;
    static constexpr std::int64_t stuck_after = 5'000 * millisecond;
    static constexpr std::int64_t stall = 1'000 * millisecond;  // a process that is later than this was stopped
    static constexpr int most_stalls = 3;

    // Waits for the children that have ended; returns whether there are others.
    bool reap() {
        for (;;) {
            // A look first: as long as the command has not been waited for, the number of its group is its own.
            siginfo_t ended{};
            if (::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0) {
                return errno != ECHILD;
            }
            if (ended.si_pid == 0) {
                return true;
            }
            if (ended.si_pid == command_) {
                kill(Cause::exit);
            }
            int status = 0;
            rusage usage{};
            ::wait4(ended.si_pid, &status, __WALL, &usage);
            exited_.max_rss = std::max(exited_.max_rss, static_cast<std::uint64_t>(usage.ru_maxrss) * 1024);
            exited_.cpu_ns += nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
            exited_.preemptions += static_cast<std::uint64_t>(usage.ru_nivcsw);
            const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            if (ended.si_pid == command_) {
                command_ = 0;
                exited_.ns = static_cast<std::uint64_t>(now_ns() - began_);
                exited_.status = signal != 0 ? -signal : WEXITSTATUS(status);
                // It may have ended by itself just before it was to be killed.
                exited_.cause = signal == SIGKILL ? cause_ : Cause::exit;
            } else if (phase_ == Phase::killing && signal == SIGKILL) {
                ++exited_.leftovers;
            }
        }
    }

    static std::uint64_t nanoseconds(const timeval& time) {
        return static_cast<std::uint64_t>(time.tv_sec * 1'000'000'000 + time.tv_usec * 1'000);
    }

    void check_limits() {
        const std::int64_t now = now_ns();
        if (deadline_ >= 0 && now > deadline_ + stall && stalls_ < most_stalls) {
            // This process was stopped, and most likely so was the command: it has its time once more.
            ++stalls_;
            deadline_ = now + limit_;
        } else if (deadline_ >= 0 && now >= deadline_) {
            kill(Cause::time);
        } else if (next_measurement_ >= 0 && now >= next_measurement_) {
            const std::uint64_t resident = resident_bytes(memory_);
            if (resident > memory_) {
                kill(Cause::memory);
                return;
            }
            const auto soonest_full = static_cast<std::int64_t>((memory_ - resident) / fills_at_most);
            next_measurement_ = now_ns() + std::clamp(soonest_full, shortest_interval, longest_interval);
        }
    }

    void begin_hunt() {
        stuck_told_ = false;
        hunt_began_ = now_ns();
        pause_ = first_pause;
    }

    void hunt() {
        const bool sparing = phase_ == Phase::running;
        const std::vector<pid_t> living = kill_descendants(sparing ? command_ : 0);
        const std::int64_t now = now_ns();
        next_hunt_ = now + pause_;
        pause_ = std::min(2 * pause_, longest_pause);
        if (!living.empty() && !stuck_told_ && now - hunt_began_ >= stuck_after) {
            stuck_told_ = true;
            std::vector<std::int32_t> message{static_cast<std::int32_t>(Event::stuck)};
            message.insert(message.end(), living.begin(), living.begin() + std::min(std::ssize(living), most_stuck));
            channel_.send_bytes(std::as_bytes(std::span(message)));
        }
        if (sweeping_) {
            swept_.insert(living.begin(), living.end());
            if (living.empty() && sparing) {
                end_sweep();
            }
        }
    }

    void end_sweep() {
        sweeping_ = false;
        channel_.send(Swept{.killed = static_cast<std::uint32_t>(swept_.size())});
    }

    Channel& channel_;
    Phase phase_ = Phase::idle;
    pid_t command_ = 0;  // 0: it has been waited for
    std::int64_t began_ = 0;
    std::int64_t limit_ = 0;
    std::int64_t deadline_ = -1;
    int stalls_ = 0;
    std::int64_t next_measurement_ = -1;
    std::uint64_t memory_ = 0;
    Cause cause_ = Cause::exit;
    Exited exited_;

    // The hunt: killing again and again until nothing is left.
    bool sweeping_ = false;
    bool stuck_told_ = false;
    std::int64_t hunt_began_ = 0;
    std::int64_t next_hunt_ = -1;
    std::int64_t pause_ = 0;
    std::set<pid_t> swept_;
};

}  // namespace ostinato::reaper
