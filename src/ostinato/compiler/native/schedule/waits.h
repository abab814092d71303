#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dependences/edges.h"

namespace ostinato::passes {

struct Waits {
    std::vector<int64_t> start;         // those of op i are [start[i], start[i + 1])
    std::vector<int32_t> op, distance;  // what it waits for, how many steps before
    std::vector<uint8_t> published;     // ops that are waited for
};

Waits waits(EdgeSpan edges, std::span<const int32_t> lane, std::span<const int32_t> order);

// The ops that never run if lanes keep this order; none if a step can run.
std::vector<int32_t> stuck(EdgeSpan edges, std::span<const int32_t> lane, std::span<const int32_t> order);

}  // namespace ostinato::passes
