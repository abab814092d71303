#include "devices/opencl/rearrange.h"

#include <array>

namespace ostinato::opencl {

namespace {

constexpr const char* kSource = R"(
__kernel void rearrange(__global const uchar *source, long source_offset, long source_row, long source_slice,
                        __global uchar *target, long target_offset, long target_row, long target_slice) {
    const long at = get_global_id(0), row = get_global_id(1), slice = get_global_id(2);
    target[target_offset + slice * target_slice + row * target_row + at] =
        source[source_offset + slice * source_slice + row * source_row + at];
}
)";

}  // namespace

bool Rearrangement::usable() {
    std::call_once(built_, [this] {
        Int code = kSuccess;
        const char* source = kSource;
        const OwnedProgram program{api_, api_.CreateProgramWithSource(context_, 1, &source, nullptr, &code)};
        if (program && api_.BuildProgram(program.get(), 1, &device_, nullptr, nullptr, nullptr) == kSuccess)
            kernel_ = {api_, api_.CreateKernel(program.get(), "rearrange", &code)};
    });
    return static_cast<bool>(kernel_);
}

Int Rearrangement::enqueue(Queue queue, const Box& box) {
    const std::lock_guard lock(mutex_);
    Uint index = 0;
    for (const Side* side : {&box.source, &box.target}) {
        Int code = api_.SetKernelArg(kernel_.get(), index++, sizeof(side->memory), &side->memory);
        for (const std::int64_t number : {side->offset, side->row, side->slice})
            if (code == kSuccess)
                code = api_.SetKernelArg(kernel_.get(), index++, sizeof(number), &number);
        if (code != kSuccess)
            return code;
    }
    const std::array<std::size_t, 3> global{static_cast<std::size_t>(box.width), static_cast<std::size_t>(box.rows),
                                            static_cast<std::size_t>(box.slices)};
    return api_.EnqueueNDRangeKernel(queue, kernel_.get(), 3, nullptr, global.data(), nullptr, 0, nullptr, nullptr);
}

}  // namespace ostinato::opencl
