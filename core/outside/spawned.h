// Spawned calls: single tasks outside programs. A call waits for an event, if it was given one; then it is ready, and
// lies in a queue until a worker takes it; or, if it may block, a thread of the blocking pool.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "lanes/floating_point.h"
#include "lanes/habit.h"
#include "outside/event.h"
#include "park/event_count.h"

namespace ostinato {

class Machine;
class PythonThread;
struct SpawnedCall;

class SpawnedBody;

constexpr std::int32_t kAnySlot = -1;
constexpr std::int64_t kTurnNs = 100'000;            // a turn among equals
constexpr std::int64_t kPassedOverNs = 500'000'000;  // what is ready and was passed over for so long gets a turn

using CallList = std::list<std::shared_ptr<SpawnedCall>>;

struct SpawnedCall : std::enable_shared_from_this<SpawnedCall> {
    enum class State : std::uint8_t { kWaiting, kReady, kTaken, kRunning, kEnded };

    std::shared_ptr<Machine> machine;
    PythonOwned<SpawnedBody> body;  // what it calls, and what that returned or raised
    std::int32_t priority = 0;
    std::int32_t slot = kAnySlot;  // the only one that may run it
    bool blocking = false;
    FloatingPointMode floating_point;
    std::vector<std::shared_ptr<Grant>> grants;  // that it comes after, and so its event

    const void* function = nullptr;  // that it calls: for what is known of it

    std::atomic<bool> done{false};       // carries what the body returned or raised
    std::atomic<bool> retrieved{false};  // the user was told how it ended
    EventCount finished;                 // notified then

    // --- guarded by SpawnedCalls::mutex_; constant when done ---
    State state = State::kWaiting;
    bool cancelled = false;
    bool wants_callback = false;
    std::atomic<bool> waits_are_over{false};  // for the task itself, which runs: it was cancelled
    bool begun = false;
    bool raised = false;
    std::shared_ptr<Event> poisoned_by;  // it has not run, because this is poisoned
    std::shared_ptr<Event> end;          // once somebody asked for it
    std::int64_t ready_since = 0;
    CallList::iterator in_flight, ready;  // where it is listed

    bool bad() const { return raised || cancelled || poisoned_by != nullptr; }
};

// The calls that are ready for the same slots. Guarded by the mutex of SpawnedCalls, but for `size`.
class ReadyCalls {
public:
    void add(const std::shared_ptr<SpawnedCall>& call);
    std::shared_ptr<SpawnedCall> remove(SpawnedCall& call);  // holds it: its last reference may end Python objects
    void served(std::int32_t priority, std::int64_t now);    // a call of this priority has had its turn

    struct Front {
        SpawnedCall* call = nullptr;
        bool due = false;  // passed over for long: comes before what is more urgent
        bool before(const Front& other) const;
    };
    // The oldest of the most urgent ones, or of those that are due.
    Front front(std::int64_t now) const;
    // The same, and its turn begins.
    void begin_turn(const Front& front, std::int64_t now);

    std::atomic<std::size_t> size{0};

private:
    struct Level {
        CallList calls;                               // of one priority, oldest first
        std::int64_t last_served = 0, turn_ends = 0;  // the turn of those that were due
        bool due(std::int64_t now) const;
    };
    std::map<std::int32_t, Level, std::greater<>> levels_;
};

// All calls of a machine.
class SpawnedCalls {
public:
    SpawnedCalls(Machine& machine, std::size_t n_slots) : machine_(machine), bound_(n_slots) {}

    // Throws when no more are taken.
    void spawn(const std::shared_ptr<SpawnedCall>& call, const std::shared_ptr<Event>& after);
    // No more are taken.
    void refuse();
    // False: it has ended. A call that has not begun never will; one that runs ends as cancelled.
    bool cancel(SpawnedCall& call);
    // An event for its end; `origin` explains if it is poisoned.
    std::shared_ptr<Event> end_of(SpawnedCall& call, PythonObjectHandle origin);
    // Its callback is to be called when it has ended. False: it has.
    bool want_callback(SpawnedCall& call);
    SpawnedCall::State state_of(SpawnedCall& call);

    std::vector<std::shared_ptr<SpawnedCall>> in_flight();
    bool idle() const { return n_in_flight_.load(std::memory_order_acquire) == 0; }

    // Whether workers must look at calls: one is ready, or keeps a worker from its lanes.
    bool at_hand() const { return at_hand_.load(std::memory_order_relaxed) != 0; }
    // Whether there is one for `slot`; `unbound`: those for any slot are for it too.
    bool ready(std::uint32_t slot, bool unbound) const {
        return bound_[slot].size.load(std::memory_order_relaxed) != 0 || (unbound && ready_unbound());
    }
    bool ready_unbound() const { return unbound_.size.load(std::memory_order_relaxed) != 0; }
    // The priority of the next one.
    std::optional<std::int32_t> most_urgent(std::uint32_t slot, bool unbound, std::int64_t now);
    // The next one that has at least this priority, or is due. `run` must follow.
    std::shared_ptr<SpawnedCall> take(std::uint32_t slot, bool unbound, std::int64_t at_least, std::int64_t now);
    // The same, if that is `call`, and nothing else is ready for the slot.
    std::shared_ptr<SpawnedCall> take_only(SpawnedCall& call, std::uint32_t slot, std::int64_t now);
    // Whether the only call that is ready is left to the thread that has just spawned it.
    bool left_alone() { return unbound_.size.load(std::memory_order_relaxed) == 1 && habit_.left(); }
    // A thread is about to wait for `call`. Whether it should do it itself.
    bool begin_wait(SpawnedCall& call);
    void end_wait(SpawnedCall& call, std::int64_t ns);
    // Runs a call that was taken. The thread's floating-point mode and context are the call's when it returns.
    // `finish` must follow.
    void run(SpawnedCall& call, PythonThread& python);
    // Ends the call and tells the threads that wait for it.
    void finish(SpawnedCall& call);

private:
    using State = SpawnedCall::State;
    const void*& short_at(const void* function) {
        return short_[(reinterpret_cast<std::uintptr_t>(function) >> 4) % short_.size()];
    }
    ReadyCalls& queue_of(const SpawnedCall& call);
    ReadyCalls::Front front_locked(std::uint32_t slot, bool unbound, std::int64_t now);
    void make_ready(const std::shared_ptr<SpawnedCall>& call, Event* after);

    Machine& machine_;
    std::atomic<std::size_t> at_hand_{0}, n_in_flight_{0};
    std::mutex mutex_;
    bool refusing_ = false;
    Habit habit_;
    std::array<const void*, 16> short_{};  // functions whose last call was, each where its address hashes to
    CallList in_flight_;
    ReadyCalls unbound_;
    std::vector<ReadyCalls> bound_;  // by slot
};

// Waits until `call` is done or `timeout_ns` (negative: no limit) has passed. False: a signal handler raised.
bool wait_until_done(SpawnedCall& call, std::int64_t timeout_ns);

}  // namespace ostinato
