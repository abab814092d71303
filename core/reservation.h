// A reservation: a lock with exclusive and shared holders, granted by events, first come, first served.
//
// Holders are counted, not known by name. So every acquire is paired with one release, and where an acquire takes
// nothing, because what it was to come after is poisoned, the poisoned release that belongs to it must not give back
// what somebody else holds: `void_` counts those.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "event.h"
#include "forks.h"

namespace ostinato {

class Reservation : public std::enable_shared_from_this<Reservation> {
public:
    // The event happens when the request is granted: to requests in their order, neighbouring shared ones together.
    std::shared_ptr<Event> acquire(bool exclusive);
    // The same when `after` has happened; if that is poisoned, so is the grant, and nothing is held.
    std::shared_ptr<Event> acquire(bool exclusive, Event& after);
    // Takes back a request that is not granted. False: it is granted.
    bool withdraw(const std::shared_ptr<Event>& request);
    // False: nobody holds it, or only those whose release has been promised.
    bool release();
    // The same when `after` has happened, poisoned or not. False: there is neither a holder nor a request to release.
    bool release(Event& after);

    std::uint64_t holders();
    std::uint64_t waiting();

    const MadeHere made;

private:
    struct Request {
        std::shared_ptr<Event> granted;
        bool exclusive;
    };
    using Granted = std::vector<std::shared_ptr<Event>>;
    // All under the mutex; grants are told after it is let go.
    std::uint64_t claims() const { return holders_ + queue_.size() + deferred_; }
    void grant(Granted& granted);
    void enter(std::shared_ptr<Event> request, bool exclusive);  // takes the mutex
    void give_back(bool poisoned);                               // likewise: a promised release

    std::mutex mutex_;
    std::deque<Request> queue_;
    std::uint64_t holders_ = 0;
    bool exclusive_ = false;      // how it is held
    std::uint64_t deferred_ = 0;  // requests that come after something
    std::uint64_t promised_ = 0;  // releases that do
    std::uint64_t owed_ = 0;      // releases that came before the grant of what they release
    std::uint64_t void_ = 0;      // requests that were poisoned, and whose releases may be still to come
};

}  // namespace ostinato
