#pragma once

#include <cstdint>
#include <span>

#include "passes/edges.h"
#include "passes/machine_model.h"

namespace ostinato::passes {

struct Lanes {
    std::span<const int32_t> lane;    // of every op
    std::span<const int32_t> home;    // thread of every lane
    std::span<const uint8_t> pinned;  // lanes that no other thread may serve
};

// Seconds a step takes once many are under way, by running the first ones on a model of the machine: a thread runs one
// op at a time, lanes keep `order`, and a thread without work takes up another's lane whose next op is ready.
double step_seconds(const Adjacency& before, std::span<const double> seconds, const Lanes& lanes,
                    std::span<const int32_t> order, const MachineModel& model);

}  // namespace ostinato::passes
