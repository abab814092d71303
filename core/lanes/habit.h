// How threads wait for short work. A thread that waits for a short run right after it has submitted it does the run
// itself; so workers leave such a run to it for a moment. All of this is a hint: a wrong one costs time, nothing else.
#pragma once

#include <atomic>
#include <cstdint>

#include "program/trace.h"

namespace ostinato {

class Habit {
public:
    static constexpr std::int64_t kLeftNs = 5'000;     // longer than from submit() to result()
    static constexpr std::int64_t kShortNs = 200'000;  // what is longer is not worth doing in the thread that waits

    // A run is submitted. `alone`: nothing else is under way.
    void submitted(bool alone) {
        if (!short_.load(std::memory_order_relaxed))
            return;
        const std::int64_t now = monotonic_ns();
        submitted_.store(now, std::memory_order_relaxed);
        if (!alone)
            at_once_.store(false, std::memory_order_relaxed);
        const bool left = alone && at_once_.load(std::memory_order_relaxed);
        left_until_.store(left ? now + kLeftNs : 0, std::memory_order_relaxed);
    }
    // A thread is about to wait for it. Returns whether it should do the run itself.
    bool begin_wait(std::int64_t now) {
        const bool is_short = short_.load(std::memory_order_relaxed);
        if (is_short)
            at_once_.store(now - submitted_.load(std::memory_order_relaxed) < kLeftNs, std::memory_order_relaxed);
        return is_short;
    }
    // It has waited for so long.
    void end_wait(std::int64_t ns) {
        const bool is_short = ns < kShortNs;
        if (short_.load(std::memory_order_relaxed) != is_short)
            short_.store(is_short, std::memory_order_relaxed);
    }
    // No thread waits for the run, or one that leaves the work to workers.
    void leave_to_workers() {
        if (left_until_.load(std::memory_order_relaxed) != 0)
            left_until_.store(0, std::memory_order_relaxed);
    }
    // Whether workers are to leave the run alone. Once the moment is over, they will not leave the next one.
    bool left() {
        const std::int64_t until = left_until_.load(std::memory_order_relaxed);
        if (until == 0) [[likely]]
            return false;
        if (monotonic_ns() < until)
            return true;
        left_until_.store(0, std::memory_order_relaxed);
        at_once_.store(false, std::memory_order_relaxed);
        return false;
    }

private:
    std::atomic<bool> short_{false};    // the last run that a thread waited for was
    std::atomic<bool> at_once_{false};  // it waited right after it had submitted the run
    std::atomic<std::int64_t> submitted_{0}, left_until_{0};
};

}  // namespace ostinato
