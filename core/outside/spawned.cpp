#include "outside/spawned.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "lanes/machine.h"
#include "python/ops.h"
#include "python/thread.h"

namespace ostinato {

bool ReadyCalls::Front::before(const Front& other) const {
    if (call == nullptr || other.call == nullptr)
        return call != nullptr;
    if (due != other.due)
        return due;
    if (call->priority != other.call->priority && !due)
        return call->priority > other.call->priority;
    return call->ready_since < other.call->ready_since;
}

bool ReadyCalls::Level::due(std::int64_t now) const {
    return now < turn_ends || now - std::max(last_served, calls.front()->ready_since) > kPassedOverNs;
}

void ReadyCalls::add(const std::shared_ptr<SpawnedCall>& call) {
    CallList& calls = levels_[call->priority].calls;
    calls.push_back(call);
    call->ready = std::prev(calls.end());
    size.fetch_add(1, std::memory_order_relaxed);
}

std::shared_ptr<SpawnedCall> ReadyCalls::remove(SpawnedCall& call) {
    const auto level = levels_.find(call.priority);
    std::shared_ptr<SpawnedCall> held = std::move(*call.ready);
    level->second.calls.erase(call.ready);
    if (level->second.calls.empty())
        levels_.erase(level);
    size.fetch_sub(1, std::memory_order_relaxed);
    return held;
}

ReadyCalls::Front ReadyCalls::front(std::int64_t now) const {
    Front best;
    for (const auto& [priority, level] : levels_) {
        const Front here{level.calls.front().get(), level.due(now)};
        if (here.before(best))
            best = here;
    }
    return best;
}

void ReadyCalls::begin_turn(const Front& front, std::int64_t now) {
    Level& level = levels_.find(front.call->priority)->second;
    if (front.due && now >= level.turn_ends)
        level.turn_ends = now + kTurnNs;
    level.last_served = now;
}

void ReadyCalls::served(std::int32_t priority, std::int64_t now) {
    const auto level = levels_.find(priority);
    if (level != levels_.end())
        level->second.last_served = now;
}

ReadyCalls& SpawnedCalls::queue_of(const SpawnedCall& call) {
    return call.slot == kAnySlot ? unbound_ : bound_[static_cast<std::size_t>(call.slot)];
}

void SpawnedCalls::spawn(const std::shared_ptr<SpawnedCall>& call, const std::shared_ptr<Event>& after) {
    if (after)
        call->grants = after->grants();
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (refusing_)
            throw std::runtime_error("this machine is closed");
        call->in_flight = in_flight_.insert(in_flight_.end(), call);
        n_in_flight_.fetch_add(1, std::memory_order_relaxed);
    }
    if (after)
        after->listen([this, call](Event& event) { make_ready(call, &event); });
    else
        make_ready(call, nullptr);
}

void SpawnedCalls::refuse() {
    const std::lock_guard<std::mutex> lock(mutex_);
    refusing_ = true;
}

void SpawnedCalls::make_ready(const std::shared_ptr<SpawnedCall>& call, Event* after) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (call->state != State::kWaiting)
            return;  // cancelled
        if (after != nullptr && after->poisoned()) {
            call->poisoned_by = after->shared_from_this();
            call->state = State::kEnded;
        } else if (call->blocking) {
            call->state = State::kTaken;
        } else {
            call->state = State::kReady;
            call->ready_since = monotonic_ns();
            habit_.submitted(call->slot == kAnySlot && !at_hand() && short_at(call->function) == call->function);
            at_hand_.fetch_add(1, std::memory_order_relaxed);
            queue_of(*call).add(call);
        }
    }
    if (call->poisoned_by)
        finish(*call);
    else if (call->blocking)
        machine_.blocking_pool().run([this, call](PythonThread& python) {
            call->floating_point.apply();
            run(*call, python);
            finish(*call);
        });
    else
        machine_.notify_for(*call);
}

bool SpawnedCalls::cancel(SpawnedCall& call) {
    std::shared_ptr<SpawnedCall> held;  // beyond the lock
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (call.state == State::kEnded)
            return false;
        call.cancelled = true;
        call.waits_are_over.store(true, std::memory_order_relaxed);
        if (call.state == State::kRunning || call.state == State::kTaken)
            return true;  // whoever has taken it finds it cancelled
        if (call.state == State::kReady) {
            held = queue_of(call).remove(call);
            at_hand_.fetch_sub(1, std::memory_order_relaxed);
        }
        call.state = State::kEnded;
    }
    finish(call);
    return true;
}

void SpawnedCalls::run(SpawnedCall& call, PythonThread& python) {
    python.acquire();  // first: until it has begun it can be cancelled
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        call.begun = !call.cancelled;
        call.state = State::kRunning;
    }
    bool raised = false;
    if (call.begun) {
        const EndingWaits ending(call.waits_are_over);  // no others can wait
        raised = !call_body(call, python);
    }
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        call.raised = raised;
        call.state = State::kEnded;
        if (!call.blocking) {
            queue_of(call).served(call.priority, monotonic_ns());
            at_hand_.fetch_sub(1, std::memory_order_relaxed);
        }
    }
}

void SpawnedCalls::finish(SpawnedCall& call) {
    std::shared_ptr<SpawnedCall> held;
    std::shared_ptr<Event> end;
    std::vector<Event::Listener> listeners;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        end = std::move(call.end);
        if (end)
            listeners = end->settle(call.bad(), call.poisoned_by);
        held = std::move(*call.in_flight);
        in_flight_.erase(call.in_flight);
        if (call.wants_callback || !call.begun) {
            // Before it is done: then the machine can be closed, and its own thread end.
            machine_.do_soon([this, held](PythonThread& python) {
                (void)state_of(*held);  // waits for the mutex: it is done when it is told to be
                put_away(*held, python);
            });
        }
        call.done.store(true, std::memory_order_release);
    }
    call.finished.notify();
    if (end)
        end->announce(std::move(listeners));
    if (n_in_flight_.fetch_sub(1, std::memory_order_acq_rel) == 1)
        machine_.close_if_forgotten();
}

std::shared_ptr<Event> SpawnedCalls::end_of(SpawnedCall& call, PythonObjectHandle origin) {
    const auto event = std::make_shared<Event>(std::move(origin));
    event->comes_after(call.grants);
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (call.end)
            return call.end;
        if (!call.done.load(std::memory_order_relaxed))
            return call.end = event;
    }
    event->announce(event->settle(call.bad(), call.poisoned_by));
    return event;
}

bool SpawnedCalls::want_callback(SpawnedCall& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (call.done.load(std::memory_order_relaxed))
        return false;
    call.wants_callback = true;
    return true;
}

SpawnedCall::State SpawnedCalls::state_of(SpawnedCall& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return call.state;
}

std::vector<std::shared_ptr<SpawnedCall>> SpawnedCalls::in_flight() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return {in_flight_.begin(), in_flight_.end()};
}

ReadyCalls::Front SpawnedCalls::front_locked(std::uint32_t slot, bool unbound, std::int64_t now) {
    const ReadyCalls::Front own = bound_[slot].front(now);
    if (!unbound)
        return own;
    const ReadyCalls::Front any = unbound_.front(now);
    return any.before(own) ? any : own;
}

std::optional<std::int32_t> SpawnedCalls::most_urgent(std::uint32_t slot, bool unbound, std::int64_t now) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const ReadyCalls::Front front = front_locked(slot, unbound, now);
    return front.call == nullptr ? std::nullopt : std::optional(front.call->priority);
}

bool SpawnedCalls::begin_wait(SpawnedCall& call) {
    const std::int64_t now = monotonic_ns();
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool alone = habit_.begin_wait(now);
    return alone && call.state == State::kReady && short_at(call.function) == call.function;
}

void SpawnedCalls::end_wait(SpawnedCall& call, std::int64_t ns) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const void*& known = short_at(call.function);
    if (ns < Habit::kShortNs)
        known = call.function;
    else if (known == call.function)
        known = nullptr;
    habit_.end_wait(ns);
}

std::shared_ptr<SpawnedCall> SpawnedCalls::take_only(SpawnedCall& call, std::uint32_t slot, std::int64_t now) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const ReadyCalls::Front front = front_locked(slot, true, now);
    if (front.call != &call || unbound_.size.load(std::memory_order_relaxed) != 1)
        return nullptr;
    ReadyCalls& queue = queue_of(call);
    queue.begin_turn(front, now);
    call.state = State::kTaken;
    return queue.remove(call);
}

std::shared_ptr<SpawnedCall> SpawnedCalls::take(std::uint32_t slot, bool unbound, std::int64_t at_least,
                                                std::int64_t now) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const ReadyCalls::Front front = front_locked(slot, unbound, now);
    if (front.call == nullptr || (!front.due && front.call->priority < at_least))
        return nullptr;
    ReadyCalls& queue = queue_of(*front.call);
    queue.begin_turn(front, now);
    front.call->state = State::kTaken;
    return queue.remove(*front.call);
}

}  // namespace ostinato
