// The Python side of spawned calls. Only python/spawned.cpp and the bindings look inside.
#pragma once

#include "outside/spawned.h"

namespace ostinato {

// Calls the body of `call`, in its context; lets go of what it was called with. False: it raised. The GIL is held.
bool call_body(SpawnedCall& call, PythonThread& python);

// On the machine's own thread, when `call` has ended: runs its callback, and lets go of what it was to be called with.
void put_away(SpawnedCall& call, PythonThread& python);

}  // namespace ostinato
