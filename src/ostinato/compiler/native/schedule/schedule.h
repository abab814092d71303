// Lanes for ops, the order of the ops, and what they still wait for; compared on a small model of a machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dependences/edges.h"

namespace ostinato::passes {

// What threads pay for working together, in seconds.
struct MachineModel {
    double transfer;    // of a cache line from one core to another
    double poll;        // at another lane's timeline that has long reached the value
    double switch_;     // from an op of one lane to one of another
    double wake;        // from notifying a thread that sleeps until it runs
    double notify = 0;  // of that, what the thread that notifies is busy for
};

struct Work {
    EdgeSpan edges;
    std::span<const double> seconds;
    std::span<const double> shared;      // the same where several threads take the GIL: longer for ops that take it
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

// Tries some placements on the model and keeps the best; the simplest, where others gain little.
Placement place(const Work& work);

// A placement as seen by what only reads it.
struct Lanes {
    std::span<const int32_t> lane, affinity;
    std::span<const uint8_t> pinned;
};

// Steps that say what a graph of so many ops settles to on so many threads: large ones show it sooner, and cost more.
int64_t steps_for(int64_t ops, int64_t threads);

// Seconds a step takes once many are under way, by running the first `steps` on a model of the machine: a thread runs
// one op at a time, lanes keep `order`, a thread without work takes up another's lane whose next op is ready, and one
// that has had nothing to do for a while sleeps.
double step_seconds(const Adjacency& before, std::span<const double> seconds, const Lanes& lanes,
                    std::span<const int32_t> order, const MachineModel& model, int64_t steps);

struct Placed {
    EdgeSpan edges;
    std::span<const double> seconds;
    Lanes lanes;
    MachineModel model;
};

// The ops in one linear extension of the edges of distance 0.
std::vector<int32_t> order(const Placed& placed, std::span<const int32_t> priority, std::span<const uint8_t> gil_bound);

// What the ops use: op i so many bytes of each of its cells, from `start[i]` to `start[i + 1]`. Cells do not overlap.
struct Footprints {
    std::span<const int64_t> start;
    std::span<const int32_t> cell;
    std::span<const int64_t> bytes;
    int32_t cells;
};

// The ops in a linear extension in which each lane, alone on its thread, prefers what uses data that a cache of
// `capacity` bytes holds.
std::vector<int32_t> order_for_caches(const Placed& placed, const Footprints& footprints, int64_t capacity);

// How many bytes such caches fetch in a step of this order, one of many.
int64_t fetched_bytes(std::span<const int32_t> lane, std::span<const int32_t> order, const Footprints& footprints,
                      int64_t capacity);

// The ops by when they could start, many steps being under way, if only transfers between lanes took time: what waits
// for another lane comes after what need not, and what another lane waits for comes early, the earlier the longer the
// path that it begins (`rank`).
std::vector<int32_t> by_slack(const Adjacency& before, std::span<const int32_t> lane, std::span<const double> rank,
                              std::span<const int32_t> topological, double transfer);

// Seconds from each op's start to the end of the longest path that leaves it within the step; paths that change lanes
// pay for the transfer. Without lanes (an empty span), all do.
std::vector<double> ranks(const Adjacency& after, std::span<const double> seconds, std::span<const int32_t> lane,
                          std::span<const int32_t> topological, const MachineModel& model);

struct Waits {
    std::vector<int64_t> start;         // those of op i are [start[i], start[i + 1])
    std::vector<int32_t> op, distance;  // what it waits for, how many steps before
    std::vector<uint8_t> published;     // ops that are waited for
};

Waits waits(EdgeSpan edges, std::span<const int32_t> lane, std::span<const int32_t> order);

// The ops that never run if lanes keep this order; none if a step can run.
std::vector<int32_t> stuck(EdgeSpan edges, std::span<const int32_t> lane, std::span<const int32_t> order);

}  // namespace ostinato::passes
