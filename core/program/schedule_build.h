// From the compiler's flat arrays to a schedule.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "program/schedule.h"

namespace ostinato {

struct ScheduleArrays {
    std::span<const std::int64_t> lane_begin;  // lanes + 1: into lane_ops
    std::span<const std::int32_t> lane_ops;    // operation ids, lane after lane, in order
    std::span<const std::int32_t> affinity;    // by lane
    std::span<const std::uint8_t> pinned;      // by lane
    std::span<const std::uint8_t> kind;        // by operation
    std::span<const std::int64_t> wait_begin;  // operations + 1: into the next two
    std::span<const std::int32_t> wait_op;     // the operation waited for
    std::span<const std::int32_t> wait_distance;
    std::span<const std::uint8_t> published;   // by operation
    std::span<const std::int64_t> pred_begin;  // operations + 1
    std::span<const std::int32_t> pred_op, pred_distance;
    std::span<const std::int32_t> periods;
    std::int64_t until_op = -1, until_every = 1;
    std::uint64_t largest_distance = 0;
    std::uint32_t n_posts = 0, n_holdings = 0;
};

std::shared_ptr<Schedule> build_schedule(const ScheduleArrays& arrays);

}  // namespace ostinato
