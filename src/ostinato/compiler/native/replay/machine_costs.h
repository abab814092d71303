// What threads of this machine pay for working together, measured with the parts that programs run on.
#pragma once

#include "lanes/machine.h"
#include "ostinato.h"

namespace ostinato {

// Seconds; less than 0 where it could not be measured, because the threads never ran at the same time.
struct MachineCosts {
    double transfer = -1.0;  // from a publish on one core until a thread that polls on another goes on
    double poll = -1.0;      // at a timeline that another core has moved on since, and that has reached the value
    double switch_ = -1.0;   // from an operation of one lane to one of another, which another core served last
    double wake = -1.0;      // from notifying a thread that sleeps until it runs
    double notify = -1.0;    // of that, what the thread that notifies is busy for
};

// Measures on the first slot of `machine`, and with two threads of its own, pinned to the two cores where the system
// allows that. Takes some milliseconds, and a limited time at most.
MachineCosts measure_machine(Machine& machine, int first_core, int second_core);

// A native task that does nothing.
std::int32_t nothing(const ost_call*);

}  // namespace ostinato
