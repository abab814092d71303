#include "program/plan.h"

#include "devices/device_ops.h"
#include "outside/external.h"
#include "python/ops.h"

namespace ostinato {

Plan::Plan() = default;
Plan::~Plan() = default;

namespace {

// Where `pointer`, into what begins at `from`, lies in the copy that begins at `to`.
template <class T>
T* moved(T* pointer, const T* from, T* to) {
    return to + (pointer - from);
}
template <class T>
const T* moved(const T* pointer, const T* from, const T* to) {
    return pointer == nullptr ? nullptr : to + (pointer - from);
}

}  // namespace

std::shared_ptr<Plan> Plan::copy() const {
    auto plan = std::make_shared<Plan>();
    plan->native = native;
    plan->arrays = arrays;
    plan->dims = dims;
    plan->scalars = scalars;
    plan->scalar_patches = scalar_patches;
    plan->step_patches = step_patches;
    plan->scalar_patch_begin = scalar_patch_begin;
    plan->step_patch_begin = step_patch_begin;
    plan->external = external;
    plan->rings = rings;
    for (ost_array& array : plan->arrays) {
        array.shape = moved(array.shape, dims.data(), plan->dims.data());
        array.strides = moved(array.strides, dims.data(), plan->dims.data());
    }
    for (NativeOp& op : plan->native) {
        op.tables = moved(op.tables, arrays.data(), plan->arrays.data());
        op.call.arrays = op.tables;
        op.call.scalars = moved(op.call.scalars, scalars.data(), plan->scalars.data());
    }
    copy_python(*this, *plan);
    return plan;
}

}  // namespace ostinato
