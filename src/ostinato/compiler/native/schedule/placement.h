#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dependences/edges.h"
#include "schedule/machine_model.h"

namespace ostinato::passes {

struct Work {
    EdgeSpan edges;
    std::span<const double> seconds;
    std::span<const int32_t> thread_of;  // -1: any
    std::span<const uint8_t> gil_bound;
    MachineModel model;
    int32_t threads = 1;
    bool spread = false;  // several lanes a thread, so that idle threads have something to take up
    bool known = false;   // the seconds are more than estimates
    bool steady = false;  // and the same in every step: several lanes a thread must gain something
};

struct Placement {
    std::vector<int32_t> lane;      // of every op
    std::vector<int32_t> affinity;  // thread of every lane
    std::vector<uint8_t> pinned;    // lanes that no other thread may serve
    double step_seconds = 0.0;      // what the model says of it
};

// Tries some placements on the model of simulate.h and keeps the best; the simplest, where others gain little.
Placement place(const Work& work);

}  // namespace ostinato::passes
