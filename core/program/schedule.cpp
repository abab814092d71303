#include "program/schedule.h"

#include <algorithm>
#include <bit>

namespace ostinato {

namespace {

constexpr std::uint64_t kLeastPeriod = 16;

void add_batches(LaneOrder& lane, const ScheduleArrays& in, const std::vector<std::uint32_t>& position,
                 const std::vector<std::uint32_t>& lane_of, bool alone) {
    const auto n = static_cast<std::uint32_t>(lane.ops.size());
    for (std::uint32_t at = 0; at < n; ++at) {
        const std::uint32_t op = lane.ops[at];
        const bool waits = in.wait_begin[op] != in.wait_begin[op + 1];
        const Kind kind{in.kind[op]};
        const bool alone_in_kind = kind == Kind::kUntil || is_external(kind);
        const bool joins =
            at > 0 && !waits && !lane.batches.back().publishes && !alone_in_kind && lane.batches.back().kind == kind;
        if (joins) {
            lane.batches.back().end = at + 1;
        } else {
            const auto first = static_cast<std::uint32_t>(lane.waits.size());
            for (std::int64_t i = in.wait_begin[op]; i < in.wait_begin[op + 1]; ++i) {
                const auto other = static_cast<std::uint32_t>(in.wait_op[static_cast<std::size_t>(i)]);
                const std::uint32_t on = lane_of[other];
                const auto stride = static_cast<std::uint32_t>(in.lane_begin[on + 1] - in.lane_begin[on]);
                lane.waits.push_back({on, stride,
                                      std::int64_t{position[other]} + 1 -
                                          std::int64_t{in.wait_distance[static_cast<std::size_t>(i)]} * stride});
            }
            lane.batches.push_back({at, at + 1, first, static_cast<std::uint32_t>(lane.waits.size()), kind, false});
        }
        lane.batches.back().publishes = !alone && in.published[op] != 0;
        lane.native = lane.native && kind == Kind::kNative;
    }
}

}  // namespace

std::shared_ptr<Schedule> build_schedule(const ScheduleArrays& in) {
    auto schedule = std::make_shared<Schedule>();
    const std::size_t n_ops = in.kind.size();
    const std::size_t n_lanes = in.affinity.size();
    schedule->n_ops = static_cast<std::uint32_t>(n_ops);
    schedule->unrolled = in.unrolled;
    schedule->window_period = std::bit_ceil(std::max(kLeastPeriod, in.largest_distance));
    schedule->first_step = schedule->window_period;  // at least the largest distance
    std::vector<std::uint32_t> position(n_ops), lane_of(n_ops);
    for (std::size_t lane = 0; lane < n_lanes; ++lane) {
        for (std::int64_t i = in.lane_begin[lane]; i < in.lane_begin[lane + 1]; ++i) {
            const auto op = static_cast<std::size_t>(in.lane_ops[static_cast<std::size_t>(i)]);
            position[op] = static_cast<std::uint32_t>(i - in.lane_begin[lane]);
            lane_of[op] = static_cast<std::uint32_t>(lane);
        }
    }
    schedule->lanes.resize(n_lanes);
    for (std::size_t i = 0; i < n_lanes; ++i) {
        LaneOrder& lane = schedule->lanes[i];
        lane.first = schedule->n_stored;
        lane.affinity = static_cast<std::uint32_t>(in.affinity[i]);
        lane.pinned = in.pinned[i] != 0;
        lane.ops.assign(in.lane_ops.begin() + in.lane_begin[i], in.lane_ops.begin() + in.lane_begin[i + 1]);
        schedule->n_stored += (static_cast<std::uint32_t>(lane.ops.size()) + 1) / 2 * 2;
        add_batches(lane, in, position, lane_of, n_lanes == 1);
        lane.batches.shrink_to_fit();
        lane.waits.shrink_to_fit();
        for (std::size_t other = 0; other < n_lanes; ++other) {
            const auto stride = in.lane_begin[other + 1] - in.lane_begin[other];
            if (other != i)
                lane.window.push_back({static_cast<std::uint32_t>(other), static_cast<std::uint32_t>(stride),
                                       -static_cast<std::int64_t>(schedule->window_period) * stride});
        }
    }
    schedule->pred_begin.assign(in.pred_begin.begin(), in.pred_begin.end());
    schedule->pred_op.assign(in.pred_op.begin(), in.pred_op.end());
    schedule->pred_distance.assign(in.pred_distance.begin(), in.pred_distance.end());
    schedule->periods.assign(in.periods.begin(), in.periods.end());
    for (std::uint32_t op = 0; op < n_ops; ++op) {
        if (is_external(Kind{in.kind[op]}))
            schedule->externals.push_back(op);
    }
    if (!schedule->externals.empty()) {
        schedule->external_of.assign(n_ops, kNotExternal);
        for (std::uint32_t i = 0; i < schedule->externals.size(); ++i)
            schedule->external_of[schedule->externals[i]] = i;
    }
    schedule->n_posts = in.n_posts;
    schedule->n_holdings = in.n_holdings;
    schedule->until_op = in.until_op;
    schedule->until_every = static_cast<std::uint64_t>(in.until_every);
    if (in.until_op >= 0) {
        schedule->until_lane = lane_of[static_cast<std::size_t>(in.until_op)];
        schedule->until_position = position[static_cast<std::size_t>(in.until_op)];
    }
    return schedule;
}

}  // namespace ostinato
