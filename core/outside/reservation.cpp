#include "outside/reservation.h"

#include <algorithm>
#include <utility>

namespace ostinato {

namespace {

void tell(const std::vector<std::shared_ptr<Event>>& granted) {
    for (const std::shared_ptr<Event>& event : granted)
        event->trigger();
}

}  // namespace

Reservation::Request Reservation::request(bool exclusive) {
    Request request{std::make_shared<Claim>(this, exclusive), std::make_shared<Event>()};
    request.granted->comes_after({request.claim});
    const std::lock_guard<std::mutex> lock(mutex_);
    request.claim->at = unreleased_.insert(unreleased_.end(), request.claim);
    return request;
}

void Reservation::enter(Request request, Told& told) {
    request.claim->state = State::kWaiting;
    queue_.push_back(std::move(request));
    grant(told);
}

void Reservation::grant(Told& told) {
    while (!queue_.empty() && (holders_ == 0 || !(exclusive_ || queue_.front().claim->exclusive))) {
        const Request next = std::move(queue_.front());
        queue_.pop_front();
        told.push_back(next.granted);
        if (next.claim->given_back) {
            next.claim->state = State::kGone;
            continue;
        }
        next.claim->state = State::kHeld;
        exclusive_ = next.claim->exclusive;
        ++holders_;
    }
}

void Reservation::give_back(Claim& claim, Told& told) {
    claim.given_back = true;
    if (claim.state != State::kHeld)
        return;
    claim.state = State::kGone;
    --holders_;
    grant(told);
}

void Reservation::unlist(Claim& claim) {
    if (claim.listed)
        unreleased_.erase(claim.at);
    claim.listed = false;
}

std::shared_ptr<Event> Reservation::acquire(bool exclusive) {
    Request mine = request(exclusive);
    std::shared_ptr<Event> granted = mine.granted;
    Told told;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        enter(std::move(mine), told);
    }
    tell(told);
    return granted;
}

std::shared_ptr<Event> Reservation::acquire(bool exclusive, Event& after) {
    const Request mine = request(exclusive);
    mine.granted->comes_after(after.grants());
    after.listen([self = shared_from_this(), mine](Event& happened) {
        Told told;
        {
            const std::lock_guard<std::mutex> lock(self->mutex_);
            if (happened.poisoned()) {
                mine.claim->state = State::kGone;
                self->unlist(*mine.claim);  // it stays open: the release that belongs to it is no other's
            } else {
                self->enter(mine, told);
            }
        }
        if (happened.poisoned())
            mine.granted->poison(happened.shared_from_this());
        tell(told);
    });
    return mine.granted;
}

bool Reservation::withdraw(const std::shared_ptr<Event>& granted) {
    Told told;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto at = std::find_if(queue_.begin(), queue_.end(),
                                     [&](const Request& waiting) { return waiting.granted == granted; });
        if (at == queue_.end())
            return false;
        at->claim->state = State::kGone;
        unlist(*at->claim);
        queue_.erase(at);
        grant(told);  // those behind it
    }
    tell(told);
    return true;
}

bool Reservation::release() {
    Told told;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto held = std::find_if(unreleased_.begin(), unreleased_.end(),
                                       [](const auto& claim) { return claim->state == State::kHeld; });
        if (held == unreleased_.end())
            return false;
        const std::shared_ptr<Claim> claim = *held;
        claim->open.store(false, std::memory_order_relaxed);
        unlist(*claim);
        give_back(*claim, told);
    }
    tell(told);
    return true;
}

bool Reservation::release(Event& after) {
    std::shared_ptr<Claim> claim;
    const std::vector<std::shared_ptr<Grant>> grants = after.grants();
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto meant = std::find_if(grants.begin(), grants.end(), [this](const std::shared_ptr<Grant>& grant) {
            return grant->open.load(std::memory_order_relaxed) && static_cast<const Claim&>(*grant).of == this;
        });
        if (meant != grants.end())
            claim = std::static_pointer_cast<Claim>(*meant);
        else if (!unreleased_.empty())
            claim = unreleased_.front();
        else
            return false;
        claim->open.store(false, std::memory_order_relaxed);
        unlist(*claim);
    }
    after.listen([self = shared_from_this(), claim](Event&) {
        Told told;
        {
            const std::lock_guard<std::mutex> lock(self->mutex_);
            self->give_back(*claim, told);
        }
        tell(told);
    });
    return true;
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
