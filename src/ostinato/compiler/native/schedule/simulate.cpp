#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "schedule/schedule.h"

namespace ostinato::passes {

namespace {

// A thread polls for so long before it sleeps: where it has one lane, first that one's head.
constexpr double kPolls = 40e-6, kPollsAlone = 90e-6;

constexpr std::size_t kBlock = 32;  // so many threads are passed over at once

// Seconds a step, when the first `steps` are known to the last op.
double settled(std::span<const double> finish, std::span<const double> seconds, int64_t steps, std::size_t threads) {
    const auto ops = static_cast<int64_t>(seconds.size());
    const auto end_of = [&](int64_t count) {
        const auto begin = finish.begin() + (count - 1) * ops;
        return *std::max_element(begin, begin + ops);
    };
    const int64_t half = steps / 2;
    // Lanes that run ahead and then wait for others make the last steps look short; threads bound that.
    const double work = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    return std::max((end_of(steps) - end_of(half)) / static_cast<double>(steps - half),
                    work / static_cast<double>(threads));
}

// The same where each lane has a thread of its own, which nothing is taken up from: op by op in order, without a queue.
double step_seconds_alone(const Adjacency& before, std::span<const double> seconds, const Lanes& lanes,
                          std::span<const int32_t> order, const MachineModel& model, int64_t steps,
                          std::size_t threads) {
    const auto ops = static_cast<int64_t>(order.size());
    const std::size_t count = lanes.affinity.size();
    std::vector<double> finish(at(ops * steps)), free_at(count, 0.0);
    std::vector<double> seen(count * count, 0.0);  // until when each lane knows of each
    for (int64_t step = 0; step < steps; ++step) {
        for (const int32_t op : order) {
            const int32_t lane = lanes.lane[at(op)];
            const double free = free_at[at(lane)];
            double ready = free;
            int32_t last = -1;  // the lane whose result comes last
            for (const auto [from, distance] : before.of(op)) {
                const int64_t then = step - distance;
                const int32_t other = lanes.lane[at(from)];
                if (other == lane || then < 0)
                    continue;
                const double end = finish[at(then * ops + from)];
                double& known = seen[at(lane) * count + at(other)];
                if (end <= known)
                    continue;
                // Where the result is there, the line is still the other core's: half of a transfer.
                const double there = std::max(end + model.transfer, free + model.transfer / 2);
                if (last < 0 || there > ready)
                    last = other;
                ready = std::max(ready, there);
                known = std::max(end, ready - model.transfer);
            }
            if (last >= 0)
                ready += model.poll;
            if (ready - free > kPollsAlone) {
                ready += model.wake;
                free_at[at(last)] += model.notify;
            }
            free_at[at(lane)] = finish[at(step * ops + op)] = ready + seconds[at(op)];
        }
    }
    return settled(finish, seconds, steps, threads);
}

bool each_alone(std::span<const int32_t> affinity) {
    std::vector<int32_t> sorted(affinity.begin(), affinity.end());
    std::sort(sorted.begin(), sorted.end());
    return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
}

class Simulation {
public:
    Simulation(const Adjacency& before, std::span<const double> seconds, const Lanes& lanes,
               std::span<const int32_t> order, const MachineModel& model, int64_t steps)
        : before_(before), seconds_(seconds), lanes_(lanes), model_(model), ops_(static_cast<int64_t>(order.size())),
          steps_(steps), sequence_(lanes.affinity.size()), position_(order.size()), done_(lanes.affinity.size(), 0),
          free_at_(lanes.affinity.size(), 0.0), blocked_(lanes.affinity.size()), finish_(at(ops_ * steps_)),
          thread_free_(at(1 + *std::max_element(lanes.affinity.begin(), lanes.affinity.end())), 0.0),
          released_by_(lanes.affinity.size(), -1), serves_(thread_free_.size(), -1),
          ready_at_(lanes.affinity.size(), 0.0), ready_(thread_free_.size()), version_(thread_free_.size(), 0),
          held_by_(lanes.affinity.size(), 0), unused_(thread_free_.size()), served_by_(lanes.affinity.size(), -1),
          blocks_((thread_free_.size() + kBlock - 1) / kBlock) {
        for (std::size_t b = 0; b < blocks_.size(); ++b)
            blocks_[b].unused = end_of(b) - b * kBlock;
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
        while (!affinities_.empty()) {
            const Entry entry = affinities_.top();
            affinities_.pop();
            if (entry.version != version_[at(entry.affinity)])
                continue;
            const Turn now = next_of(entry.affinity);
            if (now > entry.turn) {  // threads have done something else since this was said
                announce(entry.affinity, now);
                continue;
            }
            std::erase(ready_[at(entry.affinity)], now.lane);
            ++version_[at(entry.affinity)];
            serve(now.lane, thread_for(now.lane));
            woken.swap(blocked_[at(now.lane)]);
            woken.push_back(now.lane);
            for (int32_t other : woken)
                offer(other);
            woken.clear();
            if (!ready_[at(entry.affinity)].empty())
                announce(entry.affinity, next_of(entry.affinity));
        }
        return settled(finish_, seconds_, steps_, thread_free_.size());
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
        int32_t last = -1;
        for (const auto [from, distance] : before_.of(op)) {
            const int32_t other = lanes_.lane[at(from)];
            const int64_t then = step - distance;
            if (other == lane || then < 0)
                continue;
            if (done_[at(other)] <= then * static_cast<int64_t>(sequence_[at(other)].size()) + position_[at(from)]) {
                blocked_[at(other)].push_back(lane);
                return;
            }
            const double there = finish_[at(then * ops_ + from)] + model_.transfer;
            if (last < 0 || there > time)
                last = other;
            time = std::max(time, there);
        }
        released_by_[at(lane)] = last;
        ready_at_[at(lane)] = time;
        const int32_t affinity = lanes_.affinity[at(lane)];
        ready_[at(affinity)].push_back(lane);
        announce(affinity, next_of(affinity));
    }

    // When a thread comes to a lane. Of lanes that it comes to at the same time it stays with the one in hand, to the
    // end of that one's step; then come those that have been ready for longest.
    struct Turn {
        double time;
        bool turns;
        double ready;
        int32_t lane;
        auto key() const { return std::tie(time, turns, ready, lane); }
        bool operator>(const Turn& other) const { return key() > other.key(); }
    };

    // What of the lanes with affinity somewhere is next; of each affinity the last one said holds.
    struct Entry {
        Turn turn;
        int32_t affinity;
        uint32_t version;
        bool operator>(const Entry& other) const { return turn > other.turn; }
    };

    void announce(int32_t affinity, const Turn& turn) { affinities_.push({turn, affinity, ++version_[at(affinity)]}); }

    Turn next_of(int32_t affinity) const {
        Turn best{std::numeric_limits<double>::infinity(), true, 0.0, 0};
        for (const int32_t lane : ready_[at(affinity)])
            if (const Turn turn = turn_of(lane, thread_for(lane)); best > turn)
                best = turn;
        return best;
    }

    Turn turn_of(int32_t lane, int32_t thread) const {
        const double ready = ready_at_[at(lane)];
        const bool begins = done_[at(lane)] % static_cast<int64_t>(sequence_[at(lane)].size()) == 0;
        return {std::max(ready, thread_free_[at(thread)]), begins || serves_[at(thread)] != lane, ready, lane};
    }

    // Threads that are looked at together: when they are free, and how many have served nothing.
    struct Block {
        double least = 0.0, greatest = 0.0;
        std::size_t unused = 0;
    };

    // When a thread could begin an op of a lane that is ready then.
    double start_on(int32_t thread, int32_t lane, double ready) const {
        const double free = thread_free_[at(thread)];
        const bool turns = serves_[at(thread)] != lane && serves_[at(thread)] >= 0;
        return std::max(ready, free) + (turns ? model_.switch_ : 0.0) + (ready - free > kPolls ? model_.wake : 0.0);
    }

    // No thread of a block begins earlier. If `known`, the lane is in the hands of none, or of one that was looked at.
    double least_start(const Block& block, double ready, bool known) const {
        const bool turns = known && block.unused == 0;
        return std::max(ready, block.least) + (turns ? model_.switch_ : 0.0) +
               (ready - block.greatest > kPolls ? model_.wake : 0.0);
    }

    std::size_t end_of(std::size_t block) const { return std::min((block + 1) * kBlock, thread_free_.size()); }

    // What is said of a thread's block, after it has served a lane.
    [[gnu::noinline]] void sum_up(int32_t thread) {
        const std::size_t b = at(thread) / kBlock;
        const auto begin = thread_free_.begin() + static_cast<std::ptrdiff_t>(b * kBlock);
        const auto end = thread_free_.begin() + static_cast<std::ptrdiff_t>(end_of(b));
        blocks_[b].least = *std::min_element(begin, end);
        blocks_[b].greatest = *std::max_element(begin, end);
    }

    // The thread that is free first; of equal ones, the first.
    int32_t free_first() const {
        const auto least = [](const Block& a, const Block& b) { return a.least < b.least; };
        const auto block = std::min_element(blocks_.begin(), blocks_.end(), least) - blocks_.begin();
        const auto begin = thread_free_.begin() + block * static_cast<std::ptrdiff_t>(kBlock);
        const auto end = thread_free_.begin() + static_cast<std::ptrdiff_t>(end_of(at(block)));
        return static_cast<int32_t>(std::min_element(begin, end) - thread_free_.begin());
    }

    // The lane's affinity, or a thread that can begin its next op earlier.
    int32_t thread_for(int32_t lane) const {
        const int32_t affinity = lanes_.affinity[at(lane)];
        const double ready = ready_at_[at(lane)];
        if (lanes_.pinned[at(lane)] != 0 || thread_free_[at(affinity)] <= ready)
            return affinity;
        int32_t thread = affinity;
        double start = start_on(affinity, lane, ready);
        // Where all threads are busy, and none of the others has the lane in hand, there is one to ask.
        if (thread_free_[at(first_)] > ready && unused_ == 0 &&
            held_by_[at(lane)] == (serves_[at(affinity)] == lane ? 1 : 0))
            return start_on(first_, lane, ready) < start ? first_ : affinity;
        if (blocks_.size() > 1)
            return thread_among_many(lane, start);
        for (std::size_t t = 0; t < thread_free_.size(); ++t) {
            const auto other = static_cast<int32_t>(t);
            if (const double then = start_on(other, lane, ready); then < start) {
                start = then;
                thread = other;
            }
        }
        return thread;
    }

    // The same, where blocks of threads can be passed over; `start`: when the affinity can begin.
    [[gnu::noinline]] int32_t thread_among_many(int32_t lane, double start) const {
        const int32_t affinity = lanes_.affinity[at(lane)];
        const double ready = ready_at_[at(lane)];
        int32_t thread = affinity;
        // The one that served the lane last may have it in hand: it need not take it up.
        const int32_t last = served_by_[at(lane)];
        const bool has = last >= 0 && last != affinity && serves_[at(last)] == lane;
        if (has && start_on(last, lane, ready) < start) {
            start = start_on(last, lane, ready);
            thread = last;
        }
        const int32_t known = (serves_[at(affinity)] == lane ? 1 : 0) + (has ? 1 : 0);
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
            const double least = least_start(blocks_[b], ready, held_by_[at(lane)] == known);
            const bool ties = thread != affinity && b * kBlock < at(thread);  // of equal ones, the first
            if (least > start || (least == start && !ties))
                continue;
            for (std::size_t t = b * kBlock; t < end_of(b); ++t) {
                const auto other = static_cast<int32_t>(t);
                const double then = start_on(other, lane, ready);
                if (then < start || (then == start && thread != affinity && other < thread)) {
                    start = then;
                    thread = other;
                }
            }
        }
        return thread;
    }

    void serve(int32_t lane, int32_t thread) {
        const double ready = ready_at_[at(lane)];
        const double poll = released_by_[at(lane)] >= 0 ? model_.poll : 0.0;
        const double start = start_on(thread, lane, ready) + poll;
        const auto length = static_cast<int64_t>(sequence_[at(lane)].size());
        const int32_t op = sequence_[at(lane)][at(done_[at(lane)] % length)];
        if (const int32_t last = released_by_[at(lane)]; last >= 0 && ready - thread_free_[at(thread)] > kPolls)
            free_at_[at(last)] += model_.notify;
        const double end = start + seconds_[at(op)];
        finish_[at(done_[at(lane)] / length * ops_ + op)] = end;
        free_at_[at(lane)] = end;
        thread_free_[at(thread)] = end;
        if (blocks_.size() > 1)
            sum_up(thread);
        if (thread == first_)  // else it still is: times only grow
            first_ = free_first();
        const int32_t before = std::exchange(serves_[at(thread)], lane);
        if (before >= 0) {
            --held_by_[at(before)];
        } else {
            --unused_;
            --blocks_[at(thread) / kBlock].unused;
        }
        served_by_[at(lane)] = thread;
        ++held_by_[at(lane)];
        ++done_[at(lane)];
    }

    const Adjacency& before_;
    std::span<const double> seconds_;
    const Lanes& lanes_;
    const MachineModel& model_;
    int64_t ops_, steps_;
    std::vector<std::vector<int32_t>> sequence_;
    std::vector<int64_t> position_, done_;
    std::vector<double> free_at_;
    std::vector<std::vector<int32_t>> blocked_;
    std::vector<double> finish_, thread_free_;
    std::vector<int32_t> released_by_;         // the lane whose result each lane's next op waited for last
    std::vector<int32_t> serves_;              // the lane that each thread served last
    std::vector<double> ready_at_;             // when each lane's next op could begin
    std::vector<std::vector<int32_t>> ready_;  // by affinity: its lanes whose next op can begin
    std::vector<uint32_t> version_;            // by affinity, of what was said last
    std::vector<int32_t> held_by_;             // by lane: how many threads served it last
    std::size_t unused_;                       // threads that have served nothing
    std::vector<int32_t> served_by_;           // by lane: the thread that served it last
    std::vector<Block> blocks_;                // of kBlock threads each
    int32_t first_ = 0;                        // the thread that is free first
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> affinities_;
};

}  // namespace

int64_t steps_for(int64_t ops, int64_t threads) {
    return std::clamp<int64_t>(400'000 / (std::max<int64_t>(ops, 1) * std::max<int64_t>(threads, 2)), 2, 32);
}

double step_seconds(const Adjacency& before, std::span<const double> seconds, const Lanes& lanes,
                    std::span<const int32_t> order, const MachineModel& model, int64_t steps) {
    if (order.empty())
        return 0.0;
    if (each_alone(lanes.affinity))
        return step_seconds_alone(before, seconds, lanes, order, model, steps,
                                  at(1 + *std::max_element(lanes.affinity.begin(), lanes.affinity.end())));
    return Simulation(before, seconds, lanes, order, model, steps).run();
}

}  // namespace ostinato::passes
