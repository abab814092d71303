// Copies and fills as commands of OpenCL.
#pragma once

#include "devices/device.h"
#include "devices/opencl/api.h"
#include "devices/opencl/rearrange.h"

namespace ostinato::opencl {

class Transfers {
public:
    Transfers(const Api& api, Context context, DeviceId device)
        : api_(api), context_(context), rearrangement_(api, context, device) {}

    Int copy(Queue queue, const Transfer& transfer);
    Int fill(Queue queue, const Pattern& pattern);

private:
    Int copy(Queue queue, const Box& box);
    Int copy_all(Queue queue, const Box& box) const;  // by as many commands as it takes
    Int rearranged(Queue queue, const Box& box);
    Int fill(Queue queue, const Pattern& pattern, const Block& block);
    // A memory object for what is on its way. The driver keeps it until the commands that use it have run.
    OwnedMemory passage(std::int64_t bytes, Int& code) const;

    const Api& api_;
    Context context_;
    Rearrangement rearrangement_;
};

}  // namespace ostinato::opencl
