#include "passes/simulate.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "passes/at.h"

namespace ostinato::passes {

namespace {

// More steps say more about the steady state; large graphs show it sooner, and cost more.
int64_t steps_for(int64_t ops) { return std::clamp<int64_t>(200'000 / ops, 2, 32); }

class Simulation {
public:
    Simulation(const Adjacency& before, std::span<const double> seconds, const Lanes& lanes,
               std::span<const int32_t> order, const MachineModel& model)
        : before_(before), seconds_(seconds), lanes_(lanes), model_(model), ops_(static_cast<int64_t>(order.size())),
          steps_(steps_for(ops_)), sequence_(lanes.home.size()), position_(order.size()), done_(lanes.home.size(), 0),
          free_at_(lanes.home.size(), 0.0), server_(lanes.home.begin(), lanes.home.end()), blocked_(lanes.home.size()),
          finish_(at(ops_ * steps_)),
          thread_free_(at(1 + *std::max_element(lanes.home.begin(), lanes.home.end())), 0.0) {
        for (int32_t op : order) {
            std::vector<int32_t>& lane = sequence_[at(lanes.lane[at(op)])];
            position_[at(op)] = static_cast<int64_t>(lane.size());
            lane.push_back(op);
        }
    }

    double run() {
        for (std::size_t lane = 0; lane < sequence_.size(); ++lane)
            offer(static_cast<int32_t>(lane));
        std::vector<int32_t> woken;
        while (!ready_.empty()) {
            const auto [time, lane] = ready_.top();
            ready_.pop();
            serve(lane, time);
            woken.swap(blocked_[at(lane)]);
            for (int32_t other : woken)
                offer(other);
            woken.clear();
            offer(lane);
        }
        const int64_t half = steps_ / 2;
        // Lanes that run ahead and then wait for others make the last steps look short; threads bound that.
        double work = 0.0;
        for (double s : seconds_)
            work += s;
        return std::max((end_of(steps_) - end_of(half)) / static_cast<double>(steps_ - half),
                        work / static_cast<double>(thread_free_.size()));
    }

private:
    // Puts the lane among the ready ones, or in the list of the lane that its next op waits for.
    void offer(int32_t lane) {
        const auto length = static_cast<int64_t>(sequence_[at(lane)].size());
        if (length == 0 || done_[at(lane)] == steps_ * length)
            return;
        const int64_t step = done_[at(lane)] / length;
        const int32_t op = sequence_[at(lane)][at(done_[at(lane)] % length)];
        double time = free_at_[at(lane)];
        bool looks = false;
        for (int64_t e = before_.start[at(op)]; e < before_.start[at(op) + 1]; ++e) {
            const int32_t from = before_.op[at(e)];
            const int32_t other = lanes_.lane[at(from)];
            const int64_t then = step - before_.distance[at(e)];
            if (other == lane || then < 0)
                continue;
            if (done_[at(other)] <= then * static_cast<int64_t>(sequence_[at(other)].size()) + position_[at(from)]) {
                blocked_[at(other)].push_back(lane);
                return;
            }
            looks = true;
            time = std::max(time, finish_[at(then * ops_ + from)] + model_.transfer);
        }
        ready_.push({looks ? time + model_.look : time, lane});
    }

    void serve(int32_t lane, double ready) {
        const int32_t home = lanes_.home[at(lane)];
        int32_t thread = home;
        double start = std::max(ready, thread_free_[at(home)]);
        if (lanes_.pinned[at(lane)] == 0 && start > ready) {
            for (std::size_t t = 0; t < thread_free_.size(); ++t) {
                const auto other = static_cast<int32_t>(t);
                const double then =
                    std::max(ready, thread_free_[t]) + (other == server_[at(lane)] ? 0.0 : model_.take_up);
                if (then < start) {
                    start = then;
                    thread = other;
                }
            }
        }
        const auto length = static_cast<int64_t>(sequence_[at(lane)].size());
        const int32_t op = sequence_[at(lane)][at(done_[at(lane)] % length)];
        const double end = start + seconds_[at(op)];
        finish_[at(done_[at(lane)] / length * ops_ + op)] = end;
        free_at_[at(lane)] = end;
        thread_free_[at(thread)] = end;
        server_[at(lane)] = thread;
        ++done_[at(lane)];
    }

    double end_of(int64_t steps) const {
        return *std::max_element(finish_.begin() + (steps - 1) * ops_, finish_.begin() + steps * ops_);
    }

    using Ready = std::pair<double, int32_t>;

    const Adjacency& before_;
    std::span<const double> seconds_;
    const Lanes& lanes_;
    const MachineModel& model_;
    int64_t ops_, steps_;
    std::vector<std::vector<int32_t>> sequence_;
    std::vector<int64_t> position_, done_;
    std::vector<double> free_at_;
    std::vector<int32_t> server_;
    std::vector<std::vector<int32_t>> blocked_;
    std::vector<double> finish_, thread_free_;
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
};

}  // namespace

double step_seconds(const Adjacency& before, std::span<const double> seconds, const Lanes& lanes,
                    std::span<const int32_t> order, const MachineModel& model) {
    if (order.empty())
        return 0.0;
    return Simulation(before, seconds, lanes, order, model).run();
}

}  // namespace ostinato::passes
