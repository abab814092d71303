// A run: some steps of a program, submitted together. Lanes pass from run to run in submission order.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lanes/floating_point.h"
#include "outside/barrier.h"
#include "outside/event.h"
#include "park/event_count.h"
#include "program/plan.h"
#include "program/trace.h"

namespace ostinato {

class Slot;

constexpr std::uint64_t kDeciding = 0;  // of Run::bound

enum class OnError : std::uint8_t { kStop, kContinue };

// How a run is asked for: for a thread that waits for its end, and can ask in parts; as a whole; as a part.
enum class Asked : std::uint8_t { kWaiting, kWhole, kPart };

class PythonRun;
using ExceptionHandle = PythonObjectHandle;
// Whether the exception is one that leaves the program: KeyboardInterrupt or SystemExit.
bool leaves(const PythonObject& exception);

struct Failure {
    std::uint32_t op;
    std::uint64_t step;         // as the user counts
    std::int32_t code;          // of a native task; 0 for a Python one
    ExceptionHandle exception;  // null for a native task
};

// A barrier given as a parameter. Parameters that are given the same barrier share what the run does there.
struct BarrierParam {
    std::shared_ptr<Barrier> barrier;
    std::shared_ptr<Attendance> attendance;
};

// What a run has to tell of a postcondition. Guarded by the program's mutex.
struct Post {
    bool told = false, poisoned = false;
    std::uint64_t skipped = 0;     // one more than the last step in which it was
    std::shared_ptr<Event> event;  // once somebody asked for it
};

struct Run;

// What a run is given from outside, and gives.
struct RunOutside {
    // The default precondition, or null: none, or it has happened. Lanes wait for it when they enter.
    std::shared_ptr<Event> after;
    std::vector<std::shared_ptr<Event>> preconditions;  // by number; null for those that have happened
    std::vector<BarrierParam> barriers;                 // by number
    std::shared_ptr<Run> continues;              // the run whose steps this one goes on with; null once submitted
    std::vector<std::shared_ptr<Grant>> grants;  // that its preconditions come after, and so its own events
    std::vector<Post> posts;                     // by number
    std::shared_ptr<Event> poisoned_by;  // the first precondition found poisoned; guarded by the program's mutex
};

constexpr std::uint64_t kContinued = UINT64_MAX;  // of Run::user_first

struct Run : std::enable_shared_from_this<Run> {
    std::uint64_t index = 0;  // 1, 2, ... in submission order; 0 is the sentinel before the first
    // One more than the steps to run, so that 0 can mean that a stopper is deciding: whoever reads that waits for the
    // program's mutex and reads again. One word for both, since two could be read from two different stops. A later
    // decision is never higher.
    std::atomic<std::uint64_t> bound{1};
    std::uint64_t requested = 0;                 // steps asked for
    std::atomic<std::uint64_t> first{0};         // its first step; every lane that enters stores the same
    std::atomic<std::uint64_t> offset{0};        // of its steps from those the user counts; likewise
    std::uint64_t user_first = kContinued;       // its first step as the user counts, where that does not go on from
                                                 // the run before
    std::atomic<std::uint32_t> lanes_left{0};    // have steps of it to do
    std::atomic<std::uint32_t> lanes_behind{0};  // have not entered the next run; the last one drops `next`
    std::atomic<bool> aborted{false};            // skip every body from the next operation boundary on
    std::atomic<bool> poisoned{false};           // an operation was skipped because of a failure
    std::atomic<std::uint64_t> cut{UINT64_MAX};  // the first step of which an abort left something out
    std::atomic<bool> done{false};
    bool cancelled = false;               // guarded by the program's mutex
    bool exhausted = false;               // guarded too: ends before its time, since all that would follow is poisoned
    bool ended = false;                   // guarded too: no lane has steps of it to do
    bool met = false;                     // guarded too: until() has ended it
    bool disagreed = false;               // guarded too: until() would have ended it before other ranks did
    bool failed_elsewhere = false;        // guarded too: it failed on another rank
    bool agreed = false;                  // guarded too: all ranks know how it ended
    std::atomic<bool> settled{false};     // all ranks know its last step
    std::uint64_t sequence = 0;           // its number among what all ranks do together; 0: it is of this rank only
    bool wants_callback = false;          // guarded too
    bool retrieved = false;               // guarded too: the user was told how it ended
    std::uint64_t failures_unlisted = 0;  // guarded too
    OnError on_error = OnError::kStop;
    Asked asked = Asked::kWhole;
    bool last_part = true;
    std::int32_t priority = 0;
    // Wait for all earlier runs before the first step: after a rebind, and to start clean after a delivered failure.
    bool fenced = false;
    std::uint64_t failures_at_submit = 0;
    bool all_delivered_at_submit = true;
    enum class Start : std::uint8_t { kUndecided, kClean, kPoisoned };
    Start start = Start::kUndecided;  // guarded by the program's mutex; see Program::starts_clean
    FloatingPointMode floating_point;
    std::shared_ptr<Plan> plan;
    std::vector<std::uint64_t> values;        // of native scalar parameters, as bits
    std::unique_ptr<RunOutside> outside;      // where it has anything to do with what is outside of its program
    bool started = true;                      // need not wait for its default precondition; with the program's mutex
    std::atomic<bool> start_poisoned{false};  // nothing in its first step runs
    // The run because of which something of this was skipped, and nothing else: guarded by the program's mutex.
    std::shared_ptr<Run> skipped_for;
    std::shared_ptr<Event> end;  // once somebody asked for it; guarded by the program's mutex
    PythonOwned<PythonRun> python;
    std::unique_ptr<TraceBuffers> trace;
    std::vector<Failure> failures;       // guarded by the program's mutex
    std::atomic<Slot*> caller{nullptr};  // the slot of the thread in replay(), to be notified when done
    EventCount finished;                 // notified when done
    std::shared_ptr<Run> next;           // set before the frontier is published

    // The steps it runs: all of them when it is done, at most so many before (not while a stopper decides).
    std::uint64_t limit() const { return bound.load(std::memory_order_acquire) - 1; }
    void set_limit(std::uint64_t steps) { bound.store(steps + 1, std::memory_order_release); }
    void cut_at(std::uint64_t step) {
        std::uint64_t known = cut.load(std::memory_order_relaxed);
        while (step < known && !cut.compare_exchange_weak(known, step, std::memory_order_relaxed)) {
        }
    }
    // The steps that were run to their end, once it is done.
    std::uint64_t steps_run() const {
        const std::uint64_t until = cut.load(std::memory_order_relaxed);
        return std::min(limit(), until - std::min(until, first.load(std::memory_order_relaxed)));
    }
    // Whether it did not end as it should; once it is done, or with the program's mutex.
    bool bad() const {
        return !failures.empty() || cancelled || failed_elsewhere || poisoned.load(std::memory_order_relaxed);
    }
    // The poisoned precondition that is all that is wrong, with this run or the one it was skipped for; or null. With
    // the program's mutex.
    std::shared_ptr<Event> only_poison() const {
        const Run* const source = skipped_for ? skipped_for.get() : this;
        return failures.empty() && !cancelled && source->outside ? source->outside->poisoned_by : nullptr;
    }
    // Whether the user was told how it ended, or of the failure that poisoned it. With the program's mutex.
    bool told() const {
        const auto poison = [](const Run& run) { return run.outside ? run.outside->poisoned_by.get() : nullptr; };
        if (retrieved || !failures.empty())
            return retrieved;
        if (skipped_for)
            return skipped_for->told();
        return poison(*this) != nullptr && poison(*this)->retrieved();
    }
    // As the user counts; known once a lane has entered.
    std::uint64_t user_step(std::uint64_t step) const { return step - offset.load(std::memory_order_relaxed); }

    // A long chain of finished runs is released one by one, not by recursion.
    ~Run() {
        std::shared_ptr<Run> rest = std::move(next);
        while (rest && rest.use_count() == 1)
            rest = std::shared_ptr<Run>(std::move(rest->next));
    }
};

}  // namespace ostinato
