#include "reservation.h"

#include <algorithm>
#include <utility>

namespace ostinato {

namespace {

void tell(const std::vector<std::shared_ptr<Event>>& granted) {
    for (const std::shared_ptr<Event>& event : granted)
        event->trigger();
}

}  // namespace

void Reservation::grant(Granted& granted) {
    for (;;) {
        while (!queue_.empty() && (holders_ == 0 || !(exclusive_ || queue_.front().exclusive))) {
            ++holders_;
            exclusive_ = queue_.front().exclusive;
            granted.push_back(std::move(queue_.front().granted));
            queue_.pop_front();
        }
        if (owed_ == 0 || holders_ == 0)
            return;
        --owed_;
        --holders_;
    }
}

void Reservation::enter(std::shared_ptr<Event> request, bool exclusive) {
    Granted granted;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        queue_.push_back({std::move(request), exclusive});
        grant(granted);
    }
    tell(granted);
}

std::shared_ptr<Event> Reservation::acquire(bool exclusive) {
    auto request = std::make_shared<Event>();
    enter(request, exclusive);
    return request;
}

std::shared_ptr<Event> Reservation::acquire(bool exclusive, Event& after) {
    auto request = std::make_shared<Event>();
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        ++deferred_;
    }
    after.listen([self = shared_from_this(), request, exclusive](Event& happened) {
        Granted granted;
        {
            const std::lock_guard<std::mutex> lock(self->mutex_);
            --self->deferred_;
            if (!happened.poisoned()) {
                self->queue_.push_back({request, exclusive});
                self->grant(granted);
            } else if (self->owed_ > self->claims()) {
                --self->owed_;  // its release has been
            } else {
                ++self->void_;
            }
        }
        if (happened.poisoned())
            request->poison(happened.shared_from_this());
        tell(granted);
    });
    return request;
}

bool Reservation::withdraw(const std::shared_ptr<Event>& request) {
    Granted granted;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto at = std::find_if(queue_.begin(), queue_.end(),
                                     [&](const Request& waiting) { return waiting.granted == request; });
        if (at == queue_.end())
            return false;
        queue_.erase(at);
        grant(granted);  // those behind it
    }
    tell(granted);
    return true;
}

bool Reservation::release() {
    Granted granted;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (holders_ == 0 || claims() + void_ <= promised_ + owed_)
            return false;
        --holders_;
        grant(granted);
    }
    tell(granted);
    return true;
}

bool Reservation::release(Event& after) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (claims() + void_ <= promised_ + owed_)
            return false;
        ++promised_;
    }
    after.listen([self = shared_from_this()](Event& happened) { self->give_back(happened.poisoned()); });
    return true;
}

void Reservation::give_back(bool poisoned) {
    Granted granted;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        --promised_;
        if (void_ > 0 && (poisoned || claims() == 0)) {
            --void_;
        } else if (claims() > owed_) {
            ++owed_;
            grant(granted);
        }
    }
    tell(granted);
}

std::uint64_t Reservation::holders() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return holders_;
}

std::uint64_t Reservation::waiting() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return queue_.size();
}

}  // namespace ostinato
