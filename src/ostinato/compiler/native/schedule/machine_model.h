#pragma once

namespace ostinato::passes {

// What threads pay for working together, in seconds.
struct MachineModel {
    double transfer;  // of a cache line from one core to another
    double look;      // at another lane's timeline that has long reached the value
    double take_up;   // from an op of one lane to one of another
    double wake;      // from ringing a thread that sleeps until it runs
    double ring = 0;  // of that, what the thread that rings is busy for
};

}  // namespace ostinato::passes
