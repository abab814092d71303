// How a program would run on a machine: the replay core (core/DESIGN.md) as a simulation of events in time.
//
// schedule/simulate.cpp asks the same within the search for a placement, for some steps of a small model. This one
// keeps to the core's rules more closely: threads stay with a lane until it waits, take turns, poll and sleep; lanes do
// not get far ahead of each other; one thread holds the GIL; nodes are apart. And it says why a step takes what it
// takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/schedule.h"

namespace ostinato::passes {

// How an op is run: by its thread, by it while it holds its node's GIL, or elsewhere while the thread goes on.
enum class Manner : uint8_t { kThread, kGil, kAway };

// A schedule as the core has it. The lanes of a thread follow each other.
struct Replayed {
    std::span<const int64_t> lane_begin;  // lanes + 1: into lane_ops
    std::span<const int32_t> lane_ops;    // op ids, lane after lane, in order
    std::span<const int32_t> affinity;    // by lane, ascending
    std::span<const uint8_t> pinned;      // by lane
    std::span<const double> seconds;      // by op
    std::span<const double> spread;       // by op: how much its time differs from step to step, as in compiler/costs.py
    std::span<const uint8_t> manner;      // by op
    std::span<const int64_t> wait_begin;  // ops + 1: into the next three
    std::span<const int32_t> wait_op;     // the op waited for
    std::span<const int32_t> wait_distance;
    std::span<const double> wait_delay;  // from its end on one thread until another one sees it; a link's latency or
                                         // more, if on another node
    int32_t until_op = -1, until_every = 1;
    int32_t window_period = 16;  // lanes wait for each other every so many steps
    int32_t threads = 1, threads_a_node = 1;
};

struct Question {
    MachineModel model;
    double link_latency = 0.0;  // a message between nodes
    int32_t steps = 1;          // to simulate
    int32_t shown = 1;          // of these, the last ones whose ops are told one by one
    uint64_t seed = 0;          // of what differs from step to step
};

struct Answer {
    double step_seconds = 0.0;                   // in the steady state: of the second half of the steps
    double span = 0.0;                           // how long that half took: what the next ones are about
    std::vector<double> lane_busy, lane_queued;  // seconds in ops; and ready, but without a thread
    std::vector<double> thread_busy;
    std::vector<double> start, end;  // by step shown, and by op
    std::vector<int32_t> thread;     // likewise
    std::vector<int64_t> chain;  // what bounds the last step: indices into the three, each begun because of the last
};

// Throws std::logic_error where lanes would wait for each other.
Answer replay(const Replayed& schedule, const Question& question);

}  // namespace ostinato::passes
