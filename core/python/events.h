// Events that run Python code, on one thread of the process: it starts with the first callback that has to wait, and
// ends before the interpreter does.
#pragma once

#include "outside/event.h"

namespace ostinato {

// Calls `function` with no arguments, on that thread, when `event` happens. False: it has. Throws std::runtime_error
// when there can be no such thread. The GIL is held.
bool call_back(Event& event, PythonObjectHandle function);

// Before the interpreter ends, without the GIL: callbacks that are due are run, later ones never.
void end_callbacks();

}  // namespace ostinato
