// Copies within a device that no command of OpenCL makes: backwards, across, and of rows that are repeated.
#pragma once

#include <mutex>

#include "devices/opencl/api.h"
#include "devices/opencl/box.h"

namespace ostinato::opencl {

// A kernel that copies byte by byte, built when it is first needed.
class Rearrangement {
public:
    Rearrangement(const Api& api, Context context, DeviceId device) : api_(api), context_(context), device_(device) {}

    bool usable();
    // Both sides are on the device.
    Int enqueue(Queue queue, const Box& box);

private:
    const Api& api_;
    Context context_;
    DeviceId device_;
    std::once_flag built_;
    std::mutex mutex_;  // a kernel holds the arguments of one launch
    OwnedKernel kernel_;
};

}  // namespace ostinato::opencl
