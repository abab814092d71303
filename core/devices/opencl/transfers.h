// Copies and fills as commands of OpenCL.
#pragma once

#include <mutex>

#include "devices/device.h"
#include "devices/opencl/api.h"

namespace ostinato::opencl {

struct Box;

class Transfers {
public:
    Transfers(const Api& api, Context context, DeviceId device) : api_(api), context_(context), device_(device) {}

    Int copy(Queue queue, const Transfer& transfer);
    Int fill(Queue queue, const Pattern& pattern);

private:
    Int copy(Queue queue, const Box& box);
    Int copy_all(Queue queue, const Box& box) const;  // by as many commands as it takes
    Int copy_rearranged(Queue queue, const Box& box);
    Int fill(Queue queue, const Pattern& pattern, const Block& block);
    // A memory object for what is on its way. The driver keeps it until the commands that use it have run.
    OwnedMemory passage(std::int64_t bytes, Int& code) const;

    // Copies within the device that no command of OpenCL makes: backwards, across, and of rows that are repeated. By a
    // kernel that copies byte by byte, built when it is first needed.
    bool can_rearrange();
    Int rearrange(Queue queue, const Box& box);

    const Api& api_;
    Context context_;
    DeviceId device_;
    std::once_flag built_;
    std::mutex mutex_;  // a kernel holds the arguments of one launch
    OwnedKernel kernel_;
};

}  // namespace ostinato::opencl
