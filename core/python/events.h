// Events that run Python code, and barriers that combine Python values. The thread that events are called back on is
// one for the process: it starts with the first callback that has to wait, and ends before the interpreter does.
#pragma once

#include <cstdint>
#include <memory>

#include "outside/barrier.h"
#include "outside/event.h"
#include "program/plan.h"
#include "program/run.h"

namespace ostinato {

// Calls `function` with no arguments, on that thread, when `event` happens. False: it has. Throws std::runtime_error
// when there can be no such thread. The GIL is held.
bool call_back(Event& event, PythonObjectHandle function);

// Before the interpreter ends, without the GIL: callbacks that are due are run, later ones never.
void end_callbacks();

enum class Arrival : std::uint8_t { kArrived, kExcess, kRaised };

// Combines `value` (a PyObject, borrowed) into what `phase` has come to, and makes `count` arrivals. Nothing has
// arrived when they are too many, or when combining raised: then `failure` has the exception. The GIL is held.
Arrival arrive_with_value(Barrier& barrier, std::uint64_t phase, std::uint64_t count, Attendance* attendance,
                          void* value, ExceptionHandle& failure);
// The same for arrivals that were promised; never kExcess.
Arrival keep_with_value(Barrier& barrier, std::uint64_t phase, std::uint64_t count, void* value,
                        ExceptionHandle& failure);

}  // namespace ostinato
