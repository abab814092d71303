#pragma once

#include <cstdint>
#include <span>

#include "passes/edges.h"

namespace ostinato::passes {

// What a cache line takes from one core to another, in seconds.
constexpr double kTransfer = 100e-9;
// A look at another lane's timeline that has long reached the value.
constexpr double kLook = 4e-9;
// Taking up a lane that another thread served last.
constexpr double kTakeUp = 200e-9;

struct Lanes {
    std::span<const int32_t> lane;    // of every op
    std::span<const int32_t> home;    // thread of every lane
    std::span<const uint8_t> pinned;  // lanes that no other thread may serve
};

// Seconds a step takes once many are under way, by running the first ones on a model of the machine: a thread runs one
// op at a time, lanes keep `order`, and a thread without work takes up another's lane whose next op is ready.
double step_seconds(const Adjacency& before, std::span<const double> seconds, const Lanes& lanes,
                    std::span<const int32_t> order);

}  // namespace ostinato::passes
