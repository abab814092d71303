#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "passes/edges.h"

namespace ostinato::passes {

// How many steps back, at least, each op depends on each of `sources` along the edges: entry [op * sources + i]; -1
// where it does not.
std::vector<int32_t> lags(int32_t ops, EdgeSpan edges, std::span<const int32_t> sources);

}  // namespace ostinato::passes
