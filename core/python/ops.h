// Python tasks: the bodies of plans and of spawned calls that are Python callables. Only core/python and the bindings
// know Python's headers.
#pragma once

#include <cstdint>

#include "lanes/lane.h"
#include "lanes/worker.h"
#include "program/run.h"

namespace ostinato {

// Calls the operations at positions [begin, end) of `lane`. Returns the position after the last one that ran;
// `failure` holds the exception when that one raised.
std::uint32_t call_python(Worker& worker, Lane& lane, std::uint32_t begin, std::uint32_t end, std::uint64_t user_step,
                          ExceptionHandle& failure);

// Puts the run's parameter objects into the arguments of the lane's Python operations.
void apply_python_parameters(Worker& worker, Lane& lane);

// Gives `to` a Python side of its own, equal to that of `from`. With the GIL.
void copy_python(const Plan& from, Plan& to);

// Calls the run's callback, on the machine's own thread.
void run_callbacks(Run& run, PythonThread& python);

// Calls the machine's `init` function, which a new worker does first.
void initialise_thread(Machine& machine, PythonThread& python);

// Calls the body of `call`, in its context; lets go of what it was called with. False: it raised. The GIL is held.
bool call_body(SpawnedCall& call, PythonThread& python);

// On the machine's own thread, when `call` has ended: runs its callback, and lets go of what it was to be called with.
void put_away(SpawnedCall& call, PythonThread& python);

}  // namespace ostinato
