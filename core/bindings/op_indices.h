// Where the operations of a schedule are, by number.
#pragma once

#include <cstdint>
#include <vector>

#include "program/schedule.h"

namespace ostinato {

struct OpIndices {
    std::vector<std::uint32_t> of;       // by operation
    std::vector<std::uint32_t> lane_of;  // by operation

    explicit OpIndices(const Schedule& schedule) : of(schedule.n_ops), lane_of(schedule.n_ops) {
        for (std::uint32_t l = 0; l < schedule.lanes.size(); ++l) {
            const LaneOrder& lane = schedule.lanes[l];
            for (std::uint32_t i = 0; i < lane.ops.size(); ++i) {
                of[lane.ops[i]] = lane.first + i;
                lane_of[lane.ops[i]] = l;
            }
        }
    }
};

}  // namespace ostinato
