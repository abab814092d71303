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

// Which of a lane's ops that are ready is next: the head of the longest path.
class ByPath {
public:
    ByPath(std::span<const int32_t> priority, std::span<const uint8_t> gil_bound, std::span<const double> rank,
           std::size_t lanes)
        : priority_(priority), gil_bound_(gil_bound), rank_(rank), lanes_(lanes) {}

    void add(int32_t lane, int32_t op) {
        lanes_[at(lane)].ready[gil_bound_[at(op)]].push({priority_[at(op)], rank_[at(op)], op});
    }

    bool empty(int32_t lane) const {
        const auto& ready = lanes_[at(lane)].ready;
        return ready[0].empty() && ready[1].empty();
    }

    int32_t take(int32_t index) {
        Lane& lane = lanes_[at(index)];
        auto &same = lane.ready[lane.last], &other = lane.ready[1 - lane.last];
        // Ops of one kind stay together, so that the GIL is taken and given back seldom; unless one is more urgent.
        if (same.empty() || (!other.empty() && other.top().priority > same.top().priority))
            lane.last = 1 - lane.last;
        auto& chosen = lane.ready[lane.last];
        const int32_t op = chosen.top().op;
        chosen.pop();
        return op;
    }

private:
    struct Lane {
        std::array<std::priority_queue<Key>, 2> ready;  // without and with the GIL
        uint8_t last = 0;                               // whether its last op needed the GIL
    };
    std::span<const int32_t> priority_;
    std::span<const uint8_t> gil_bound_;
    std::span<const double> rank_;
    std::vector<Lane> lanes_;
};

// The cells of arrays in a cache that evicts those used longest ago. Of a cell, as much is there as was ever used of it
// since it came.
class Cache {
public:
    Cache(const Footprints& footprints, int64_t capacity)
        : footprints_(footprints), capacity_(capacity), there_(at(footprints.cells), 0),
          links_(at(footprints.cells) + 1) {
        links_.back() = {end(), end()};
    }

    // How much of the bytes that an op uses is there, as a share.
    double share(int32_t op) const {
        int64_t found = 0, all = 0;
        for (int64_t i = footprints_.start[at(op)]; i < footprints_.start[at(op) + 1]; ++i) {
            found += std::min(there_[at(footprints_.cell[at(i)])], footprints_.bytes[at(i)]);
            all += footprints_.bytes[at(i)];
        }
        return all == 0 ? 1.0 : static_cast<double>(found) / static_cast<double>(all);
    }

    // Returns how many bytes are fetched for an op.
    int64_t use(int32_t op) {
        int64_t fetched = 0;
        for (int64_t i = footprints_.start[at(op)]; i < footprints_.start[at(op) + 1]; ++i) {
            const int32_t cell = footprints_.cell[at(i)];
            int64_t& there = there_[at(cell)];
            const int64_t missing = std::max<int64_t>(0, footprints_.bytes[at(i)] - there);
            if (there > 0)
                unlink(cell);
            link(cell);
            there += missing;
            used_ += missing;
            fetched += missing;
        }
        while (used_ > capacity_) {
            const int32_t oldest = links_[at(end())].next;
            unlink(oldest);
            used_ -= there_[at(oldest)];
            there_[at(oldest)] = 0;
        }
        return fetched;
    }

private:
    struct Link {
        int32_t before, next;
    };
    int32_t end() const { return footprints_.cells; }  // between the cell used last and the one used longest ago

    void unlink(int32_t cell) {
        const auto [before, next] = links_[at(cell)];
        links_[at(before)].next = next;
        links_[at(next)].before = before;
    }

    void link(int32_t cell) {
        const int32_t last = links_[at(end())].before;
        links_[at(cell)] = {last, end()};
        links_[at(last)].next = cell;
        links_[at(end())].before = cell;
    }

    const Footprints& footprints_;
    const int64_t capacity_;
    int64_t used_ = 0;
    std::vector<int64_t> there_;
    std::vector<Link> links_;
};

// Which of a lane's ops that are ready is next: the one of whose data the largest share is in the cache of its thread.
class ByCache {
public:
    ByCache(const Footprints& footprints, int64_t capacity, std::size_t lanes)
        : ready_(lanes), caches_(lanes, Cache(footprints, capacity)) {}

    void add(int32_t lane, int32_t op) { ready_[at(lane)].push_back(op); }
    bool empty(int32_t lane) const { return ready_[at(lane)].empty(); }

    int32_t take(int32_t lane) {
        auto& ready = ready_[at(lane)];
        std::size_t best = 0;
        double most = -1.0;
        for (std::size_t i = 0; i < ready.size(); ++i) {
            const double share = caches_[at(lane)].share(ready[i]);
            if (share > most || (share == most && ready[i] < ready[best])) {
                most = share;
                best = i;
            }
        }
        const int32_t op = ready[best];
        ready[best] = ready.back();
        ready.pop_back();
        caches_[at(lane)].use(op);
        return op;
    }

private:
    std::vector<std::vector<int32_t>> ready_;
    std::vector<Cache> caches_;
};

// Runs one step on a model in which every lane has a thread, each taking at every turn the op that `Choice` prefers
// among those that are ready.
template <class Choice>
class ListSchedule {
public:
    ListSchedule(const Placed& placed, const Adjacency& after, Choice choice)
        : placed_(placed), after_(after), choice_(std::move(choice)),
          missing_(count_sources(static_cast<int32_t>(placed.seconds.size()), placed.edges)),
          ready_at_(missing_.size(), 0.0), lanes_(placed.lanes.affinity.size()) {}

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
            while (!lane.coming.empty() && lane.coming.top().first <= time) {
                choice_.add(index, lane.coming.top().second);
                lane.coming.pop();
            }
            if (choice_.empty(index))
                continue;
            const int32_t op = choice_.take(index);
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
        double free_at = 0.0;
    };

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
        if (!choice_.empty(index))
            turns_.push({lane.free_at, index});
        else if (!lane.coming.empty())
            turns_.push({std::max(lane.free_at, lane.coming.top().first), index});
    }

    const Placed& placed_;
    const Adjacency& after_;
    Choice choice_;
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
    ByPath choice(priority, gil_bound, rank, lanes.affinity.size());
    std::vector<int32_t> listed = ListSchedule(placed, after, std::move(choice)).run();
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

std::vector<int32_t> order_for_caches(const Placed& placed, const Footprints& footprints, int64_t capacity) {
    const Adjacency after = successors(static_cast<int32_t>(placed.seconds.size()), placed.edges);
    return ListSchedule(placed, after, ByCache(footprints, capacity, placed.lanes.affinity.size())).run();
}

int64_t fetched_bytes(std::span<const int32_t> lane, std::span<const int32_t> order, const Footprints& footprints,
                      int64_t capacity) {
    const auto lanes = lane.empty() ? 0 : at(*std::max_element(lane.begin(), lane.end()) + 1);
    std::vector<Cache> caches(lanes, Cache(footprints, capacity));
    int64_t fetched = 0;
    for (int step = 0; step < 2; ++step) {  // the second one finds what the first one left
        fetched = 0;
        for (const int32_t op : order)
            fetched += caches[at(lane[at(op)])].use(op);
    }
    return fetched;
}

}  // namespace ostinato::passes
