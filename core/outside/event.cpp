#include "outside/event.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

namespace ostinato {

namespace {

// Events that have happened on this thread and whose listeners are still to be called. A listener may trigger further
// events: a chain of a million must not take a million frames.
struct Due {
    std::shared_ptr<Event> event;
    std::vector<Event::Listener> listeners;
};
thread_local std::deque<Due>* due = nullptr;

void tell(std::shared_ptr<Event> event, std::vector<Event::Listener> listeners) {
    if (listeners.empty())
        return;
    if (due != nullptr) {
        due->push_back({std::move(event), std::move(listeners)});
        return;
    }
    std::deque<Due> queue;
    due = &queue;
    queue.push_back({std::move(event), std::move(listeners)});
    while (!queue.empty()) {
        const Due next = std::move(queue.front());
        queue.pop_front();
        for (const Event::Listener& listener : next.listeners)
            listener(*next.event);
    }
    due = nullptr;
}

// Listeners of events that ended without happening. They may hold the last reference to further events: that must not
// take a frame each, either.
thread_local std::vector<std::vector<Event::Listener>>* dropped = nullptr;

void drop(std::vector<Event::Listener> listeners) {
    if (listeners.empty())
        return;
    if (dropped != nullptr) {
        dropped->push_back(std::move(listeners));
        return;
    }
    std::vector<std::vector<Event::Listener>> pile;
    dropped = &pile;
    pile.push_back(std::move(listeners));
    while (!pile.empty()) {
        const std::vector<Event::Listener> next = std::move(pile.back());
        pile.pop_back();
    }
    dropped = nullptr;
}

}  // namespace

Event::~Event() { drop(std::move(listeners_)); }

std::shared_ptr<Event> Event::happened() {
    auto event = std::make_shared<Event>();
    event->state_.store(State::kDone, std::memory_order_relaxed);
    return event;
}

bool Event::poison(const std::shared_ptr<Event>& other) {
    return end(State::kPoisoned, {}, other->poisoned_by_ ? other->poisoned_by_ : other);
}

bool Event::settle(State state, PythonObjectHandle reason, std::shared_ptr<Event> by,
                   std::vector<Listener>& listeners) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (done())
        return false;
    reason_ = std::move(reason);
    poisoned_by_ = std::move(by);
    state_.store(state, std::memory_order_release);
    listeners.swap(listeners_);
    return true;
}

std::vector<Event::Listener> Event::settle(bool poisoned, std::shared_ptr<Event> by) {
    std::vector<Listener> listeners;
    // The source itself, so that a chain of poisoned events is as short to explain as one, and keeps no links alive.
    if (!poisoned)
        by.reset();
    else if (by && by->poisoned_by_)
        by = by->poisoned_by_;
    (void)settle(poisoned ? State::kPoisoned : State::kDone, {}, std::move(by), listeners);
    return listeners;
}

void Event::announce(std::vector<Listener> listeners) {
    event_count.notify();
    tell(shared_from_this(), std::move(listeners));
}

bool Event::end(State state, PythonObjectHandle reason, std::shared_ptr<Event> by) {
    std::vector<Listener> listeners;
    if (!settle(state, std::move(reason), std::move(by), listeners))
        return false;
    announce(std::move(listeners));
    return true;
}

bool Event::call_back(PythonObjectHandle callback, CallbackListener listener) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (done())
        return false;
    callbacks_.push_back(std::move(callback));
    if (!std::exchange(calls_back_, true))
        listeners_.push_back([listener](Event& event) { listener(std::move(event.callbacks_)); });
    return true;
}

PythonObjectHandle Event::withdraw(const std::function<bool(const PythonObjectHandle&)>& matches) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (done())
        return {};
    const auto at = std::find_if(callbacks_.rbegin(), callbacks_.rend(), matches);
    if (at == callbacks_.rend())
        return {};
    PythonObjectHandle callback = std::move(*at);
    callbacks_.erase(std::next(at).base());
    return callback;
}

void Event::listen(Listener listener) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!done())
            return listeners_.push_back(std::move(listener));
    }
    tell(shared_from_this(), {std::move(listener)});
}

void Event::comes_after(const std::vector<std::shared_ptr<Grant>>& grants) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const std::shared_ptr<Grant>& grant : grants) {  // each once: it may come by several ways
        if (grant->open.load(std::memory_order_relaxed) &&
            std::find(grants_.begin(), grants_.end(), grant) == grants_.end())
            grants_.push_back(grant);
    }
}

std::vector<std::shared_ptr<Grant>> Event::grants() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return grants_;
}

void merge(const std::vector<std::shared_ptr<Event>>& events, bool ignore_poison,
           const std::shared_ptr<Event>& merged) {
    const auto left = std::make_shared<std::atomic<std::size_t>>(events.size() + 1);
    const auto one_less = [left, merged] {
        if (left->fetch_sub(1, std::memory_order_acq_rel) == 1)
            merged->trigger();
    };
    const auto happened = [one_less, merged, ignore_poison](Event& event) {
        if (event.poisoned() && !ignore_poison)
            merged->poison(event.shared_from_this());
        one_less();
    };
    for (const std::shared_ptr<Event>& event : events) {
        merged->comes_after(event->grants());
        if (event->done())
            happened(*event);
        else
            event->listen(happened);
    }
    one_less();
}

}  // namespace ostinato
