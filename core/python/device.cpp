#include "python/device.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lanes/worker.h"
#include "program/program.h"
#include "python/ops.h"
#include "python/plan.h"

namespace ostinato {

namespace {

// Drops the lock for a scope, if this thread holds it: drivers may wait for a thread that wants it.
class WithoutPython {
public:
    WithoutPython() : state_(python_api.gil_state_check() != 0 ? PyEval_SaveThread() : nullptr) {}
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

PythonReference make_error(const std::string& text, const std::string& device, bool usable) {
    const PythonReference type = import_from("ostinato.errors", "DeviceError");
    auto error = PythonReference::steal(type.get() ? PyObject_CallFunction(type.get(), "s", text.c_str()) : nullptr);
    const auto name = PythonReference::steal(error.get() ? PyUnicode_FromString(device.c_str()) : nullptr);
    if (name.get() != nullptr && PyObject_SetAttrString(error.get(), "device", name.get()) == 0)
        (void)PyObject_SetAttrString(error.get(), "usable", usable ? Py_True : Py_False);
    return error;
}

// With the GIL.
std::string words_of(const PythonObject& raised) {
    PyObject* const exception = raised.object.get();
    const auto name = PythonReference::steal(PyType_GetName(Py_TYPE(exception)));
    const char* const known = name.get() != nullptr ? PyUnicode_AsUTF8AndSize(name.get(), nullptr) : nullptr;
    std::string words = known != nullptr ? known : "an exception";
    const auto text = PythonReference::steal(PyObject_Str(exception));
    const char* const said = text.get() != nullptr ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
    if (said != nullptr && *said != '\0')
        words += std::string(": ") + said;
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
    const auto end = [&](auto&... in_this_order) {
        if (made.forked())
            return (leak(std::move(in_this_order)), ...);
        const WithoutPython unlocked;
        (in_this_order.clear(), ...);
    };
    end(writing_back, traced, segments, ops, streams);
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
    if (const PythonReference error = make_error(text, stream.name, usable); error.get() != nullptr)
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
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
        if (PyObject* const step = plan.number_of(lane.index, run.user_step(lane.step)))
            result = plan.call(op, phase, step);
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
