#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dependences/edges.h"
#include "schedule/simulate.h"

namespace ostinato::passes {

struct Placed {
    EdgeSpan edges;
    std::span<const double> seconds;
    std::span<const int32_t> lane, affinity;
    std::span<const uint8_t> pinned;
    MachineModel model;
};

// The ops in one linear extension of the edges of distance 0.
std::vector<int32_t> order(const Placed& placed, std::span<const int32_t> priority, std::span<const uint8_t> gil_bound);

// The ops by when they could start, many steps being under way, if only transfers between lanes took time: what waits
// for another lane comes after what need not, and what another lane waits for comes early, the earlier the longer the
// path that it begins (`rank`).
std::vector<int32_t> by_slack(const Adjacency& before, std::span<const int32_t> lane, std::span<const double> rank,
                              std::span<const int32_t> topological, double transfer);

// Seconds from each op's start to the end of the longest path that leaves it within the step; paths that change lanes
// pay for the transfer. Without lanes (an empty span), all do.
std::vector<double> ranks(const Adjacency& after, std::span<const double> seconds, std::span<const int32_t> lane,
                          std::span<const int32_t> topological, const MachineModel& model);

}  // namespace ostinato::passes
