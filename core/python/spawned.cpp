#include "python/spawned.h"

#include "python/spawned_body.h"
#include "python/thread.h"

namespace ostinato {

namespace {

void let_go(SpawnedBody& body) {
    body.function = PythonReference();
    body.arguments = PythonReference();
    body.context = PythonReference();
}

}  // namespace

void SpawnedBodyDeleter::operator()(SpawnedBody* body) const {
    const LockPython lock;
    if (lock.usable)
        delete body;
}

bool call_body(SpawnedCall& call, PythonThread& python) {
    SpawnedBody& body = *call.body;
    python.enter(body.context.get());
    PyObject* result = nullptr;
    {
        const InTask here(python, &call);
        StaysInCall stays;
        result = PyObject_CallObject(body.function.get(), body.arguments.get());
        stays.returned();
    }
    if (result == nullptr)
        body.exception = std::move(take_exception()->exception);
    body.result = PythonReference(result);
    Py_XDECREF(result);
    python.enter(nullptr);
    let_go(body);
    return result != nullptr;
}

void put_away(SpawnedCall& call, PythonThread& python) {
    python.acquire();
    SpawnedBody& body = *call.body;
    let_go(body);
    if (call.wants_callback) {
        const PythonReference callback = std::move(body.callback);
        call_or_tell(callback.get());
    }
    python.release();
}

}  // namespace ostinato
