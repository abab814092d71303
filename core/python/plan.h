// The Python side of plans and runs, for the files that know Python's headers.
#pragma once

#include <Python.h>

#include <bit>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "devices/stream.h"
#include "program/run.h"
#include "python/api.h"
#include "python/thread.h"

namespace ostinato {

// A strong reference, dropped with the lock held by whoever drops it.
class PythonReference {
public:
    PythonReference() = default;
    explicit PythonReference(PyObject* borrowed) : object_(Py_XNewRef(borrowed)) {}
    static PythonReference steal(PyObject* owned) {
        PythonReference reference;
        reference.object_ = owned;
        return reference;
    }
    PythonReference(PythonReference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    PythonReference& operator=(PythonReference&& other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~PythonReference() { Py_XDECREF(object_); }
    PyObject* get() const { return object_; }

private:
    PyObject* object_ = nullptr;
};

// One operation with a Python body. `arguments` of PythonPlan holds, for each phase of its ring period, one free entry
// (which the callee may use) and `n_arguments` entries, the last ones for the keywords. Those that are step numbers are
// borrowed from `step_numbers`: they are written before each call, and counting references to what all calls of a step
// are given would make each wait for the one before.
struct PythonOp {
    PyObject* callable = nullptr;  // owned by PythonPlan::held
    PyObject* keywords = nullptr;  // a tuple or null; likewise
    std::uint32_t first = 0;       // entry of the first argument in the first phase
    std::uint32_t n_arguments = 0;
    std::uint32_t n_positional = 0;
    std::uint32_t step_begin = 0, step_end = 0;  // in PythonPlan::step_positions
    std::uint16_t period_class = 0;
    std::uint16_t n_phases = 1;
};

// PyObject_Vectorcall, which checks after each call that a value or an error came back, but not both. That need not be
// asked of functions of the interpreter's own.
inline PyObject* call_vector(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* keywords) {
#ifndef Py_LIMITED_API
    if (PyFunction_Check(callable)) [[likely]]
        return reinterpret_cast<PyFunctionObject*>(callable)->vectorcall(callable, arguments, count, keywords);
#endif
    return PyObject_Vectorcall(callable, arguments, count, keywords);
}

class PythonPlan {
public:
    PythonPlan() = default;
    PythonPlan(const PythonPlan& other)
        : ops(other.ops), index(other.index), arguments(other.arguments), step_positions(other.step_positions),
          patches(other.patches), patch_begin(other.patch_begin), step_numbers(other.step_numbers.size()) {
        for (std::size_t lane = 0; lane < step_numbers.size(); ++lane)
            step_numbers[lane].wanted = other.step_numbers[lane].wanted;
        forget_steps();
        for (PyObject* argument : arguments)
            Py_XINCREF(argument);
        for (const PythonReference& reference : other.held)
            held.emplace_back(reference.get());
    }
    PythonPlan& operator=(const PythonPlan&) = delete;
    ~PythonPlan() {
        forget_steps();
        for (PyObject* argument : arguments)
            Py_XDECREF(argument);
    }
    struct Patch {
        std::uint32_t op, position, value;
    };
    std::vector<PythonOp> ops;
    std::vector<std::uint32_t> index;  // by index: which of `ops`
    std::vector<PyObject*> arguments;  // owned, but for step numbers
    std::vector<std::uint32_t> step_positions;
    std::vector<Patch> patches;              // sorted by lane
    std::vector<std::uint32_t> patch_begin;  // by lane
    // By lane, the number of the step that it is in: one object for all operations that are given it.
    struct StepNumber {
        bool wanted = false;
        std::uint64_t step = UINT64_MAX;
        PythonReference object{Py_None};
    };
    std::vector<StepNumber> step_numbers;
    std::vector<PythonReference> held;

    // Leaves no borrowed reference in `arguments`.
    void forget_steps() {
        for (const PythonOp& op : ops)
            for_step_entries(op, [](PyObject*& entry) { entry = nullptr; });
    }

    // The step number as an object, borrowed, for the operations of a lane that are called in this step; null: the
    // error is set. Nothing that matters where none of them wants it.
    PyObject* number_of(std::uint32_t lane, std::uint64_t user_step) {
        StepNumber& number = step_numbers[lane];
        if (number.wanted && number.step != user_step) {
            auto object = PythonReference::steal(PyLong_FromUnsignedLongLong(user_step));
            if (object.get() == nullptr)
                return nullptr;
            number.object = std::move(object);
            number.step = user_step;
        }
        return number.object.get();
    }

    // Calls `op` with the arguments of a phase and the number of the step. A new reference, or null: the error is set.
    PyObject* call(const PythonOp& op, std::uint32_t phase, PyObject* number) {
        PyObject** const own = &arguments[op.first + phase * (op.n_arguments + 1)];
        for (std::uint32_t i = op.step_begin; i < op.step_end; ++i)
            own[step_positions[i]] = number;
        StaysInCall here;
        PyObject* const result =
            call_vector(op.callable, own, op.n_positional | PY_VECTORCALL_ARGUMENTS_OFFSET, op.keywords);
        here.returned();
        return result;
    }

    // Calls `change` with each entry of `op` that is a step number, in every phase.
    template <class Change>
    void for_step_entries(const PythonOp& op, Change change) {
        for (std::uint32_t phase = 0; phase < op.n_phases; ++phase)
            for (std::uint32_t i = op.step_begin; i < op.step_end; ++i)
                change(arguments[op.first + phase * (op.n_arguments + 1) + step_positions[i]]);
    }

    // Puts `value` (borrowed) at `position` of every phase. Whether it differs from what was there.
    bool set(const PythonOp& op, std::uint32_t position, PyObject* value) {
        bool changed = false;
        for (std::uint32_t phase = 0; phase < op.n_phases; ++phase) {
            PyObject*& entry = arguments[op.first + phase * (op.n_arguments + 1) + position];
            PyObject* const old = entry;
            entry = Py_XNewRef(value);
            changed = changed || !same(old, value);
            Py_XDECREF(old);
        }
        return changed;
    }

    // Whether nothing that is done with the one would differ with the other, as far as is known: of an object that may
    // have changed in place nothing is.
    static bool same(PyObject* a, PyObject* b) {
        if (a == nullptr || b == nullptr)
            return a == b;
        if (a == b)
            return is_constant(a);
        if (PyFloat_CheckExact(a) && PyFloat_CheckExact(b))
            return std::bit_cast<std::uint64_t>(PyFloat_AsDouble(a)) ==
                   std::bit_cast<std::uint64_t>(PyFloat_AsDouble(b));
        return PyLong_CheckExact(a) && PyLong_CheckExact(b) && PyObject_RichCompareBool(a, b, Py_EQ) == 1;
    }

    // But for those with fields, which are views.
    static bool is_numpy_scalar(PyObject* value);

    static bool is_constant(PyObject* value) {
        if (value == Py_None || PyFloat_Check(value) || PyLong_Check(value) || PyComplex_Check(value) ||
            PyUnicode_Check(value) || PyBytes_Check(value))
            return true;
        return is_numpy_scalar(value);
    }
};

class PythonRun {
public:
    PythonReference context;                     // the submitter's; shared by a single Python lane
    std::vector<PythonReference> lane_contexts;  // by lane, where there are several
    std::vector<PythonReference> values;         // parameter objects
    PythonReference callback;                    // called with no arguments when the run is done
    PyObject* context_of(std::uint32_t lane) const {
        return lane_contexts.empty() ? context.get() : lane_contexts[lane].get();
    }
};

class PythonObject {
public:
    PythonReference object;
};

class SpawnedBody {
public:
    PythonReference function, arguments, context;  // until it has been called; `arguments` is a tuple
    PythonReference result, exception;             // one of them, then
    PythonReference callback;                      // called with no arguments when the call has ended
};

// The streams that Python bodies are captured on, as Python objects.
class RecordingStreams {
public:
    struct Body {
        PythonReference make;  // from a handle, what the body gets as its stream
        std::vector<std::uint32_t> positions;
    };
    std::map<std::uint32_t, Body> bodies;  // by PythonPlan::ops

    // For this body and stream, borrowed; null: the error is set.
    PyObject* get(const Body& body, StreamHandle handle) {
        if (PyObject* const known = find(body, handle))
            return known;
        // Outside the mutex: it may run any Python code.
        auto made = PythonReference::steal(
            PyObject_CallFunction(body.make.get(), "K", static_cast<unsigned long long>(handle)));
        if (made.get() == nullptr)
            return nullptr;
        const std::lock_guard<std::mutex> lock(mutex_);
        return made_.try_emplace({body.make.get(), handle}, std::move(made)).first->second.get();
    }

private:
    PyObject* find(const Body& body, StreamHandle handle) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto at = made_.find({body.make.get(), handle});
        return at == made_.end() ? nullptr : at->second.get();
    }

    std::mutex mutex_;  // lanes of several streams may record at once in free-threaded builds
    std::map<std::pair<PyObject*, StreamHandle>, PythonReference> made_;
};

// Combines `value` (borrowed) into what `phase` has come to, and makes `count` arrivals that were promised. Returns
// what combining raised, if it did: then nothing has arrived. The lock is held.
ExceptionHandle keep_with_value(Barrier& barrier, std::uint64_t phase, std::uint64_t count, PyObject* value);

// The exception that was just raised, taken from the thread.
ExceptionHandle take_exception();

// An attribute of a module; null: the error is set.
PythonReference import_from(const char* module, const char* name);

// Whether it is the CancelledError that waits of tasks end with. The lock is held, as below.
bool raised_cancelled(const PythonObject& raised);

// Calls a function without arguments on a thread of ours; what it raises goes to sys.unraisablehook.
void call_or_tell(PyObject* function);

// Holds the lock for a scope, on any thread. `usable` is false when the interpreter is ending: leave objects alone.
class LockPython {
public:
    LockPython()
        : usable(Py_IsInitialized() && python_api.is_finalizing() == 0),
          state_(usable ? PyGILState_Ensure() : PyGILState_STATE{}) {}
    ~LockPython() {
        if (usable)
            PyGILState_Release(state_);
    }
    LockPython(const LockPython&) = delete;
    LockPython& operator=(const LockPython&) = delete;
    const bool usable;

private:
    const PyGILState_STATE state_;
};

}  // namespace ostinato
