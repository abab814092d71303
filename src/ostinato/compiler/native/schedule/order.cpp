#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <tuple>

#include "schedule/schedule.h"

namespace ostinato::passes {

namespace {

struct Key {
    int32_t priority;
    double rank;
    int32_t op;

    // Less means later: the most urgent first, then the head of the longest path, then program order.
    bool operator<(const Key& other) const {
        return std::tie(priority, rank, other.op) < std::tie(other.priority, other.rank, op);
    }
};

// Runs one step on a model in which every lane has a thread, each taking at every turn the best op that is ready.
class ListSchedule {
public:
    ListSchedule(const Placed& placed, const Adjacency& after, std::span<const int32_t> priority,
                 std::span<const uint8_t> gil_bound, std::vector<double> rank)
        : placed_(placed), after_(after), priority_(priority), gil_bound_(gil_bound), rank_(std::move(rank)),
          missing_(count_sources(static_cast<int32_t>(rank_.size()), placed.edges)), ready_at_(rank_.size(), 0.0),
          lanes_(placed.lanes.affinity.size()) {}

    std::vector<int32_t> run() {
        for (std::size_t op = 0; op < missing_.size(); ++op)
            if (missing_[op] == 0)
                make_ready(static_cast<int32_t>(op));
        std::vector<int32_t> out;
        out.reserve(missing_.size());
        while (!turns_.empty()) {
            const auto [time, index] = turns_.top();
            turns_.pop();
            Lane& lane = lanes_[at(index)];
            if (time < lane.free_at)
                continue;  // it has had this turn already
            const int32_t op = take(lane, time);
            if (op < 0)
                continue;
            out.push_back(op);
            lane.free_at = time + placed_.seconds[at(op)];
            release(op, lane.free_at);
            announce(index);
        }
        return out;
    }

private:
    using Turn = std::pair<double, int32_t>;
    struct Lane {
        std::priority_queue<Turn, std::vector<Turn>, std::greater<>> coming;  // by the time at which they are ready
        std::array<std::priority_queue<Key>, 2> ready;                        // without and with the GIL
        double free_at = 0.0;
        uint8_t last = 0;  // whether its last op needed the GIL
    };

    int32_t take(Lane& lane, double time) {
        while (!lane.coming.empty() && lane.coming.top().first <= time) {
            const int32_t op = lane.coming.top().second;
            lane.coming.pop();
            lane.ready[gil_bound_[at(op)]].push({priority_[at(op)], rank_[at(op)], op});
        }
        auto &same = lane.ready[lane.last], &other = lane.ready[1 - lane.last];
        if (same.empty() && other.empty())
            return -1;
        // Ops of one kind stay together, so that the GIL is taken and given back seldom; unless one is more urgent.
        if (same.empty() || (!other.empty() && other.top().priority > same.top().priority))
            lane.last = 1 - lane.last;
        auto& chosen = lane.ready[lane.last];
        const int32_t op = chosen.top().op;
        chosen.pop();
        return op;
    }

    void release(int32_t op, double end) {
        for (const auto [next, distance] : after_.of(op)) {
            if (distance != 0)
                continue;
            const bool crosses = placed_.lanes.lane[at(next)] != placed_.lanes.lane[at(op)];
            ready_at_[at(next)] = std::max(ready_at_[at(next)], end + (crosses ? placed_.model.transfer : 0.0));
            if (--missing_[at(next)] == 0)
                make_ready(next);
        }
    }

    void make_ready(int32_t op) {
        const int32_t lane = placed_.lanes.lane[at(op)];
        lanes_[at(lane)].coming.push({ready_at_[at(op)], op});
        announce(lane);
    }

    void announce(int32_t index) {
        const Lane& lane = lanes_[at(index)];
        if (!lane.ready[0].empty() || !lane.ready[1].empty())
            turns_.push({lane.free_at, index});
        else if (!lane.coming.empty())
            turns_.push({std::max(lane.free_at, lane.coming.top().first), index});
    }

    const Placed& placed_;
    const Adjacency& after_;
    std::span<const int32_t> priority_;
    std::span<const uint8_t> gil_bound_;
    std::vector<double> rank_;
    std::vector<int32_t> missing_;
    std::vector<double> ready_at_;
    std::vector<Lane> lanes_;
    std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
};

template <class T>
bool all_equal(std::span<const T> values) {
    return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

}  // namespace

std::vector<int32_t> by_slack(const Adjacency& before, std::span<const int32_t> lane, std::span<const double> rank,
                              std::span<const int32_t> topological, double transfer) {
    constexpr int kSteps = 16;
    const double shortest = transfer / 50;
    std::vector<double> start(topological.size(), 0.0), last(topological.size(), 0.0);
    for (int step = 0; step < kSteps; ++step) {
        start.swap(last);
        for (const int32_t op : topological) {
            double earliest = 0.0;
            for (const auto [source, distance] : before.of(op)) {
                const bool crosses = lane[at(source)] != lane[at(op)];
                const double from = distance == 0 ? start[at(source)] : last[at(source)];
                earliest = std::max(earliest, from + shortest + (crosses ? transfer : 0.0));
            }
            start[at(op)] = earliest;
        }
    }
    std::vector<int32_t> out(topological.begin(), topological.end());
    std::stable_sort(out.begin(), out.end(), [&](int32_t a, int32_t b) {
        return start[at(a)] != start[at(b)] ? start[at(a)] < start[at(b)] : rank[at(a)] > rank[at(b)];
    });
    return out;
}

std::vector<double> ranks(const Adjacency& after, std::span<const double> seconds, std::span<const int32_t> lane,
                          std::span<const int32_t> topological, const MachineModel& model) {
    std::vector<double> rank(topological.size());
    for (std::size_t i = topological.size(); i-- > 0;) {
        const int32_t op = topological[i];
        double longest = 0.0;
        for (const auto [next, distance] : after.of(op)) {
            const double transfer = lane.empty() || lane[at(next)] != lane[at(op)] ? model.transfer : 0.0;
            // Where only a later step waits, the result should still be there early.
            longest = std::max(longest, transfer + (distance == 0 ? rank[at(next)] : 0.0));
        }
        rank[at(op)] = seconds[at(op)] + longest;
    }
    return rank;
}

std::vector<int32_t> order(const Placed& placed, std::span<const int32_t> priority,
                           std::span<const uint8_t> gil_bound) {
    const Lanes& lanes = placed.lanes;
    const auto ops = static_cast<int32_t>(lanes.lane.size());
    std::vector<int32_t> plain = topological(ops, placed.edges);
    const bool free_choice = all_equal(priority) && all_equal(gil_bound);
    if (free_choice && lanes.affinity.size() <= 1)
        return plain;
    const Adjacency after = successors(ops, placed.edges);
    // On a single lane nobody waits for anybody: there program order is best, since memory was laid out by it.
    std::vector<double> rank(at(ops), 0.0);
    if (lanes.affinity.size() > 1)
        rank = ranks(after, placed.seconds, lanes.lane, plain, placed.model);
    std::vector<int32_t> listed = ListSchedule(placed, after, priority, gil_bound, rank).run();
    if (!free_choice)
        return listed;
    const Adjacency before = predecessors(ops, placed.edges);
    const int64_t steps = steps_for(ops, 1 + *std::max_element(lanes.affinity.begin(), lanes.affinity.end()));
    const auto taken = [&](std::span<const int32_t> sequence) {
        return step_seconds(before, placed.seconds, lanes, sequence, placed.model, steps);
    };
    const double as_written = taken(plain), as_listed = taken(listed);
    // Costs are estimates, and may be too high: where they decide nothing, let transfers decide.
    std::vector<int32_t> slack = by_slack(before, lanes.lane, rank, plain, placed.model.transfer);
    if (taken(slack) < 1.02 * std::min(as_written, as_listed))
        return slack;
    return as_listed < 0.98 * as_written ? listed : plain;
}

}  // namespace ostinato::passes
