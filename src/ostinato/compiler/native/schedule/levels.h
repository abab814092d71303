#pragma once

#include <cstdint>
#include <vector>

#include "dependences/edges.h"

namespace ostinato::passes {

// How many ops the longest path of edges of distance 0 that leads to each op has.
std::vector<int32_t> levels(int32_t ops, EdgeSpan edges);

}  // namespace ostinato::passes
