#include "program/poison.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "park/timeline.h"

namespace ostinato {

namespace {

using Entry = std::pair<std::uint64_t, std::uint32_t>;  // step, operation
using Queue = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;

}  // namespace

void PoisonReach::build_successors(const Schedule& schedule) {
    begin_.assign(schedule.n_ops + 1, 0);
    for (const std::uint32_t before : schedule.pred_op)
        ++begin_[before + 1];
    for (std::uint32_t op = 0; op < schedule.n_ops; ++op)
        begin_[op + 1] += begin_[op];
    successors_.resize(schedule.pred_op.size());
    std::vector<std::uint64_t> next(begin_.begin(), begin_.end() - 1);
    for (std::uint32_t op = 0; op < schedule.n_ops; ++op) {
        for (std::uint64_t i = schedule.pred_begin[op]; i < schedule.pred_begin[op + 1]; ++i)
            successors_[next[schedule.pred_op[i]]++] = {op, schedule.pred_distance[i]};
    }
    idle_.clear();
    for (const LaneOrder& lane : schedule.lanes) {
        for (const Batch& batch : lane.batches) {
            if (batch.kind == Kind::kPrecondition || batch.kind == Kind::kNothing)
                idle_.insert(idle_.end(), lane.ops.begin() + batch.begin, lane.ops.begin() + batch.end);
        }
    }
}

void PoisonReach::spread(const Schedule& schedule, std::span<const std::uint32_t> failed, std::uint64_t step) {
    if (begin_.empty())
        build_successors(schedule);
    if (from_.empty())
        from_.assign(schedule.n_ops, kNever);
    // Dijkstra's algorithm: the first step in which each operation is poisoned, and from those that also poison
    // themselves in the next step, the step from which on each is poisoned in all.
    const auto relax = [&](std::vector<std::uint64_t>& first, Queue& queue) {
        while (!queue.empty()) {
            const auto [at, op] = queue.top();
            queue.pop();
            if (at != first[op])
                continue;
            for (std::uint64_t i = begin_[op]; i < begin_[op + 1]; ++i) {
                const Edge& edge = successors_[i];
                if (at + edge.distance < first[edge.op]) {
                    first[edge.op] = at + edge.distance;
                    queue.push({first[edge.op], edge.op});
                }
            }
        }
    };
    std::vector<std::uint64_t> first(schedule.n_ops, kNever);
    Queue queue;
    for (const std::uint32_t op : failed) {
        first[op] = step;
        queue.push({step, op});
    }
    relax(first, queue);
    for (std::uint32_t op = 0; op < schedule.n_ops; ++op) {
        const bool lasts = std::any_of(successors_.begin() + static_cast<std::ptrdiff_t>(begin_[op]),
                                       successors_.begin() + static_cast<std::ptrdiff_t>(begin_[op + 1]),
                                       [&](const Edge& edge) { return edge.op == op && edge.distance == 1; });
        if (lasts && first[op] < from_[op]) {
            from_[op] = first[op];
            queue.push({from_[op], op});
        }
    }
    relax(from_, queue);
}

std::uint64_t PoisonReach::everything() const {
    if (from_.empty())
        return kNever;
    std::vector<std::uint64_t> from = from_;
    for (const std::uint32_t op : idle_)
        from[op] = 0;
    return *std::max_element(from.begin(), from.end());
}

}  // namespace ostinato
