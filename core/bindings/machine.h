#pragma once

#include <memory>

#include "lanes/machine.h"

namespace ostinato {

// What Python holds: its end tells the threads to end once all runs have, and does not wait for them.
struct MachineHandle {
    std::shared_ptr<Machine> machine;
    ~MachineHandle() {
        if (!machine)
            return;
        if (machine->forked())
            machine->abandon();
        else
            machine->forget();
    }
};

}  // namespace ostinato
