// A barrier: phases that are complete one after the other, each when so many arrivals have been made.
//
// Arrivals of a later phase may come before an earlier one is complete (lanes run ahead); phases still complete in
// order, since the timeline counts them. Everything but the timeline's value is guarded by a mutex that is held for a
// few instructions and under which nothing else is locked but the parking mutex.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "outside/event.h"
#include "park/forks.h"
#include "park/timeline.h"
#include "program/plan.h"

namespace ostinato {

// The part that a run takes in a barrier it was given: it belongs to one phase a step, from `base` on.
struct Attendance {
    const void* program = nullptr;  // whose runs follow each other; null: the run is independent of others
    std::uint64_t steps = 0;
    std::uint64_t count = 0;  // arrivals in each phase
    bool waits = false;       // the run ends after those phases are complete
    // --- the barrier's ---
    std::uint64_t base = 0;                       // constant once the run is submitted
    std::map<std::uint64_t, std::uint64_t> made;  // arrivals by phase, of incomplete phases

    std::uint64_t end() const { return base + std::min(steps, UINT64_MAX - base); }
};

class Barrier : public std::enable_shared_from_this<Barrier> {
public:
    // `combine`: the Python callable that takes the values of arrivals (see python/events.h), or null.
    explicit Barrier(std::uint64_t arrivals, PythonObjectHandle its_combine = {})
        : combine(std::move(its_combine)), arrivals_(arrivals) {}

    // Gives `run` its base, at least `least`: the phase that is current now. Arrivals that attending runs are still to
    // make count as made, and phases that earlier runs of the same program wait for count as complete: so a run has the
    // same base whether the earlier ones have ended or not. A run that makes no arrivals does not count those of
    // others: it may be what they wait for.
    void attend(const std::shared_ptr<Attendance>& run, std::uint64_t least);
    // The run has ended: arrivals that it has not made never come.
    void leave(const std::shared_ptr<Attendance>& run);

    // `count` arrivals in `phase`, made by `run` if not null. False: more than are left of it; none is made.
    bool arrive(std::uint64_t phase, std::uint64_t count, Attendance* run = nullptr);
    // The same in two parts: a promise counts against what is left at once, and is then kept or withdrawn.
    bool promise(std::uint64_t phase, std::uint64_t count, Attendance* run = nullptr);
    void keep(std::uint64_t phase, std::uint64_t count);
    void withdraw(std::uint64_t phase, std::uint64_t count);
    // A promise in the first incomplete phase, which is returned; none when fewer are left of it.
    std::optional<std::uint64_t> promise(std::uint64_t count);
    // Arrives in the first incomplete phase when `after` has happened, but not if that is poisoned. False as above.
    bool arrive_after(Event& after, std::uint64_t count);

    bool complete(std::uint64_t phase) const { return completed_.reached(phase + 1); }
    // The first incomplete one.
    std::uint64_t phase() const { return completed_.value.load(std::memory_order_acquire); }
    std::uint64_t left(std::uint64_t phase);  // arrivals that are neither made nor promised
    std::uint64_t arrivals() const { return arrivals_; }

    // Done when `phase` is complete.
    std::shared_ptr<Event> event(std::uint64_t phase);

    const MadeHere made;
    const PythonObjectHandle combine;

private:
    struct Phase {
        std::uint64_t arrived = 0, promised = 0;
        std::shared_ptr<Event> event;
    };
    // Under the mutex. `happened` takes the events to be triggered without it.
    bool reserve(std::uint64_t phase, std::uint64_t count, Attendance* run = nullptr);
    std::uint64_t left_locked(std::uint64_t phase) const;
    bool expects_all_locked(std::uint64_t phase) const;
    std::uint64_t next_change_locked(std::uint64_t phase) const;
    void make(std::uint64_t phase, std::uint64_t count, std::vector<std::shared_ptr<Event>>& happened);

    const std::uint64_t arrivals_;
    std::mutex mutex_;
    Timeline completed_;                     // phases
    std::map<std::uint64_t, Phase> phases_;  // incomplete ones that somebody has arrived at or asked for
    std::vector<std::shared_ptr<Attendance>> attending_;
    std::uint64_t expected_below_ = 0;  // all arrivals of the incomplete phases below are made or expected
};

}  // namespace ostinato
