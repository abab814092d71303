// Copies and fills on a CUDA stream, of planned blocks, by as few calls as they allow.
#pragma once

#include "devices/cuda/api.h"
#include "devices/device.h"

namespace ostinato::cuda {

Result enqueue(const Api& api, Stream stream, const Transfer& transfer);
Result enqueue(const Api& api, Stream stream, const Pattern& pattern);

}  // namespace ostinato::cuda
