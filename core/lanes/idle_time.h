// How long a slot has had nothing to do. Counted in machines that are watched.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace ostinato {

// Whoever has the slot writes; one thread has it at a time. Others read at any time.
//
// One word says both what waits that have ended took, and since when one is going on, so that no reader counts a wait
// twice. Slots cannot have been idle for longer than the clock has run, so the sign tells which it is.
//
// The clock is the kernel's coarse one, which costs a fifth of the fine one and advances every few milliseconds. A wait
// that is shorter than that counts as nothing or as a whole tick, with the probabilities that make sums right.
class IdleTime {
public:
    static std::int64_t clock() {
        timespec now;
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    }

    void begin() {
        if (!going())
            ended_.store(ended_.load(std::memory_order_relaxed) - clock(), std::memory_order_relaxed);
    }
    void end() {
        if (going())
            ended_.store(ended_.load(std::memory_order_relaxed) + clock(), std::memory_order_relaxed);
    }
    // Whether a wait has begun and not ended.
    bool going() const { return ended_.load(std::memory_order_relaxed) < 0; }

    // In ns, until `now`.
    std::int64_t until(std::int64_t now) const {
        const std::int64_t ended = ended_.load(std::memory_order_relaxed);
        return ended < 0 ? ended + now : ended;
    }

private:
    std::atomic<std::int64_t> ended_{0};  // ns of waits that have ended; less the time when the present one began
};

}  // namespace ostinato
