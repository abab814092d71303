// A reservation: a lock with exclusive and shared holders, granted by events, first come, first served.
//
// A release that comes after something may be due before its request is granted (what was to hold it was cancelled), or
// when its request was poisoned and holds nothing; it must not give back what somebody else holds. So it belongs to one
// request from the start: to the one whose grant its event comes after (Event::grants), else to the oldest
// without.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "outside/event.h"
#include "park/forks.h"

namespace ostinato {

class Reservation : public std::enable_shared_from_this<Reservation> {
public:
    // The event happens when the request is granted: to requests in their order, neighbouring shared ones together.
    std::shared_ptr<Event> acquire(bool exclusive);
    // The same when `after` has happened; if that is poisoned, so is the grant, and nothing is held.
    std::shared_ptr<Event> acquire(bool exclusive, Event& after);
    // Takes back a request that is not granted. False: it is granted.
    bool withdraw(const std::shared_ptr<Event>& request);
    // False: nobody holds it, or only those that have a release to come.
    bool release();
    // The same when `after` is done, poisoned or not. False: there is no request without a release.
    bool release(Event& after);

    std::uint64_t holders();
    std::uint64_t waiting();

    const MadeHere made;

private:
    enum class State : std::uint8_t { kDeferred, kWaiting, kHeld, kGone };
    struct Claim : Grant {
        Claim(const Reservation* reservation, bool is_exclusive) : of(reservation), exclusive(is_exclusive) {}
        const Reservation* const of;
        const bool exclusive;
        State state = State::kDeferred;
        bool given_back = false;                         // its release came before its grant
        bool listed = true;                              // in unreleased_
        std::list<std::shared_ptr<Claim>>::iterator at;  // there
    };
    struct Request {
        std::shared_ptr<Claim> claim;
        std::shared_ptr<Event> granted;
    };
    using Told = std::vector<std::shared_ptr<Event>>;

    Request request(bool exclusive);
    // Under the mutex; `told` takes the events to be triggered without it.
    void enter(Request request, Told& told);
    void grant(Told& told);
    void give_back(Claim& claim, Told& told);
    void unlist(Claim& claim);

    std::mutex mutex_;
    std::deque<Request> queue_;
    // Those that hold or are to hold and have no release to come, in the order of their requests.
    std::list<std::shared_ptr<Claim>> unreleased_;
    std::uint64_t holders_ = 0;
    bool exclusive_ = false;  // how it is held
};

}  // namespace ostinato
