#include "python/ops.h"

#include "devices/device_ops.h"
#include "program/program.h"
#include "python/plan.h"

namespace ostinato {

namespace {

bool interpreter_usable() {
#if PY_VERSION_HEX >= 0x030d0000
    return Py_IsInitialized() && !Py_IsFinalizing();
#else
    return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

template <class T>
void delete_locked(T* object) {
    const LockPython lock;
    if (lock.usable)
        delete object;
}

}  // namespace

ExceptionHandle take_exception() {
    auto* raised = new RaisedException;
#if PY_VERSION_HEX >= 0x030c0000
    PyObject* exception = PyErr_GetRaisedException();
#else
    PyObject *type = nullptr, *exception = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &exception, &traceback);
    PyErr_NormalizeException(&type, &exception, &traceback);
    if (traceback != nullptr)
        PyException_SetTraceback(exception, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
#endif
    raised->exception = PythonReference(exception);
    Py_XDECREF(exception);
    return ExceptionHandle(raised);
}

bool raised_cancelled(const RaisedException& raised) {
    PyObject* const module = PyImport_ImportModule("concurrent.futures");
    PyObject* const error = module != nullptr ? PyObject_GetAttrString(module, "CancelledError") : nullptr;
    const bool matches = error != nullptr && PyErr_GivenExceptionMatches(raised.exception.get(), error) != 0;
    Py_XDECREF(error);
    Py_XDECREF(module);
    PyErr_Clear();
    return matches;
}

void call_or_tell(PyObject* function) {
    StaysInCall here;
    PyObject* const result = PyObject_CallNoArgs(function);
    here.returned();
    if (result == nullptr)
        PyErr_WriteUnraisable(function);
    Py_XDECREF(result);
}

LockPython::LockPython() : usable(interpreter_usable()) {
    if (usable)
        state_ = PyGILState_Ensure();
}

LockPython::~LockPython() {
    if (usable)
        PyGILState_Release(state_);
}

void PythonPlanDeleter::operator()(PythonPlan* plan) const { delete_locked(plan); }
void PythonRunDeleter::operator()(PythonRun* run) const { delete_locked(run); }
void RaisedExceptionDeleter::operator()(RaisedException* exception) const { delete_locked(exception); }
void PythonObjectDeleter::operator()(PythonObject* object) const { delete_locked(object); }

bool leaves(const RaisedException& raised) {
    PyObject* const exception = raised.exception.get();
    return PyErr_GivenExceptionMatches(exception, PyExc_KeyboardInterrupt) != 0 ||
           PyErr_GivenExceptionMatches(exception, PyExc_SystemExit) != 0;
}

std::uint32_t call_python(Worker& worker, Lane& lane, std::uint32_t begin, std::uint32_t end, std::uint64_t user_step,
                          ExceptionHandle& failure) {
    worker.python.acquire();
    Run& run = *lane.run;
    PythonPlan& plan = *run.plan->python;
    worker.python.enter(run.python ? run.python->context_of(lane.index) : nullptr);
    const InTask here(worker.python, &run);
    for (std::uint32_t at = begin; at < end; ++at) {
        const PythonOp& op = plan.ops[plan.index[lane.order->first + at]];
        PyObject* const result = plan.call(op, lane.phase[op.period_class], user_step);
        if (result == nullptr) [[unlikely]] {
            failure = take_exception();
            return at + 1;
        }
        Py_DECREF(result);
        if (worker.attention()) [[unlikely]]
            return at + 1;
    }
    return end;
}

void apply_python_parameters(Worker& worker, Lane& lane) {
    PythonPlan& plan = *lane.run->plan->python;
    const std::uint32_t begin = plan.patch_begin[lane.index], end = plan.patch_begin[lane.index + 1];
    if (begin == end)
        return;
    worker.python.acquire();
    DevicePlan* const devices = lane.run->plan->device.get();
    for (std::uint32_t i = begin; i < end; ++i) {
        const PythonPlan::Patch& patch = plan.patches[i];
        PyObject* const value = lane.run->python->values[patch.value].get();
        const bool changed = plan.set(plan.ops[patch.op], patch.position, value);
        if (devices != nullptr && changed && devices->segment_of_python[patch.op] != kNoSegment)
            ++devices->segments[devices->segment_of_python[patch.op]].version;
    }
}

void copy_python(const Plan& from, Plan& to) {
    if (from.python)
        to.python.reset(new PythonPlan(*from.python));
    if (from.arrays_owner)
        to.arrays_owner.reset(new PythonObject{PythonReference(from.arrays_owner->object.get())});
}

void run_callbacks(Run& run, PythonThread& python) {
    python.acquire();
    PyObject* const callback = run.python ? run.python->callback.get() : nullptr;
    if (callback != nullptr) {
        call_or_tell(callback);
        run.python->callback = PythonReference();
    }
    python.release();
}

void initialise_thread(Machine& machine, PythonThread& python) {
    python.acquire();
    call_or_tell(machine.init->object.get());
    python.release();
}

}  // namespace ostinato
