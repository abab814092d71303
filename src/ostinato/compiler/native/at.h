#pragma once

#include <cstddef>
#include <cstdint>

namespace ostinato::passes {

// Ops, lanes and boxes are numbered by signed integers; vectors are indexed by unsigned ones.
inline std::size_t at(int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace ostinato::passes
