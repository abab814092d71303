// Parking: a slot that has polled in vain registers in every timeline its lanes wait for, and sleeps on its
// event_count.
#pragma once

#include <cstdint>
#include <mutex>

#include "lanes/machine.h"
#include "lanes/slot.h"

namespace ostinato {

// Guards all timelines' waiters. One for the process: parking is rare, and a timeline needs no pointer to its machine.
std::mutex& parking_mutex();

// The slot's worker is about to sleep. False: there is something to do after all, and the slot is awake again.
// The caller has read its event_count's epoch before. It sleeps for kStoresTakeNs at first; then, if it has not been
// notified, it looks again with `still_waits` before it sleeps for longer.
bool prepare_wait(Machine& machine, Slot& slot);

// Whether there is nothing to do for a slot that sleeps. For the thread that has the slot.
bool still_waits(Machine& machine, const Slot& slot);

// Until whoever has taken slots from a timeline has notified them. Before slots end, and before a fork.
void wait_for_notifiers();

// The slot has a worker again.
void cancel_wait(Machine& machine, Slot& slot);

// A suspended program, all of whose claims are held: whoever publishes what its lanes wait for resumes it. Both under
// the parking mutex.
void register_program(Program& program);
void unregister(Program& program);

// Before slots end that may be among the timeline's waiters still: not all that leave take themselves out.
void forget_waiters(Timeline& timeline);

// While some slot sleeps, one of `slot`'s lanes other than `chosen` may have work for it: notify it when the lane is
// ready, else have it notified when the lane will be.
void offer_lanes(Machine& machine, Slot& slot, const Lane* chosen);

// Whether a worker must look after the lane. A lane that waits for the next run needs no worker: the thread that
// submits the run notifies one.
bool is_under_way(const Lane& lane);

// Whether another slot may take over the unclaimed `lane`: its own slot sleeps, serves another lane, or is in a call.
bool may_take_over(const Machine& machine, const Lane& lane);

}  // namespace ostinato
