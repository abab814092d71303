// The parts of a simulated program: lanes, their batches, what these wait for, and who waits for what.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
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

constexpr double kUnknown = std::numeric_limits<double>::infinity();
constexpr int64_t kNoOp = -1;

class Parts {
public:
    Parts(const Replayed& in, const Question& asked);

    int32_t ops() const { return static_cast<int32_t>(in_.seconds.size()); }
    int64_t instance(int32_t step, int32_t op) const { return int64_t{step} * ops() + op; }
    Lane& lane(int32_t l) { return lanes_[at(l)]; }
    std::vector<Lane>& lanes() { return lanes_; }
    const Batch& batch(const Lane& lane) const { return batches_[at(lane.next)]; }
    // What op takes in a step.
    double seconds(int32_t op, int32_t step) const;
    // When a thread can see that all has happened which the lane's head waits for; kUnknown: not yet known.
    double next_seen(Lane& lane, int32_t thread);
    // What it takes the thread to look at the timelines that the head waits for, which have come. `looked`: until one
    // of them did.
    double looks(const Lane& lane, int32_t thread, bool looked);
    // The first of what it waits for has not happened: the lane will be among the woken ones when it does.
    void await(int32_t l);
    // The lane's batch ended on a thread. Whether its step did. `woken` gets the lanes that waited for this.
    bool complete(int32_t l, int32_t thread, double now, std::vector<int32_t>& woken);

    // What a step takes by what the lanes of one thread got done in a span of time, those that had most to do. Where
    // lanes take turns, the last one to end a step may have been behind, and have caught up, so that its steps say too
    // little.
    double busiest(double span) const;

private:
    struct Publisher {
        int32_t op, last_step = -1, thread = -1, first_waiter = -1;
    };

    void add_batches(int32_t l, std::span<const uint8_t> published);
    void add_waits(std::span<const int32_t> number);
    void publish(Publisher& publisher, int32_t step, int32_t thread, double now, std::vector<int32_t>& woken);
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
