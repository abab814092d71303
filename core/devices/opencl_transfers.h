// Copies and fills as commands of OpenCL.
#pragma once

#include "devices/device.h"
#include "devices/opencl_api.h"

namespace ostinato::opencl {

Int enqueue_copy(const Api& api, Context context, Queue queue, const Transfer& transfer);
Int enqueue_fill(const Api& api, Context context, Queue queue, const Pattern& pattern);

}  // namespace ostinato::opencl
