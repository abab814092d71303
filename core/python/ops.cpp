#include "python/ops.h"

#include "devices/device_ops.h"
#include "program/program.h"
#include "python/plan.h"

namespace ostinato {

namespace {

void let_go(SpawnedBody& body) {
    body.function = PythonReference();
    body.arguments = PythonReference();
    body.context = PythonReference();
}

}  // namespace

template <class T>
void DeleteWithPython<T>::operator()(T* object) const {
    const LockPython lock;
    if (lock.usable)
        delete object;
}
template struct DeleteWithPython<PythonObject>;
template struct DeleteWithPython<PythonPlan>;
template struct DeleteWithPython<PythonRun>;
template struct DeleteWithPython<RecordingStreams>;
template struct DeleteWithPython<SpawnedBody>;

ExceptionHandle take_exception() {
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
    return ExceptionHandle(new PythonObject{PythonReference::steal(exception)});
}

PythonReference import_from(const char* module, const char* name) {
    const auto imported = PythonReference::steal(PyImport_ImportModule(module));
    return PythonReference::steal(imported.get() ? PyObject_GetAttrString(imported.get(), name) : nullptr);
}

bool PythonPlan::is_numpy_scalar(PyObject* value) {
    const PythonReference scalar = import_from("numpy", "generic"), record = import_from("numpy", "void");
    const auto is_a = [value](const PythonReference& type) {
        return PyObject_TypeCheck(value, reinterpret_cast<PyTypeObject*>(type.get())) != 0;
    };
    const bool is = scalar.get() != nullptr && record.get() != nullptr && is_a(scalar) && !is_a(record);
    PyErr_Clear();
    return is;
}

bool raised_cancelled(const PythonObject& raised) {
    const PythonReference error = import_from("concurrent.futures", "CancelledError");
    const bool matches = error.get() && PyErr_GivenExceptionMatches(raised.object.get(), error.get()) != 0;
    PyErr_Clear();
    return matches;
}

void call_or_tell(PyObject* function) {
    StaysInCall here;
    const auto result = PythonReference::steal(PyObject_CallNoArgs(function));
    here.returned();
    if (result.get() == nullptr)
        PyErr_WriteUnraisable(function);
}

bool leaves(const PythonObject& raised) {
    return PyErr_GivenExceptionMatches(raised.object.get(), PyExc_KeyboardInterrupt) != 0 ||
           PyErr_GivenExceptionMatches(raised.object.get(), PyExc_SystemExit) != 0;
}

std::uint32_t call_python(Worker& worker, Lane& lane, std::uint32_t begin, std::uint32_t end, std::uint64_t user_step,
                          ExceptionHandle& failure) {
    worker.python.acquire();
    Run& run = *lane.run;
    PythonPlan& plan = *run.plan->python;
    worker.python.enter(run.python ? run.python->context_of(lane.index) : nullptr);
    const InTask here(worker.python, &run);
    PyObject* const number = plan.number_of(lane.index, user_step);
    const PythonOp* const ops = plan.ops.data();
    const std::uint32_t* const index = plan.index.data() + lane.order->first;
    const std::uint32_t* const phase = lane.phase.data();
    for (std::uint32_t at = begin; at < end; ++at) {
        const PythonOp& op = ops[index[at]];
        PyObject* const result = number == nullptr ? nullptr : plan.call(op, phase[op.period_class], number);
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
    if (run.python && run.python->callback.get() != nullptr)
        call_or_tell(std::exchange(run.python->callback, {}).get());
    python.release();
}

void initialise_thread(Machine& machine, PythonThread& python) {
    python.acquire();
    call_or_tell(machine.init->object.get());
    python.release();
}

bool call_body(SpawnedCall& call, PythonThread& python) {
    SpawnedBody& body = *call.body;
    python.enter(body.context.get());
    {
        const InTask here(python, &call);
        StaysInCall stays;
        body.result = PythonReference::steal(PyObject_CallObject(body.function.get(), body.arguments.get()));
        stays.returned();
    }
    const bool returned = body.result.get() != nullptr;
    if (!returned)
        body.exception = std::move(take_exception()->object);
    python.enter(nullptr);
    let_go(body);
    return returned;
}

void put_away(SpawnedCall& call, PythonThread& python) {
    python.acquire();
    let_go(*call.body);
    if (call.wants_callback)
        call_or_tell(std::exchange(call.body->callback, {}).get());
    python.release();
}

}  // namespace ostinato
