// A lane: a sequence of operations of one program, run in order, step after step, by whoever holds its claim.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "lanes/line_vector.h"
#include "park/timeline.h"
#include "program/run.h"
#include "program/schedule.h"

namespace ostinato {

class Program;

struct alignas(kLinePair) Lane {
    // Free (0) or held (1). Taken by compare-and-swap with acquire, given back by a release store: everything below
    // the line is touched only by the holder, and passes from holder to holder through this word.
    std::atomic<std::uint32_t> claim{0};
    // What the lane waits for, written by the holder before it gives the claim back; read by anyone as a hint, and
    // exactly by whoever finds the claim free.
    std::atomic<Timeline*> blocked_on{nullptr};
    std::atomic<std::uint64_t> blocked_until{0};
    std::atomic<bool> waits_long{false};  // likewise a hint: polling is not worth while
    std::atomic<std::int32_t> priority{0};
    // For stoppers: the run the lane is in, and the furthest step it has begun (see Program::stop).
    std::atomic<std::uint64_t> run_index{0};
    std::atomic<std::uint64_t> begun{0};

    alignas(kLinePair) Program* program = nullptr;
    const LaneOrder* order = nullptr;
    std::uint32_t index = 0;
    // --- the holder's ---
    std::uint32_t batch = 0;     // the next batch
    std::uint32_t position = 0;  // the next operation within it, when `inside`
    bool inside = false;         // stopped within a batch, its waits already satisfied
    bool in_step = false;        // the step at `step` has begun
    bool entered = false;        // the first-step work of `run` is done
    bool last = false;           // all lanes have left `run`; it waits for what is written back from devices
    std::uint64_t step = 0;
    std::uint64_t clean_from = 0;  // history before this step does not count
    std::shared_ptr<Run> run;
    struct Neighbour {
        const Timeline* timeline;
        std::uint64_t seen;  // last value read of it
    };
    LineVector<Neighbour> neighbours;             // the program's lanes, as this one sees them
    LineVector<std::uint32_t> phase;              // step modulo Schedule::periods
    std::atomic<std::uint64_t> blocked_count{0};  // statistics: heads found waiting; written by the holder
    alignas(kLinePair) Timeline timeline;         // operations completed since the program was compiled

    bool try_claim() {
        std::uint32_t expected = 0;
        return claim.load(std::memory_order_relaxed) == 0 &&
               claim.compare_exchange_strong(expected, 1, std::memory_order_acquire, std::memory_order_relaxed);
    }
    void count_blocked() {
        blocked_count.store(blocked_count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    bool ready() const { return claim.load(std::memory_order_acquire) == 0 && reached(); }
    bool reached() const {  // what it waited for when its claim was given back
        const Timeline* t = blocked_on.load(std::memory_order_relaxed);
        return t == nullptr ||
               t->value.load(std::memory_order_relaxed) >= blocked_until.load(std::memory_order_relaxed);
    }
    void block(Timeline& on, std::uint64_t until, bool takes_long = false) {
        waits_long.store(takes_long, std::memory_order_relaxed);
        blocked_on.store(&on, std::memory_order_relaxed);
        blocked_until.store(until, std::memory_order_relaxed);
    }
};

}  // namespace ostinato
