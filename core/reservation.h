// A reservation: a lock with exclusive and shared holders, granted by events, first come, first served.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "event.h"

namespace ostinato {

class Reservation {
public:
    // The event happens when the request is granted: to requests in their order, neighbouring shared ones together.
    std::shared_ptr<Event> acquire(bool exclusive);
    // Takes back a request that is not granted. False: it is granted.
    bool withdraw(const std::shared_ptr<Event>& request);
    // False: nobody holds it.
    bool release();

    std::uint64_t holders();
    std::uint64_t waiting();

private:
    struct Request {
        std::shared_ptr<Event> granted;
        bool exclusive;
    };
    std::mutex mutex_;  // grants are told after it is let go
    std::deque<Request> queue_;
    std::uint64_t holders_ = 0;
    bool exclusive_ = false;  // how it is held
};

}  // namespace ostinato
