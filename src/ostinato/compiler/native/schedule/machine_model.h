#pragma once

namespace ostinato::passes {

// What threads pay for working together, in seconds.
struct MachineModel {
    double transfer;    // of a cache line from one core to another
    double poll;        // at another lane's timeline that has long reached the value
    double switch_;     // from an op of one lane to one of another
    double wake;        // from notifying a thread that sleeps until it runs
    double notify = 0;  // of that, what the thread that notifies is busy for
};

}  // namespace ostinato::passes
