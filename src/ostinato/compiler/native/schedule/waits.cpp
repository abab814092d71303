#include <algorithm>
#include <limits>

#include "schedule/schedule.h"

namespace ostinato::passes {

namespace {

// How far a lane is known to be: position of its last op known to be done, counted from the first of the step in hand;
// so negative numbers are steps before.
using Known = int32_t;
constexpr Known kNothing = std::numeric_limits<Known>::min() / 2;
// Vectors for all published ops may take so many entries; beyond, ops are taken to imply nothing but themselves.
constexpr int64_t kMostKnown = int64_t{1} << 27;
constexpr int kMostRounds = 16;
// Vectors have an entry for each lane. Of more lanes than this, which only many waits for the outside make, every wait
// is kept: looking for those to leave out would take time and memory by the square of their number.
constexpr int32_t kMostLanes = 2048;

struct Wait {
    int32_t op, distance, lane;
    int64_t position;  // what the wait makes known of `lane`
    bool kept = false;
};

// Vector clocks (Fidge 1988, Mattern 1989) and transitive reduction.
// A wait is left out if what the lane knew before, or another wait of the op, implies it: that is, if another path of
// lane order and waits leads from it to the op. Vectors hold, per op, all that its end implies, as in the steady state
// of infinitely many steps: they are found by going through the step until nothing changes, and less knowledge is
// never wrong. Leaving out is safe from the very first step: if the implied op lies in a step that exists, so do all
// ops on the path, which lie in the steps between.
class Pruning {
public:
    Pruning(EdgeSpan edges, std::span<const int32_t> lane, std::span<const int32_t> order)
        : lane_(lane), order_(order), ops_(static_cast<int32_t>(lane.size())) {
        for (int32_t l : lane)
            lanes_ = std::max(lanes_, l + 1);
        length_.assign(at(lanes_), 0);
        position_.resize(lane.size());
        for (int32_t op : order)
            position_[at(op)] = length_[at(lane[at(op)])]++;
        candidates(edges);
        if (lanes_ > kMostLanes)
            return;
        known_.assign(at(lanes_) * at(lanes_), kNothing);
        if (int64_t{publishers_} * lanes_ <= kMostKnown)
            implied_.assign(at(int64_t{publishers_} * lanes_), kNothing);
    }

    Waits run() {
        if (known_.empty()) {
            for (Wait& w : waits_)
                w.kept = true;
        } else {
            for (int round = 0; round < kMostRounds && step(false); ++round) {
            }
            step(true);
        }
        Waits out;
        out.published.assign(lane_.size(), 0);
        out.start.push_back(0);
        for (std::size_t op = 0; op < lane_.size(); ++op) {
            for (const Wait& w : candidates_of(op)) {
                if (!w.kept)
                    continue;
                out.op.push_back(w.op);
                out.distance.push_back(w.distance);
                out.published[at(w.op)] = 1;
            }
            out.start.push_back(static_cast<int64_t>(out.op.size()));
        }
        return out;
    }

private:
    // Per op and other lane, the latest of the ops that it comes after.
    void candidates(EdgeSpan edges) {
        const Adjacency before = predecessors(ops_, edges);
        publisher_.assign(lane_.size(), -1);
        start_.push_back(0);
        for (int32_t op = 0; op < ops_; ++op) {
            const auto first = static_cast<std::ptrdiff_t>(waits_.size());
            for (const auto [from, distance] : before.of(op)) {
                const int32_t lane = lane_[at(from)];
                if (lane != lane_[at(op)])
                    waits_.push_back(
                        {from, distance, lane, position_[at(from)] - int64_t{distance} * length_[at(lane)]});
            }
            const auto begin = waits_.begin() + first;
            std::sort(begin, waits_.end(), [](const Wait& a, const Wait& b) {
                return a.lane != b.lane ? a.lane < b.lane : a.position > b.position;
            });
            waits_.erase(
                std::unique(begin, waits_.end(), [](const Wait& a, const Wait& b) { return a.lane == b.lane; }),
                waits_.end());
            for (auto w = waits_.begin() + first; w != waits_.end(); ++w)
                if (publisher_[at(w->op)] < 0)
                    publisher_[at(w->op)] = publishers_++;
            start_.push_back(static_cast<int64_t>(waits_.size()));
        }
    }

    std::span<Wait> candidates_of(std::size_t op) {
        return {waits_.data() + start_[op], at(start_[op + 1] - start_[op])};
    }

    // What `wait` implies of `lane`.
    int64_t implied(const Wait& wait, int32_t lane) const {
        if (lane == wait.lane)
            return wait.position;
        if (implied_.empty())
            return kNothing;
        const Known known = implied_[at(int64_t{publisher_[at(wait.op)]} * lanes_ + lane)];
        if (known == kNothing)
            return kNothing;
        return known - int64_t{wait.distance} * length_[at(lane)];
    }

    bool needed(const Wait& wait, std::span<const Wait> all, const Known* known) const {
        if (known[wait.lane] >= wait.position)
            return false;
        return std::none_of(all.begin(), all.end(), [&](const Wait& other) {
            return other.lane != wait.lane && implied(other, wait.lane) >= wait.position;
        });
    }

    // Goes through one step, marking the waits to keep if asked to; whether any op's vector grew.
    bool step(bool mark) {
        bool grew = false;
        for (int32_t op : order_) {
            const int32_t own = lane_[at(op)];
            Known* known = known_.data() + int64_t{own} * lanes_;
            const std::span<Wait> all = candidates_of(at(op));
            if (mark)
                for (Wait& w : all)
                    w.kept = needed(w, all, known);
            for (const Wait& w : all)
                for (int32_t l = 0; l < lanes_; ++l)
                    known[l] = static_cast<Known>(std::max<int64_t>(known[l], implied(w, l)));
            known[own] = position_[at(op)];
            if (publisher_[at(op)] < 0 || implied_.empty())
                continue;
            Known* vector = implied_.data() + int64_t{publisher_[at(op)]} * lanes_;
            grew = grew || !std::equal(vector, vector + lanes_, known);
            std::copy(known, known + lanes_, vector);
        }
        for (std::size_t i = 0; i < known_.size(); ++i) {
            const int64_t before = int64_t{known_[i]} - length_[i % at(lanes_)];
            known_[i] = static_cast<Known>(known_[i] == kNothing ? kNothing : std::max<int64_t>(before, kNothing));
        }
        return grew;
    }

    std::span<const int32_t> lane_, order_;
    int32_t ops_, lanes_ = 0, publishers_ = 0;
    std::vector<int32_t> length_, position_, publisher_;
    std::vector<int64_t> start_;
    std::vector<Wait> waits_;
    std::vector<Known> known_;    // per lane, of every lane
    std::vector<Known> implied_;  // per published op, of every lane
};

}  // namespace

Waits waits(EdgeSpan edges, std::span<const int32_t> lane, std::span<const int32_t> order) {
    return Pruning(edges, lane, order).run();
}

std::vector<int32_t> stuck(EdgeSpan edges, std::span<const int32_t> lane, std::span<const int32_t> order) {
    const auto ops = static_cast<int32_t>(lane.size());
    Edges all{{edges.src.begin(), edges.src.end()},
              {edges.dst.begin(), edges.dst.end()},
              {edges.distance.begin(), edges.distance.end()}};
    std::vector<int32_t> last;
    for (int32_t op : order) {
        const auto l = at(lane[at(op)]);
        if (l >= last.size())
            last.resize(l + 1, -1);
        if (last[l] >= 0)
            all.add(last[l], op, 0);
        last[l] = op;
    }
    std::vector<bool> runs(lane.size(), false);
    for (int32_t op : topological(ops, span_of(all)))
        runs[at(op)] = true;
    std::vector<int32_t> out;
    for (int32_t op = 0; op < ops; ++op)
        if (!runs[at(op)])
            out.push_back(op);
    return out;
}

}  // namespace ostinato::passes
