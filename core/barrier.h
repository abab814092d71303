// A barrier: phases that are complete one after the other, each when so many arrivals have been made.
//
// Arrivals of a later phase may come before an earlier one is complete (lanes run ahead); phases still complete in order,
// since the timeline counts them. Everything but the timeline's value is guarded by a mutex that is held for a few
// instructions and under which nothing else is locked but the parking mutex.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "event.h"
#include "timeline.h"

namespace ostinato {

class Barrier {
public:
    explicit Barrier(std::uint64_t arrivals) : arrivals_(arrivals) {}

    // `count` arrivals in `phase`. False: more than are left of it; none is made.
    bool arrive(std::uint64_t phase, std::uint64_t count);

    bool complete(std::uint64_t phase) const { return completed_.reached(phase + 1); }
    std::uint64_t phase() const { return completed_.value.load(std::memory_order_acquire); }  // the first incomplete one
    std::uint64_t left(std::uint64_t phase);  // arrivals
    std::uint64_t arrivals() const { return arrivals_; }

    // Done when `phase` is complete.
    std::shared_ptr<Event> event(std::uint64_t phase);

private:
    struct Phase {
        std::uint64_t arrived = 0;
        std::shared_ptr<Event> event;
    };
    const std::uint64_t arrivals_;
    std::mutex mutex_;
    Timeline completed_;         // phases
    std::deque<Phase> phases_;  // from the first incomplete one on
};

}  // namespace ostinato
