#pragma once

#include <cstdint>
#include <span>

#include "dependences/edges.h"
#include "schedule/machine_model.h"

namespace ostinato::passes {

struct Lanes {
    std::span<const int32_t> lane;      // of every op
    std::span<const int32_t> affinity;  // thread of every lane
    std::span<const uint8_t> pinned;    // lanes that no other thread may serve
};

// Steps that say what a graph of so many ops settles to on so many threads: large ones show it sooner, and cost more.
int64_t steps_for(int64_t ops, int64_t threads);

// Seconds a step takes once many are under way, by running the first `steps` on a model of the machine: a thread runs
// one op at a time, lanes keep `order`, a thread without work takes up another's lane whose next op is ready, and one
// that has had nothing to do for a while sleeps.
double step_seconds(const Adjacency& before, std::span<const double> seconds, const Lanes& lanes,
                    std::span<const int32_t> order, const MachineModel& model, int64_t steps);

}  // namespace ostinato::passes
