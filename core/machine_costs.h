// What threads of this machine pay for working together, measured with the parts that programs run on.
#pragma once

namespace ostinato {

// Seconds; less than 0 where it could not be measured, because the threads never ran at the same time.
struct MachineCosts {
    double transfer = -1.0;  // from a publish on one core until a thread that polls on another goes on
    double look = -1.0;      // at a timeline that another core has moved on since, and that has reached the value
    double take_up = -1.0;   // of a lane that a thread on another core held last, beside the transfer
    double wake = -1.0;      // from ringing a thread that sleeps until it runs
};

// Measures with two threads of its own, pinned to the two cores where the system allows that. Takes some milliseconds,
// and a limited time at most. After the first machine was made, which decides on fences.
MachineCosts measure_machine(int first_core, int second_core);

}  // namespace ostinato
