#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "schedule/schedule.h"

namespace ostinato::passes {

namespace {

constexpr int32_t kLanesPerThread = 4;
// What a placement on more threads, or one harder to understand, must gain; where costs are estimates, more.
constexpr double kWorthEstimated = 0.8, kWorthKnown = 0.95, kWorthAnother = 0.98, kWorthMoves = 0.99;
// What one lane a thread must gain over several, where there are ops enough for these: ops take longer at times. Where
// they do not, several must gain as much: threads get into each other's way more than the model knows.
constexpr double kWorthRigid = 0.9;
constexpr int32_t kManyOps = 8;  // a thread
// More threads than one must pay even if working together costs so many times more than the model says.
constexpr double kDoubt = 3.0;
// And a transfer is taken for this at least: where the system moves threads or virtual cores about, one that was
// measured short may be long by now.
constexpr double kUsualTransfer = 100e-9;
// Graphs of up to so many ops are worth a closer look: more placements and orders are tried, and a search follows,
// which runs so many ops on the model in all, and so many steps of each placement. Where costs are vague, smaller ones
// only.
constexpr int32_t kSmall = 64, kSmallVague = 16;
constexpr int64_t kSearchOps = 12'000, kSearchSteps = 8;

// `lanes` lanes for each of `threads` threads, for the ops that may run anywhere.
struct Shape {
    int32_t threads, lanes;
    int32_t count() const { return threads * lanes; }
};

// A smaller gain is within the noise of the model.
constexpr double kLess = 0.999;

// `Judge` says what a choice takes; the search refers to it.
template <class Judge>
class Search {
public:
    Search(std::vector<int32_t> chosen, const Judge& judge, int64_t tries)
        : chosen_(std::move(chosen)), judge_(judge), tries_(tries - 1), best_(judge(chosen_)) {}

    bool move(std::span<const int32_t> movable, int32_t choices) {
        bool better = false;
        for (const int32_t op : movable) {
            for (int32_t choice = 0; choice < choices && tries_ > 0; ++choice) {
                const int32_t before = chosen_[at(op)];
                if (choice == before)
                    continue;
                chosen_[at(op)] = choice;
                if (accept())
                    better = true;
                else
                    chosen_[at(op)] = before;
            }
        }
        return better;
    }

    bool swap(std::span<const int32_t> movable) {
        for (std::size_t i = 1; i < movable.size(); ++i) {
            for (std::size_t j = 0; j < i && tries_ > 0; ++j) {
                int32_t &a = chosen_[at(movable[i])], &b = chosen_[at(movable[j])];
                if (a == b)
                    continue;
                std::swap(a, b);
                if (accept())
                    return true;
                std::swap(a, b);
            }
        }
        return false;
    }

    std::vector<int32_t> take() { return std::move(chosen_); }

private:
    bool accept() {
        --tries_;
        const double value = judge_(chosen_);
        if (value >= best_ * kLess)
            return false;
        best_ = value;
        return true;
    }

    std::vector<int32_t> chosen_;
    const Judge& judge_;
    int64_t tries_;
    double best_;
};

class Placer {
public:
    explicit Placer(const Work& work)
        : work_(work), ops_(static_cast<int32_t>(work.seconds.size())), before_(predecessors(ops_, work.edges)),
          topological_(topological(ops_, work.edges)), fixed_(work.seconds.size(), kFree) {
        fix();
    }

    Placement run() {
        if (ops_ == 0)
            return {};
        if (small() || work_.threads > 1)
            critical_ = critical();
        if (work_.threads > 1)
            levels_ = levels(before_, topological_);
        Placement best = finish({1, 1}, std::vector<int32_t>(at(ops_), 0));
        if (free_ == 0)
            return best;
        if (!pinned_threads_.empty()) {
            Placement joined = finish_joined();
            if (joined.step_seconds < best.step_seconds * kWorthAnother)
                best = std::move(joined);
        }
        if (work_.threads == 1)
            return best;
        Candidate rigid, several;  // one lane a thread, or some
        for (int32_t threads : counts()) {
            if (small() || work_.steady || !work_.spread)
                try_shapes(rigid, {threads, 1});
            if (work_.spread)
                try_shapes(several, {threads, std::clamp(free_ / threads, 1, kLanesPerThread)});
        }
        if (small())
            search(rigid);
        const bool many = !work_.steady && free_ >= kManyOps * work_.threads;
        Placement chosen = std::move(several.placement);
        if (chosen.lane.empty() || rigid_is_better(rigid.placement, chosen, many))
            chosen = std::move(rigid.placement);
        if (pays(chosen, best))
            best = std::move(chosen);
        return best;
    }

private:
    static constexpr int32_t kFree = -1, kGil = -2;  // else an index into pinned_threads_

    int64_t steps() const { return steps_for(ops_, work_.threads); }

    // Whether the graph is worth a closer look.
    bool small() const { return ops_ <= (work_.steady ? kSmall : kSmallVague); }

    struct Candidate {
        Shape shape{};
        std::vector<int32_t> chosen;  // lanes of free ops
        Placement placement;
    };

    // How many threads to try: fewest first, since more must gain something.
    std::vector<int32_t> counts() const {
        std::vector<int32_t> out;
        for (int32_t threads = work_.threads; threads > 1; threads /= 2)
            out.push_back(threads);
        std::reverse(out.begin(), out.end());
        return out;
    }

    void try_shapes(Candidate& best, Shape shape) {
        std::vector<std::vector<int32_t>> all{blocks(shape, levels_), by_finish(shape), blocks(shape, {})};
        if (small())
            all.push_back(by_load(shape));
        for (std::vector<int32_t>& chosen : all) {
            Placement placement = finish(shape, chosen);
            if (best.chosen.empty() || placement.step_seconds < best.placement.step_seconds * kWorthAnother)
                best = {shape, std::move(chosen), std::move(placement)};
        }
    }

    std::vector<int32_t> longest_first() const {
        std::vector<int32_t> out;
        for (int32_t op = 0; op < ops_; ++op)
            if (fixed_[at(op)] == kFree)
                out.push_back(op);
        std::stable_sort(out.begin(), out.end(),
                         [&](int32_t a, int32_t b) { return work_.seconds[at(a)] > work_.seconds[at(b)]; });
        return out;
    }

    // The longest op that is left goes where there is least to do: good where steps overlap.
    std::vector<int32_t> by_load(Shape shape) const {
        std::vector<double> load(at(shape.count()), 0.0);
        load[0] = gil_seconds_;
        std::vector<int32_t> lane(at(ops_), 0);
        for (const int32_t op : longest_first()) {
            const auto least = std::min_element(load.begin(), load.end());
            lane[at(op)] = static_cast<int32_t>(least - load.begin());
            *least += work_.seconds[at(op)];
        }
        return lane;
    }

    // Puts single ops elsewhere, the longest first.
    void search(Candidate& best) {
        const std::vector<int32_t> movable = longest_first();
        const auto judge = [&](const std::vector<int32_t>& chosen) {
            return finish(best.shape, chosen, kSearchSteps).step_seconds;
        };
        const Shape shape = best.shape;
        std::vector<std::vector<int32_t>> starts{best.chosen, by_load(shape), by_finish(shape)};
        const int64_t tries = kSearchOps / (ops_ * kSearchSteps * static_cast<int64_t>(starts.size()));
        for (std::vector<int32_t>& start : starts) {
            Search search(std::move(start), judge, tries);
            while (search.move(movable, shape.count()) || search.swap(movable))
                continue;
            std::vector<int32_t> found = search.take();
            Placement placement = finish(shape, found);
            if (placement.step_seconds < best.placement.step_seconds * kWorthMoves)
                best = {shape, std::move(found), std::move(placement)};
        }
    }

    static bool rigid_is_better(const Placement& rigid, const Placement& several, bool many) {
        if (rigid.lane.empty())
            return false;
        return many ? rigid.step_seconds < several.step_seconds * kWorthRigid
                    : rigid.step_seconds * kWorthRigid < several.step_seconds;
    }

    // Whether more threads are worth it: gains are, that are not lost in what the model does not know.
    bool pays(const Placement& chosen, const Placement& best) const {
        const MachineModel& m = work_.model;
        const double worth = work_.known ? kWorthKnown : kWorthEstimated;
        if (chosen.step_seconds >= std::min(best.step_seconds * worth, best.step_seconds - m.transfer))
            return false;
        const MachineModel dear{kDoubt * std::max(m.transfer, kUsualTransfer), kDoubt * m.poll, kDoubt * m.switch_,
                                m.wake, m.notify};
        return judge(chosen, dear, steps()) < best.step_seconds;
    }

    double judge(const Placement& p, const MachineModel& model, int64_t steps) const {
        const Lanes lanes{p.lane, p.affinity, p.pinned};
        const std::span<const double> seconds = share_gil(p) ? work_.shared : work_.seconds;
        const auto taken = [&](std::span<const int32_t> sequence) {
            return step_seconds(before_, seconds, lanes, sequence, model, steps);
        };
        if (!small() || p.affinity.size() > at(work_.threads))
            return taken(topological_);
        const std::vector<int32_t> slack = by_slack(before_, p.lane, rank_, topological_, model.transfer);
        return std::min(taken(critical_), taken(slack));
    }

    // Whether several threads take the GIL, which they then hand over to each other.
    bool share_gil(const Placement& p) const {
        int32_t first = -1;
        for (std::size_t op = 0; op < p.lane.size(); ++op) {
            if (work_.shared[op] <= work_.seconds[op])
                continue;
            const int32_t thread = p.affinity[at(p.lane[op])];
            if (first >= 0 && thread != first)
                return true;
            first = thread;
        }
        return false;
    }

    // Which ops have no choice. Those that need the GIL share one lane: two would only take it from each other. That
    // lane is the first free one, or, where such ops are pinned, the lane of the first thread that they are pinned to.
    void fix() {
        std::map<int32_t, bool> threads;  // and whether ops that need the GIL are among those pinned there
        for (std::size_t op = 0; op < fixed_.size(); ++op)
            if (work_.thread_of[op] >= 0)
                threads[work_.thread_of[op]] |= work_.gil_bound[op] != 0;
        std::map<int32_t, int32_t> index;
        int32_t gil = kGil;
        for (const auto& [thread, needs_gil] : threads) {
            index[thread] = static_cast<int32_t>(pinned_threads_.size());
            if (needs_gil && gil == kGil)
                gil = index[thread];
            pinned_threads_.push_back(thread);
        }
        for (std::size_t op = 0; op < fixed_.size(); ++op) {
            if (work_.thread_of[op] >= 0)
                fixed_[op] = index[work_.thread_of[op]];
            else if (work_.gil_bound[op] != 0)
                fixed_[op] = gil;
            if (fixed_[op] == kFree) {
                ++free_;
                free_seconds_ += work_.seconds[op];
            } else if (fixed_[op] == kGil) {
                gil_seconds_ += work_.seconds[op];
            }
        }
    }

    // Completes a choice of lanes for the free ops: lanes of pinned threads come last, empty ones are dropped.
    Placement finish(Shape shape, const std::vector<int32_t>& chosen, int64_t steps = 0) const {
        std::vector<int32_t> lane(at(ops_));
        std::vector<int32_t> number(at(shape.count()) + pinned_threads_.size(), -1);
        for (std::size_t op = 0; op < lane.size(); ++op) {
            lane[op] = fixed_[op] == kFree ? chosen[op] : fixed_[op] == kGil ? 0 : shape.count() + fixed_[op];
            number[at(lane[op])] = 0;
        }
        Placement out;
        for (std::size_t l = 0; l < number.size(); ++l) {
            if (number[l] < 0)
                continue;
            number[l] = static_cast<int32_t>(out.affinity.size());
            const bool pinned = l >= at(shape.count());
            out.affinity.push_back(pinned ? pinned_threads_[l - at(shape.count())]
                                          : static_cast<int32_t>(l) / shape.lanes);
            out.pinned.push_back(pinned ? 1 : 0);
        }
        for (int32_t& l : lane)
            l = number[at(l)];
        out.lane = std::move(lane);
        out.step_seconds = out.affinity.size() == 1 ? std::accumulate(work_.seconds.begin(), work_.seconds.end(), 0.0)
                                                    : judge(out, work_.model, steps == 0 ? this->steps() : steps);
        return out;
    }

    // Everything free on the pinned lane that has most to do.
    Placement finish_joined() const {
        std::vector<double> load(pinned_threads_.size(), 0.0);
        for (std::size_t op = 0; op < fixed_.size(); ++op)
            if (fixed_[op] >= 0)
                load[at(fixed_[op])] += work_.seconds[op];
        const auto most = static_cast<int32_t>(std::max_element(load.begin(), load.end()) - load.begin());
        return finish({1, 1}, std::vector<int32_t>(at(ops_), 1 + most));
    }

    // Cuts each level, or without levels the whole step, into batches of equal cost in program order: what is written
    // side by side stays together. The lane that holds the GIL gets what is left of its share.
    std::vector<int32_t> blocks(Shape shape, const std::vector<int32_t>& level) const {
        const int32_t lanes = shape.count();
        std::vector<double> edge(at(lanes));  // where the share of each lane ends
        const double share = (free_seconds_ + gil_seconds_) / lanes;
        const double first = std::max(0.0, share - gil_seconds_);
        for (int32_t l = 0; l < lanes; ++l)
            edge[at(l)] = (first + (free_seconds_ - first) * l / std::max(1, lanes - 1)) / free_seconds_;
        std::vector<double> sum(level.empty() ? 1 : at(1 + *std::max_element(level.begin(), level.end())), 0.0);
        for (int32_t op : topological_)
            if (fixed_[at(op)] == kFree)
                sum[level.empty() ? 0 : at(level[at(op)])] += work_.seconds[at(op)];
        std::vector<double> passed(sum.size(), 0.0);
        std::vector<int32_t> lane(at(ops_), 0);
        for (int32_t op : topological_) {
            if (fixed_[at(op)] != kFree)
                continue;
            const std::size_t k = level.empty() ? 0 : at(level[at(op)]);
            const double middle = (passed[k] + work_.seconds[at(op)] / 2) / sum[k];
            passed[k] += work_.seconds[at(op)];
            const auto end = std::upper_bound(edge.begin(), edge.end(), middle);
            lane[at(op)] = static_cast<int32_t>(std::min<std::ptrdiff_t>(end - edge.begin(), lanes - 1));
        }
        return lane;
    }

    // A linear extension: of the ops that are ready the one with the longest path ahead comes first.
    std::vector<int32_t> critical() {
        const Adjacency after = successors(ops_, work_.edges);
        rank_ = ranks(after, work_.seconds, {}, topological_, work_.model);
        const auto later = [this](int32_t a, int32_t b) {
            return rank_[at(a)] != rank_[at(b)] ? rank_[at(a)] < rank_[at(b)] : a > b;
        };
        return linear_extension(ops_, work_.edges, after, later);
    }

    // Earliest finish time, as HEFT has it (Topcuoglu, Hariri, Wu 2002): of the ops that are ready the one with the
    // longest path ahead goes where it ends first. A thread's ops are then dealt to its lanes so that what follows each
    // other stays together.
    std::vector<int32_t> by_finish(Shape shape) const {
        std::vector<double> thread_free(at(shape.threads) + pinned_threads_.size(), 0.0), finish(at(ops_), 0.0);
        std::vector<double> lane_load(at(shape.count()), 0.0);
        std::vector<int32_t> lane_tail(at(shape.count()), -1), thread(at(ops_), 0), lane(at(ops_), 0);
        if (gil_seconds_ > 0.0)
            lane_load[0] = gil_seconds_;
        for (const int32_t op : critical_) {
            int32_t first = 0, last = shape.threads;
            if (fixed_[at(op)] != kFree) {
                first = fixed_[at(op)] == kGil ? 0 : shape.threads + fixed_[at(op)];
                last = first + 1;
            }
            double best = -1.0;
            for (int32_t t = first; t < last; ++t) {
                double start = thread_free[at(t)];
                for (const auto [from, distance] : before_.of(op))
                    if (distance == 0)
                        start =
                            std::max(start, finish[at(from)] + (thread[at(from)] == t ? 0.0 : work_.model.transfer));
                if (best < 0.0 || start < best) {
                    best = start;
                    thread[at(op)] = t;
                }
            }
            finish[at(op)] = best + work_.seconds[at(op)];
            thread_free[at(thread[at(op)])] = finish[at(op)];
            if (fixed_[at(op)] == kFree)
                lane[at(op)] = lane_of(shape, op, thread[at(op)], lane_load, lane_tail);
        }
        return lane;
    }

    int32_t lane_of(Shape shape, int32_t op, int32_t thread, std::vector<double>& load,
                    std::vector<int32_t>& tail) const {
        const int32_t first = thread * shape.lanes;
        int32_t chosen = first;
        for (int32_t l = first; l < first + shape.lanes; ++l)
            if (load[at(l)] < load[at(chosen)])
                chosen = l;
        for (int32_t l = first; l < first + shape.lanes; ++l)
            for (const auto [from, distance] : before_.of(op))
                if (distance == 0 && from == tail[at(l)])
                    chosen = l;
        load[at(chosen)] += work_.seconds[at(op)];
        tail[at(chosen)] = op;
        return chosen;
    }

    const Work& work_;
    int32_t ops_;
    Adjacency before_;
    std::vector<int32_t> topological_, critical_, fixed_, pinned_threads_, levels_;
    int32_t free_ = 0;
    std::vector<double> rank_;  // by op: seconds of the longest path that it begins
    double free_seconds_ = 0.0, gil_seconds_ = 0.0;
};

}  // namespace

Placement place(const Work& work) { return Placer(work).run(); }

}  // namespace ostinato::passes
