// Native tasks that the compiler itself puts into programs.
#pragma once

#include <cstdint>

#include "ostinato.h"

namespace ostinato {

// arrays: source, target, of one shape and item size. Any strides; the two do not overlap. scalars: item size.
std::int32_t copy_task(const ost_call* call);

// arrays: target. scalars: item size, then the item's bytes, 8 a scalar.
std::int32_t fill_task(const ost_call* call);

// arrays: the flag. scalars: how many steps between looks, item size, the bits to look at. Returns kLastStep when this
// step is one that looks and any of the bits is set.
std::int32_t until_task(const ost_call* call);

}  // namespace ostinato
