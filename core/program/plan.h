// A plan: what the operations of a program call, with the arrays they are called on. A program has one plan at a time;
// rebinding arrays makes a new one. Only `step`, `arrays` and the scalars of a call change while it replays, and
// each operation is touched by the holder of its lane's claim only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lanes/line_vector.h"
#include "ostinato.h"

namespace ostinato {

// One operation with a native body. 64 bytes: one cache line.
struct alignas(64) NativeOp {
    ost_task function = nullptr;
    ost_call call{};
    std::uint32_t tables = 0;        // in Plan::arrays: `period` tables of call.n_arrays arrays each
    std::uint16_t period_class = 0;  // index into Schedule::periods
};
static_assert(sizeof(NativeOp) == 64);

// Before a run, Plan::scalars[scalar] takes the run's value number `value`.
struct ScalarPatch {
    std::uint32_t scalar, value;
};

// In every step, Plan::scalars[scalar] takes the step number.
struct StepPatch {
    std::uint32_t scalar;
};

// Owns something that holds Python objects, and deletes it with the GIL: the classes are those of python/plan.h.
template <class T>
struct DeleteWithPython {
    void operator()(T* object) const;
};
template <class T>
using PythonOwned = std::unique_ptr<T, DeleteWithPython<T>>;

class PythonPlan;
class PythonObject;
using PythonObjectHandle = PythonOwned<PythonObject>;

class ExternalOp;
struct DevicePlan;

struct Plan {
    Plan();
    ~Plan();
    // Another that can be used at the same time, on the same arrays. With the GIL, where there is a Python side. Of one
    // without operations for devices: their streams are of one plan only.
    std::shared_ptr<Plan> copy() const;

    // Chooses the arrays of a call.
    void turn(NativeOp& op, std::uint32_t phase) const {
        const std::size_t at = op.tables + std::size_t{phase} * static_cast<std::uint32_t>(op.call.n_arrays);
        op.call.arrays = arrays.data() + at;
        op.call.data = data.data() + at;
    }
    // Lays out the calls of every phase, where rings are so short that this takes little. `periods`: of the schedule.
    void lay_out_phases(const std::vector<std::uint32_t>& periods);
    // The operation at an index as it is called in a step; `phases_of_classes`: Lane::phase.
    NativeOp& native_op(std::size_t index, std::uint64_t user_step, const std::uint32_t* phases_of_classes) {
        NativeOp& op = native[user_step % phases * (native.size() / phases) + index];
        if (turns)
            turn(op, phases_of_classes[op.period_class]);
        return op;
    }

    // Lane after lane, in order (LaneOrder::first); empty for operations of other kinds. `phases` times: those of step
    // s are the copy s % phases.
    LineVector<NativeOp> native;
    std::uint32_t phases = 1;
    bool turns = false;  // arrays are chosen in every step: rings are too long for a copy for each phase
    std::vector<ost_array> arrays;
    std::vector<void*> data;         // by array: its `data`
    std::vector<std::int64_t> dims;  // shapes and strides that the arrays point into
    std::vector<ost_scalar> scalars;
    std::vector<ScalarPatch> scalar_patches;
    std::vector<StepPatch> step_patches;
    // Patches by lane: positions in the two vectors above, which are sorted by lane.
    std::vector<std::uint32_t> scalar_patch_begin, step_patch_begin;
    PythonOwned<PythonPlan> python;
    std::vector<std::shared_ptr<const ExternalOp>> external;  // by number (Schedule::external_of)
    std::unique_ptr<DevicePlan> device;                       // or null: no operation is for a device
    PythonObjectHandle arrays_owner;                          // keeps the arrays' memory alive

    std::size_t bytes() const {
        return native.capacity() * sizeof(NativeOp) + arrays.capacity() * sizeof(ost_array) +
               data.capacity() * sizeof(void*) + dims.capacity() * sizeof(std::int64_t) +
               scalars.capacity() * sizeof(ost_scalar);
    }
};

}  // namespace ostinato
