#pragma once

#include <memory>
#include <stdexcept>

#include "lanes/machine.h"
#include "program/program.h"

namespace ostinato {

// A run as Python holds it.
struct RunHandle {
    std::shared_ptr<Program> program;
    std::shared_ptr<Run> run;
};

// Of a run or a program.
inline void refuse_after_fork(const Machine& machine) {
    if (machine.forked())
        throw std::runtime_error("this process was forked after the machine was made; make a Machine in the child");
}

}  // namespace ostinato
