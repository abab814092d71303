// How far a failure spreads: when nothing is left that it does not reach, a run that goes on after errors may end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/schedule.h"

namespace ostinato {

class PoisonReach {
public:
    // Takes note that `failed` did in `step`. Cost: linear in operations and edges.
    void spread(const Schedule& schedule, std::span<const std::uint32_t> failed, std::uint64_t step);
    // The first step from which on every operation is poisoned that has anything to do, in that step and all later
    // ones; kNever when there is none.
    std::uint64_t everything() const;
    void clear() { from_.clear(); }

private:
    void build_successors(const Schedule& schedule);

    struct Edge {
        std::uint32_t op, distance;
    };
    std::vector<std::uint64_t> begin_;  // of each operation's successors
    std::vector<Edge> successors_;
    std::vector<std::uint32_t> idle_;  // operations that do nothing after a run's first step
    std::vector<std::uint64_t> from_;  // from which step on each operation is poisoned in every step
};

}  // namespace ostinato
