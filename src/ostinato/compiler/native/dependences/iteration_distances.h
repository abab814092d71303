#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dependences/edges.h"

namespace ostinato::passes {

// Which operations depend on each of some sources along the edges, and how many steps back at least: for source i, of
// op[k] by steps_back[k], for k from start[i] to start[i + 1].
struct IterationDistances {
    std::vector<int64_t> start;
    std::vector<int32_t> op, steps_back;
};

IterationDistances iteration_distances(int32_t ops, EdgeSpan edges, std::span<const int32_t> sources);

}  // namespace ostinato::passes
