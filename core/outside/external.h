// External operations: those that wait for something outside the program's lanes, or tell it something. Preconditions,
// postconditions, barriers, reservations, tasks that may block, and ends of work on devices.
//
// A lane never waits for an event itself: timelines must outlive whoever registered in them, and events do not. Each
// external operation has a timeline in its program, the signal's. A lane that finds its event pending leaves a listener
// which makes the signal reach `step + 1`, and is blocked on that, as on any timeline; when it is served again it looks
// at the event itself. An abort makes the signals of its run's lanes reach what they are armed for, too.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "outside/event.h"
#include "park/timeline.h"
#include "program/run.h"

namespace ostinato {

class Worker;
struct Lane;

struct Signal : std::enable_shared_from_this<Signal> {
    Timeline timeline;
    std::mutex mutex;         // the timeline's writers, and the next two
    std::uint64_t armed = 0;  // what somebody is to make the timeline reach
    std::uint32_t lane = 0;   // the operation's
    bool firm = false;        // an abort does not end the wait: somebody is at work on the program's arrays
    // --- the holder's of the lane ---
    std::shared_ptr<Event> pending;  // what the operation waits for in this step
    std::int64_t since = 0;          // when it began to, where that is recorded
    ExceptionHandle failure;         // of a task that may block; written before `pending` happens, as the next
    bool left = false;               // it ended before its time, since the run was aborted
    // --- of a fence that is armed: its device's, until the timeline is reached ---
    std::shared_ptr<Signal> held;         // itself: the device may be slow to leave it, and the program gone then
    std::int32_t code = 0;                // how the work ended
    std::atomic<bool>* failed = nullptr;  // its device's, see InFlightQueue
    // --- the holder's of the lane, of a fence ---
    std::int64_t blocked_since = 0;  // 0: it is not
    bool takes_long = false;         // its last wait was longer than polling is worth while

    void reach(std::uint64_t value);
};

// Where an external operation stands when it is advanced.
struct ExternalContext {
    Worker& worker;
    Lane& lane;
    Run& run;
    Signal& signal;
    bool skipped = false;  // of a firm operation: what comes before it has failed, or the run was aborted

    // Whether `event` has happened, or the run was aborted. If not, the lane is blocked until one of them.
    bool happened(const std::shared_ptr<Event>& event);
    bool aborted() const { return run.aborted.load(std::memory_order_acquire); }
};

// Failures of external operations, as told to Python.
constexpr std::int32_t kExcessArrivals = INT32_MIN + 1, kNotHeld = INT32_MIN + 2;

class ExternalOp {
public:
    enum class Result : std::uint8_t {
        kDone,
        kBlocked,   // the lane waits for the signal
        kSkipped,   // what it waits for is poisoned, or the run was aborted
        kPoisoned,  // what it waited for is not to be trusted: who failed is told elsewhere
        kFailed,
    };
    struct Outcome {
        Result result;
        std::int32_t code = 0;                    // of a failure
        ExceptionHandle exception = {};           // likewise, where there is one
        std::shared_ptr<Event> poisoned_by = {};  // why it is skipped
        std::uint32_t failed = UINT32_MAX;        // the operation that has failed, where that is another
    };

    virtual ~ExternalOp() = default;
    // Does what it does in a step, or as much as can be done. Called again after kBlocked.
    virtual Outcome advance(ExternalContext context) const = 0;
    // Instead, when what comes before it has failed or the run was aborted; not after kBlocked, which `advance` ends.
    virtual void skip(ExternalContext) const {}
    // What it waits for is at work on the program's arrays: it is never skipped.
    virtual bool firm() const { return false; }
    // A trace has it begin when the call of `advance` began that did it, and not when it began to wait.
    virtual bool begins_late() const { return false; }
    // Adds what it does at the barriers that `run` was given to what the run does there.
    virtual void attend(const Run&) const {}
    // What it waits for, for people. `plan` is that of the run, which lets go of it at its end.
    virtual std::string waits_for(const Plan& plan, const Run& run, std::uint64_t step) const = 0;
};

}  // namespace ostinato
