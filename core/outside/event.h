// An event: something that happens once, or is poisoned: what it stood for has failed.
//
// Whoever waits for one either sleeps (`wait_until_done`), or leaves a listener. Listeners are called by the thread
// that triggers the event, after it has let go of all locks of ours, with or without the GIL: they must not wait for
// anything but mutexes, nor run Python code.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "park/event_count.h"
#include "park/forks.h"
#include "program/plan.h"

namespace ostinato {

// What a reservation grants to one request, as far as events know of it.
struct Grant {
    std::atomic<bool> open{true};  // its release is still to be asked for
};

class Event : public std::enable_shared_from_this<Event> {
public:
    using Listener = std::function<void(Event&)>;

    // `origin`: the Python object that explains why, should it be poisoned without a reason of its own.
    explicit Event(PythonObjectHandle origin = {}) : origin_(std::move(origin)) {}
    ~Event();
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    // An event that has happened already.
    static std::shared_ptr<Event> happened();

    bool done() const { return state_.load(std::memory_order_acquire) != State::kPending; }
    bool poisoned() const { return state_.load(std::memory_order_acquire) == State::kPoisoned; }

    // False when it has been triggered or poisoned before. What led to it is visible to whoever sees `done`.
    bool trigger() { return end(State::kDone, {}, nullptr); }
    // For an exception, or null: its origin explains why.
    bool poison(PythonObjectHandle reason) { return end(State::kPoisoned, std::move(reason), nullptr); }
    bool poison(const std::shared_ptr<Event>& other);  // because another was

    // The same in two parts, for whoever holds locks that listeners may want: from `settle` on it has happened, and
    // `announce` wakes those who wait, and calls listeners. Whoever sees what it stands for sees that it has happened.
    // `by`: the event whose poison this one's is if it is poisoned, or null.
    std::vector<Listener> settle(bool poisoned, std::shared_ptr<Event> by = {});
    void announce(std::vector<Listener> listeners);

    // Calls `listener` once: when the event happens, or at once if it has.
    void listen(Listener listener);
    // Has `listener` take `callback` when the event happens, on the thread that lets it happen; the event knows of it,
    // so that Python's garbage collector can. False: it has happened.
    using CallbackListener = void (*)(std::vector<PythonObjectHandle> callbacks);
    bool call_back(PythonObjectHandle callback, CallbackListener listener);
    // Takes such a callback back: the last one that `matches`; null when it is too late.
    PythonObjectHandle withdraw(const std::function<bool(const PythonObjectHandle&)>& matches);
    // Of an event that only the caller holds.
    const std::vector<PythonObjectHandle>& callbacks() const { return callbacks_; }

    // It happens after what was granted: a release that comes after this event is of that grant. To be said of an event
    // that follows others, with what they come after.
    void comes_after(const std::vector<std::shared_ptr<Grant>>& grants);
    std::vector<std::shared_ptr<Grant>> grants();

    // Why it is poisoned: the event where that began, itself or another. Once it is done.
    const Event& source() const { return poisoned_by_ ? *poisoned_by_ : *this; }
    // Whether the user was told of that poison; of the event where it began.
    bool retrieved() const { return source().retrieved_.load(std::memory_order_relaxed); }
    void retrieve() const { source().retrieved_.store(true, std::memory_order_relaxed); }
    const PythonObjectHandle& reason() const { return reason_; }
    const PythonObjectHandle& origin() const { return origin_; }

    EventCount event_count;  // notified when it happens
    const MadeHere made;

private:
    enum class State : std::uint8_t { kPending, kDone, kPoisoned };
    bool end(State state, PythonObjectHandle reason, std::shared_ptr<Event> by);
    bool settle(State state, PythonObjectHandle reason, std::shared_ptr<Event> by, std::vector<Listener>& listeners);

    std::atomic<State> state_{State::kPending};
    std::mutex mutex_;  // listeners, callbacks, grants, and the change of state
    std::vector<Listener> listeners_;
    std::vector<PythonObjectHandle> callbacks_;
    bool calls_back_ = false;  // one of the listeners takes them
    std::vector<std::shared_ptr<Grant>> grants_;
    PythonObjectHandle origin_, reason_;  // written before the state changes
    std::shared_ptr<Event> poisoned_by_;
    mutable std::atomic<bool> retrieved_{false};
};

// Waits until `event` is done or `timeout_ns` (negative: no limit) has passed. False: a signal handler raised.
bool wait_until_done(Event& event, std::int64_t timeout_ns);

// Triggers `merged` when all of `events` have happened; poisons it if one is poisoned, unless told to ignore that.
void merge(const std::vector<std::shared_ptr<Event>>& events, bool ignore_poison, const std::shared_ptr<Event>& merged);

}  // namespace ostinato
