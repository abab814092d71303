// What a spawned call holds of Python, for the files that know Python's headers.
#pragma once

#include "outside/spawned.h"
#include "python/plan.h"

namespace ostinato {

class SpawnedBody {
public:
    PythonReference function, arguments, context;  // until it has been called; `arguments` is a tuple
    PythonReference result, exception;             // one of them, then
    PythonReference callback;                      // called with no arguments when the call has ended
};

}  // namespace ostinato
