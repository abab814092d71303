#include "python/device.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "lanes/worker.h"
#include "program/program.h"
#include "python/ops.h"
#include "python/plan.h"
#include "python/recording.h"

namespace ostinato {

namespace {

// Drops the lock for a scope, if this thread holds it: drivers may wait for a thread that wants it.
class WithoutPython {
public:
    WithoutPython() : state_(PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}
    ~WithoutPython() {
        if (state_ != nullptr)
            PyEval_RestoreThread(state_);
    }
    WithoutPython(const WithoutPython&) = delete;
    WithoutPython& operator=(const WithoutPython&) = delete;

private:
    PyThreadState* const state_;
};

thread_local const DevicePlan* issuing = nullptr;  // what the calling thread issues an operation of

class Issuing {
public:
    explicit Issuing(const DevicePlan& plan) { issuing = &plan; }
    ~Issuing() { issuing = nullptr; }
    Issuing(const Issuing&) = delete;
    Issuing& operator=(const Issuing&) = delete;
};

// In a forked child the driver's threads are nowhere, and its locks may be held for ever: no call is made there.
template <class T>
void leak(T&& made_in_the_parent) {
    (void)new std::remove_cvref_t<T>(std::forward<T>(made_in_the_parent));
}

PyObject* make_error(const std::string& text, const std::string& device, bool usable) {
    PyObject* const errors = PyImport_ImportModule("ostinato.errors");
    PyObject* const type = errors != nullptr ? PyObject_GetAttrString(errors, "DeviceError") : nullptr;
    PyObject* const error = type != nullptr ? PyObject_CallFunction(type, "s", text.c_str()) : nullptr;
    PyObject* const name = error != nullptr ? PyUnicode_FromString(device.c_str()) : nullptr;
    if (name != nullptr && PyObject_SetAttrString(error, "device", name) == 0)
        (void)PyObject_SetAttrString(error, "usable", usable ? Py_True : Py_False);
    Py_XDECREF(name);
    Py_XDECREF(type);
    Py_XDECREF(errors);
    return error;
}

// With the GIL.
std::string words_of(const RaisedException& raised) {
    PyObject* const exception = raised.exception.get();
    std::string words = Py_TYPE(exception)->tp_name;
    words.erase(0, words.rfind('.') + 1);
    PyObject* const text = PyObject_Str(exception);
    const char* const said = text != nullptr ? PyUnicode_AsUTF8(text) : nullptr;
    if (said != nullptr && *said != '\0')
        words += std::string(": ") + said;
    Py_XDECREF(text);
    PyErr_Clear();
    return words;
}

}  // namespace

Stream::~Stream() {
    if (made.forked()) {
        leak(std::move(device));
        return;
    }
    const WithoutPython unlocked;
    device->close(handle);
    device.reset();
}

DevicePlan::~DevicePlan() {
    if (made.forked()) {
        leak(std::move(writing_back));
        leak(std::move(traced));
        leak(std::move(segments));
        leak(std::move(ops));
        leak(std::move(streams));
        return;
    }
    const WithoutPython unlocked;
    writing_back.clear();
    traced.clear();
    segments.clear();
    ops.clear();
    streams.clear();
}

void RecordingStreamsDeleter::operator()(RecordingStreams* streams) const {
    const LockPython lock;
    if (lock.usable)
        delete streams;
}

ExceptionHandle device_error(Worker& worker, const Stream& stream, const Told& told) {
    worker.python.release();
    const Device::Diagnosis diagnosis = stream.device->diagnose(told.code);
    const bool usable = diagnosis.usable && told.ended;
    std::string text = stream.name + ": " + diagnosis.message;
    if (!told.ended)
        text += "; waiting for its work failed too, so it may still be writing to arrays of the program";
    if (!usable)
        text += "; it cannot be used any more by this process";
    worker.python.acquire();
    PyObject* const error = make_error(text, stream.name, usable);
    if (error != nullptr) {
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
        Py_DECREF(error);
    }
    ExceptionHandle taken = take_exception();
    worker.python.release();
    return taken;
}

void call_issuing(Worker& worker, Lane& lane, std::uint32_t position, std::uint64_t user_step,
                  ExceptionHandle& failure) {
    const Issuing here(*lane.run->plan->device);
    call_python(worker, lane, position, position + 1, user_step, failure);
}

bool issues_for(std::uint64_t low, std::uint64_t high) {
    return issuing != nullptr && std::any_of(issuing->memory.begin(), issuing->memory.end(), [=](const auto& range) {
               return low < range.second && range.first < high;
           });
}

bool call_recording(Worker& worker, Lane& lane, std::uint32_t position, StreamHandle recording, std::string& raised) {
    worker.python.acquire();
    Run& run = *lane.run;
    worker.python.enter(run.python ? run.python->context_of(lane.index) : nullptr);
    PythonPlan& plan = *run.plan->python;
    const std::uint32_t number = plan.index[lane.order->first + position];
    const PythonOp& op = plan.ops[number];
    const std::uint32_t phase = lane.phase[op.period_class];
    RecordingStreams& streams = *run.plan->device->recording;
    const RecordingStreams::Body& body = streams.bodies.at(number);
    PyObject* const stream = streams.get(body, recording);
    PyObject* result = nullptr;
    if (stream != nullptr) {
        PyObject** const own = &plan.arguments[op.first + phase * (op.n_arguments + 1)];
        PyObject* usual = nullptr;  // the same at all positions
        for (const std::uint32_t at : body.positions) {
            usual = own[at];
            own[at] = stream;
        }
        const Issuing here(*run.plan->device);
        result = plan.call(op, phase, run.user_step(lane.step));
        for (const std::uint32_t at : body.positions)
            own[at] = usual;
    }
    const bool good = result != nullptr;
    Py_XDECREF(result);
    // It is called again, outside of captures, and then whatever it raises is told; but a signal comes only once.
    if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0)
        PyErr_SetInterrupt();
    if (!good)
        raised = words_of(*take_exception());
    return good;
}

}  // namespace ostinato
