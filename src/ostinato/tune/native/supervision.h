// One command at a time, and nothing of it left behind: what is to be done when a process ends or time passes. The
// caller waits; this never does.
//
//   idle --start--> running --the command ends, a limit, kill--> killing --no child left--> idle
//
// A child subreaper gets every orphan below it for a child, so no process of a command is left exactly when there is no
// child. A sweep kills all but the command itself, while it runs on.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <vector>

#include "channel.h"
#include "command.h"
#include "messages.h"

namespace ostinato::reaper {

class Supervision {
public:
    explicit Supervision(Channel& channel) : channel_(channel) {}

    bool idle() const { return phase_ == Phase::idle; }
    void start(Command& command, const Placement& placement, const Spawn& limits);
    void kill(Cause cause);
    void sweep();

    // Children have ended, or time has passed.
    void look();
    // When to look at the latest; negative: there is no need.
    std::int64_t next_look() const;

private:
    enum class Phase { idle, running, killing };

    bool reap();
    void check_limits();
    void begin_hunt();
    void hunt();
    void end_sweep();
    void tell_stuck(const std::vector<pid_t>& pids);

    Channel& channel_;
    Phase phase_ = Phase::idle;
    pid_t command_ = 0;  // 0: it has been waited for
    std::int64_t began_ = 0;
    std::int64_t deadline_ = -1;
    std::int64_t next_measurement_ = -1;
    std::uint64_t memory_ = 0;
    Cause cause_ = Cause::exit;
    Exited exited_{};

    // The hunt: killing again and again until nothing is left.
    bool sweeping_ = false;
    bool stuck_told_ = false;
    std::int64_t hunt_began_ = 0;
    std::int64_t next_hunt_ = -1;
    std::int64_t pause_ = 0;
    std::set<pid_t> swept_;
};

}  // namespace ostinato::reaper
