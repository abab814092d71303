// The parts of a simulated program: lanes, their batches, what these wait for, and who waits for what.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "at.h"
#include "replay/replay_model.h"

namespace ostinato::passes {

// Consecutive ops of a lane with waits only before the first and a publish only after the last.
struct Batch {
    int64_t begin;  // into the lanes' ops
    int32_t count;
    int32_t publisher;  // the number of its last op among those that others wait for; -1: nobody does
    int64_t wait_begin, wait_end;
    double seconds;  // without what differs from step to step
    Manner manner;
    bool differs;
};

struct Lane {
    int64_t first, end, next;  // batches
    int32_t step = 0;
    int32_t served;            // the thread that ran it last
    int64_t published = 0;     // how many of its ops others can see done
    double free_at = 0.0;      // when its last op ended, or what the thread that took it up did before
    double ready_at = 0.0;     // when its head could run
    double began = 0.0;        // when its batch did
    double takes = 0.0;        // how long that is
    double seen = 0.0;         // when all that was checked of what the head waits for can be seen
    int64_t cause = -1;        // the op that the head had to wait for, or that ran before it
    int64_t seen_cause = -1;   // the last one that it waits for
    int64_t checked = 0;       // of what the head waits for, how much has happened
    int32_t next_waiter = -1;  // who else waits for the same
    double busy = 0.0, queued = 0.0;
    double done = 0.0;  // like `busy`, without what differs from step to step
    bool runs = false, listed = false;
    bool from_afar = false;  // what can be seen last comes from another node
};

// What is kept of publishes may take so many numbers; what was forgotten counts as seen.
constexpr int64_t kMostTimes = int64_t{1} << 27;
constexpr int64_t kLeastSteps = 4;
// Of a normal distribution, between the median and the 95th percentile.
constexpr double kNormal95 = 1.6448536269514722;

// Steele, Lea and Flood's mixing of bits: what is drawn depends on op and step, not on what was drawn before.
inline uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

// In (0, 1).
inline double uniform(uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

// A normally distributed number, by Box and Muller.
inline double normal(uint64_t seed, int32_t op, int32_t step) {
    const uint64_t first = mixed(mixed(mixed(seed) ^ static_cast<uint32_t>(op)) ^ static_cast<uint32_t>(step));
    return std::sqrt(-2.0 * std::log(uniform(first))) * std::cos(2.0 * std::numbers::pi * uniform(mixed(first)));
}

constexpr double kUnknown = std::numeric_limits<double>::infinity();
constexpr int64_t kNoOp = -1;

class Parts {
public:
    Parts(const Replayed& in, const Question& asked)
        : in_(in), asked_(asked), lanes_(in.affinity.size()), sigma_(in.seconds.size()), waits_(in.wait_op.size()) {
        // The logarithm of an op's time is normal; half the distance between its outer percentiles is sinh(1.64 sigma).
        for (std::size_t op = 0; op < sigma_.size(); ++op)
            sigma_[op] = std::asinh(in.spread[op]) / kNormal95;
        std::vector<uint8_t> published(in.seconds.size(), 0);
        for (const int32_t op : in.wait_op)
            published[at(op)] = 1;
        if (in.until_op >= 0)
            published[at(in.until_op)] = 1;
        std::vector<int32_t> number(in.seconds.size(), -1);
        batches_.reserve(in.seconds.size());
        for (std::size_t l = 0; l < lanes_.size(); ++l)
            add_batches(static_cast<int32_t>(l), published);
        for (const Lane& lane : lanes_) {
            for (int64_t s = lane.first; s < lane.end; ++s) {
                if (batches_[at(s)].publisher < 0)
                    continue;
                const int32_t op = batches_[at(s)].publisher;
                number[at(op)] = batches_[at(s)].publisher = static_cast<int32_t>(publishers_.size());
                publishers_.push_back({op});
                lane_of_.push_back(static_cast<int32_t>(&lane - lanes_.data()));
                if (op == in.until_op) {
                    until_ = number[at(op)];
                    until_lane_ = lane.first;
                }
            }
        }
        add_waits(number);
        int32_t longest = 0;
        for (const int32_t distance : in.wait_distance)
            longest = std::max(longest, distance);
        auto kept = static_cast<int64_t>(std::bit_ceil(at(2 * int64_t{in.window_period} + longest + 1)));
        while (kept > kLeastSteps && kept * static_cast<int64_t>(publishers_.size()) > kMostTimes)
            kept /= 2;
        past_ = static_cast<int32_t>(kept - 1);
        times_.assign(at(kept) * publishers_.size(), 0.0);
    }

    int32_t ops() const { return static_cast<int32_t>(in_.seconds.size()); }
    int64_t instance(int32_t step, int32_t op) const { return int64_t{step} * ops() + op; }
    Lane& lane(int32_t l) { return lanes_[at(l)]; }
    std::vector<Lane>& lanes() { return lanes_; }
    const Batch& batch(const Lane& lane) const { return batches_[at(lane.next)]; }
    // What op takes in a step.
    double seconds(int32_t op, int32_t step) const {
        const double sigma = sigma_[at(op)];
        return sigma == 0.0 ? in_.seconds[at(op)]
                            : in_.seconds[at(op)] * std::exp(sigma * normal(asked_.seed, op, step));
    }

    // When a thread can see that all has happened which the lane's head waits for; kUnknown: not yet known.
    double next_seen(Lane& lane, int32_t thread) {
        const auto take = [&](double time, bool from_afar, int64_t cause) {
            ++lane.checked;
            if (time > lane.seen) {
                lane.seen = time;
                lane.from_afar = from_afar;
                lane.seen_cause = cause;
            }
        };
        const auto is_far = [&](int32_t other) { return other / in_.threads_a_node != thread / in_.threads_a_node; };
        if (lane.checked == 0) {
            const int32_t step = judged(lane);
            if (step >= 0) {
                const Publisher& publisher = publishers_[at(until_)];
                if (publisher.last_step < step)
                    return kUnknown;
                const bool far = is_far(publisher.thread);
                const double near_delay = publisher.thread == thread ? 0.0 : asked_.model.transfer;
                take(publish_time(publisher, step) + (far ? asked_.link_latency : near_delay), far,
                     instance(step, publisher.op));
            } else {
                ++lane.checked;
            }
        }
        if (lane.checked == 1) {
            if (begins_window(lane)) {
                const int32_t number = lane.step / in_.window_period - 1;
                if (window_ < number)
                    return kUnknown;
                const bool far = in_.threads > in_.threads_a_node;
                const Window& window = windows_[at(number % 4)];
                take(window.at + (far ? asked_.link_latency : asked_.model.transfer), far, window.cause);
            } else {
                ++lane.checked;
            }
        }
        const Batch& batch = this->batch(lane);
        for (int64_t w = batch.wait_begin + lane.checked - 2; w < batch.wait_end; ++w) {
            const Publisher& publisher = publishers_[at(waits_[at(w)].publisher)];
            const int32_t step = lane.step - in_.wait_distance[at(w)];
            if (step < 0) {
                ++lane.checked;
                continue;
            }
            if (publisher.last_step < step)
                return kUnknown;
            const double delay = publisher.thread == thread ? 0.0 : in_.wait_delay[at(w)];
            take(publish_time(publisher, step) + delay, is_far(publisher.thread), instance(step, publisher.op));
        }
        if (lane.seen > lane.free_at)
            lane.cause = lane.seen_cause;
        return lane.seen;
    }

    // What it takes the thread to look at the timelines that the head waits for, which have come. `looked`: until one
    // of them did.
    double looks(const Lane& lane, int32_t thread, bool looked) {
        const Batch& batch = this->batch(lane);
        int64_t news = 0;
        for (int64_t w = batch.wait_begin; w < batch.wait_end; ++w) {
            const Lane& other = lanes_[at(lane_of_[at(waits_[at(w)].publisher)])];
            int64_t& seen = seen_[at(waits_[at(w)].pair)];
            const int64_t step = lane.step - in_.wait_distance[at(w)];
            const int64_t length =
                in_.lane_begin[at(&other - lanes_.data()) + 1] - in_.lane_begin[at(&other - lanes_.data())];
            const int64_t wanted = step * length + waits_[at(w)].position;
            if (seen >= wanted)
                continue;
            // A message says of one op; what another node does meanwhile is not known here.
            seen = other.served / in_.threads_a_node == thread / in_.threads_a_node ? other.published : wanted;
            news += other.served != thread ? 1 : 0;
        }
        if (judged(lane) >= 0)
            ++news;
        if (begins_window(lane)) {
            const auto by_node = [&](int32_t affinity, int32_t node) { return affinity / in_.threads_a_node < node; };
            const int32_t node = in_.affinity[at(&lane - lanes_.data())] / in_.threads_a_node;
            const auto first = std::lower_bound(in_.affinity.begin(), in_.affinity.end(), node, by_node);
            news += std::lower_bound(first, in_.affinity.end(), node + 1, by_node) - first - 1;
        }
        if (news == 0)
            return 0.0;
        // The line must come from its writer, which is half of what a result takes from core to core: the writer had to
        // fetch it, too. Those that are looked at next are on their way meanwhile.
        return static_cast<double>(news - 1) * asked_.model.poll + (looked ? 0.0 : asked_.model.transfer / 2);
    }

    // The first of what it waits for has not happened: the lane will be among the woken ones when it does.
    void await(int32_t l) {
        Lane& lane = lanes_[at(l)];
        int32_t* first = &window_waiter_;
        if (lane.checked == 0)
            first = &publishers_[at(until_)].first_waiter;
        else if (lane.checked > 1)
            first = &publishers_[at(waits_[at(batch(lane).wait_begin + lane.checked - 2)].publisher)].first_waiter;
        lane.next_waiter = *first;
        *first = l;
    }

    // The lane's batch ended on a thread. Whether its step did. `woken` gets the lanes that waited for this.
    bool complete(int32_t l, int32_t thread, double now, std::vector<int32_t>& woken) {
        Lane& lane = lanes_[at(l)];
        const Batch& batch = batches_[at(lane.next)];
        const int32_t step = lane.step;
        lane.free_at = now;
        lane.seen = 0.0;
        lane.checked = 0;
        lane.cause = instance(step, in_.lane_ops[at(batch.begin + batch.count - 1)]);
        const bool over = ++lane.next == lane.end;
        if (over) {
            lane.next = lane.first;
            ++lane.step;
        }
        woken.clear();
        if (batch.publisher >= 0 || (over && lane.step % in_.window_period == 0))  // or windows look at it
            lane.published = int64_t{step} * (in_.lane_begin[at(l) + 1] - in_.lane_begin[at(l)]) + batch.begin +
                             batch.count - in_.lane_begin[at(l)];
        if (batch.publisher >= 0)
            publish(publishers_[at(batch.publisher)], step, thread, now, woken);
        if (over && lanes_.size() > 1 && lane.step % in_.window_period == 0) {
            const int32_t number = lane.step / in_.window_period;
            Window& window = windows_[at(number % 4)];
            if (window.reached == static_cast<int32_t>(lanes_.size()))
                window = {};
            ++window.reached;
            if (now >= window.at) {
                window.at = now;
                window.cause = lane.cause;
            }
            if (window.reached == static_cast<int32_t>(lanes_.size())) {
                window_ = number;
                for (int32_t waiter = window_waiter_; waiter >= 0; waiter = lanes_[at(waiter)].next_waiter)
                    woken.push_back(waiter);
                window_waiter_ = -1;
            }
        }
        return over;
    }

    // What a step takes by what the lanes of one thread got done in a span of time, those that had most to do. Where
    // lanes take turns, the last one to end a step may have been behind, and have caught up, so that its steps say too
    // little.
    double busiest(double span) const {
        double most = -1.0, found = 0.0;
        for (std::size_t l = 0; l < lanes_.size();) {
            double busy = 0.0, done = 0.0, work = 0.0;
            for (const int32_t affinity = in_.affinity[l]; l < lanes_.size() && in_.affinity[l] == affinity; ++l) {
                busy += lanes_[l].busy;
                done += lanes_[l].done;
                for (int64_t i = in_.lane_begin[l]; i < in_.lane_begin[l + 1]; ++i)
                    work += in_.seconds[at(in_.lane_ops[at(i)])];
            }
            if (busy > most && done > 0.0) {
                most = busy;
                found = span * work / done;
            }
        }
        return found;
    }

private:
    struct Publisher {
        int32_t op, last_step = -1, thread = -1, first_waiter = -1;
    };

    // As core/program/schedule.cpp cuts lanes.
    void add_batches(int32_t l, std::span<const uint8_t> published) {
        Lane& lane = lanes_[at(l)];
        lane.first = lane.next = static_cast<int64_t>(batches_.size());
        lane.served = in_.affinity[at(l)];
        bool joins = false;
        for (int64_t i = in_.lane_begin[at(l)]; i < in_.lane_begin[at(l) + 1]; ++i) {
            const int32_t op = in_.lane_ops[at(i)];
            const Manner manner{in_.manner[at(op)]};
            const int64_t begin = in_.wait_begin[at(op)], end = in_.wait_begin[at(op) + 1];
            joins = joins && begin == end && batches_.back().manner == manner && manner != Manner::kAway;
            if (!joins)
                batches_.push_back({i, 0, -1, begin, end, 0.0, manner, false});
            Batch& batch = batches_.back();
            ++batch.count;
            batch.seconds += in_.seconds[at(op)];
            batch.differs = batch.differs || sigma_[at(op)] > 0.0;
            batch.publisher = published[at(op)] != 0 ? op : -1;
            joins = batch.publisher < 0;
        }
        lane.end = static_cast<int64_t>(batches_.size());
    }

    void add_waits(std::span<const int32_t> number) {
        std::vector<int64_t> position(number.size());
        std::vector<int32_t> pair(lanes_.size(), -1), paired_by(lanes_.size(), -1);
        for (std::size_t l = 0; l < lanes_.size(); ++l)
            for (int64_t i = in_.lane_begin[l]; i < in_.lane_begin[l + 1]; ++i)
                position[at(in_.lane_ops[at(i)])] = i - in_.lane_begin[l] + 1;
        for (std::size_t l = 0; l < lanes_.size(); ++l) {
            for (int64_t s = lanes_[l].first; s < lanes_[l].end; ++s) {
                for (int64_t w = batches_[at(s)].wait_begin; w < batches_[at(s)].wait_end; ++w) {
                    const int32_t op = in_.wait_op[at(w)];
                    const std::size_t other = at(lane_of_[at(number[at(op)])]);
                    if (paired_by[other] != static_cast<int32_t>(l)) {
                        paired_by[other] = static_cast<int32_t>(l);
                        pair[other] = static_cast<int32_t>(seen_.size());
                        seen_.push_back(0);
                    }
                    waits_[at(w)] = {number[at(op)], pair[other], position[at(op)]};
                }
            }
        }
    }

    void publish(Publisher& publisher, int32_t step, int32_t thread, double now, std::vector<int32_t>& woken) {
        publisher.last_step = step;
        publisher.thread = thread;
        times_[at(int64_t{&publisher - publishers_.data()} * (past_ + 1) + (step & past_))] = now;
        // Whoever waits for a later step looks again, and waits again.
        for (int32_t waiter = publisher.first_waiter; waiter >= 0; waiter = lanes_[at(waiter)].next_waiter)
            woken.push_back(waiter);
        publisher.first_waiter = -1;
    }

    bool begins_window(const Lane& lane) const {
        return lane.next == lane.first && lanes_.size() > 1 && lane.step % in_.window_period == 0 &&
               lane.step >= 2 * in_.window_period;
    }
    // The step whose verdict the lane's next step waits for; -1: none.
    int32_t judged(const Lane& lane) const {
        return lane.next != lane.first || until_ < 0 || lane.first == until_lane_
                   ? -1
                   : lane.step / in_.until_every * in_.until_every - 1;
    }
    double publish_time(const Publisher& publisher, int32_t step) const {
        return publisher.last_step - step > past_
                   ? 0.0
                   : times_[at(int64_t(&publisher - publishers_.data()) * (past_ + 1) + (step & past_))];
    }

    const Replayed& in_;
    const Question& asked_;
    std::vector<Lane> lanes_;
    std::vector<Batch> batches_;
    std::vector<double> sigma_;  // by op
    struct Wait {
        int32_t publisher;
        int32_t pair;      // of lanes: who waits for whom
        int64_t position;  // of the op in its lane, from 1
    };
    std::vector<Wait> waits_;
    std::vector<int64_t> seen_;     // by pair: how many ops of the one the other has seen done
    std::vector<int32_t> lane_of_;  // by publisher
    std::vector<Publisher> publishers_;
    std::vector<double> times_;  // by publisher: when it published in the last steps
    int32_t past_ = 0;           // how many of these there are, less one: all bits set
    int32_t until_ = -1;         // its publisher
    int64_t until_lane_ = -1;    // its lane's first batch
    struct Window {
        int32_t reached = 0;  // how many lanes have come to its end
        double at = 0.0;      // when the last one did
        int64_t cause = kNoOp;
    };
    std::array<Window, 4> windows_;  // by number, modulo four: of no more are there lanes under way
    int32_t window_ = 0;             // the last one whose end all have reached
    int32_t window_waiter_ = -1;
};

}  // namespace ostinato::passes
