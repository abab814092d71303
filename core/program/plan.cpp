#include "program/plan.h"

#include <numeric>

#include "devices/device_ops.h"
#include "outside/external.h"
#include "python/ops.h"

namespace ostinato {

namespace {

// More than rings of data that is passed from step to step have; calls of all phases stay in a second-level cache.
constexpr std::uint64_t kMostPhases = 8;
constexpr std::size_t kMostCalls = 1 << 14;

}  // namespace

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

void Plan::lay_out_phases(const std::vector<std::uint32_t>& periods) {
    std::uint64_t all = 1;
    for (const NativeOp& op : native) {
        if (all <= kMostPhases)
            all = std::lcm(all, std::uint64_t{periods[op.period_class]});
    }
    if (all == 1)
        return;
    const std::size_t n = native.size();
    turns = all > kMostPhases || n * all > kMostCalls;
    if (turns)
        return;
    phases = static_cast<std::uint32_t>(all);
    native.resize(n * phases);
    for (std::uint32_t phase = phases; phase-- > 0;) {
        for (std::size_t i = 0; i < n; ++i) {
            NativeOp& op = native[phase * n + i] = native[i];
            turn(op, phase % periods[op.period_class]);
        }
    }
}

std::shared_ptr<Plan> Plan::copy() const {
    auto plan = std::make_shared<Plan>();
    plan->native = native;
    plan->phases = phases;
    plan->turns = turns;
    plan->arrays = arrays;
    plan->data = data;
    plan->dims = dims;
    plan->scalars = scalars;
    plan->scalar_patches = scalar_patches;
    plan->step_patches = step_patches;
    plan->scalar_patch_begin = scalar_patch_begin;
    plan->step_patch_begin = step_patch_begin;
    plan->external = external;
    for (ost_array& array : plan->arrays) {
        array.shape = moved(array.shape, dims.data(), plan->dims.data());
        array.strides = moved(array.strides, dims.data(), plan->dims.data());
    }
    for (NativeOp& op : plan->native) {
        op.call.arrays = moved(op.call.arrays, arrays.data(), plan->arrays.data());
        op.call.data = moved(op.call.data, data.data(), plan->data.data());
        op.call.scalars = moved(op.call.scalars, scalars.data(), plan->scalars.data());
    }
    copy_python(*this, *plan);
    return plan;
}

}  // namespace ostinato
