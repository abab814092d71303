// Parking: a seat that has polled in vain registers in every timeline its lanes wait for, and sleeps on its doorbell.
#pragma once

#include <cstdint>
#include <mutex>

#include "lanes/machine.h"
#include "lanes/seat.h"

namespace ostinato {

// Guards all timelines' waiters. One for the process: parking is rare, and a timeline needs no pointer to its machine.
std::mutex& parking_mutex();

// The seat's server is about to sleep. False: there is something to do after all, and the seat is awake again.
// The caller has read its doorbell's ticket before.
bool fall_asleep(Machine& machine, Seat& seat);

// Until whoever has taken seats from a timeline has rung them. Before seats end, and before a fork.
void wait_for_ringers();

// The seat has a server again.
void wake_up(Machine& machine, Seat& seat);

// A suspended program, all of whose claims are held: whoever publishes what its lanes wait for resumes it. Both under
// the parking mutex.
void register_program(Program& program);
void unregister(Program& program);

// Before seats end that may be among the timeline's waiters still: not all that leave take themselves out.
void forget_waiters(Timeline& timeline);

// While some seat sleeps, one of `seat`'s lanes other than `chosen` may have work for it: ring it when the lane is
// ready, else have it rung when the lane will be.
void offer_lanes(Machine& machine, Seat& seat, const Lane* chosen);

// Whether another seat may take over the unclaimed `lane`: its own seat sleeps, serves another lane, or is in a call.
bool may_take_over(const Machine& machine, const Lane& lane);

}  // namespace ostinato
