#pragma once

namespace ostinato::passes {

// What threads pay for working together, in seconds.
struct MachineModel {
    double transfer;  // of a cache line from one core to another
    double look;      // at another lane's timeline that has long reached the value
    double take_up;   // of a lane that another thread served last
    double wake;      // from ringing a thread that sleeps until it runs
};

}  // namespace ostinato::passes
