#include "replay/replay_model.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "at.h"
#include "replay/replay_parts.h"
#include "schedule/bit_tree.h"

namespace ostinato::passes {

namespace {

// What is to happen when.
struct Happening {
    double time;
    uint32_t kind, which;

    // Of what happens at the same time, the order is fixed: models must say the same whenever they are asked.
    bool before(const Happening& other) const {
        return std::tie(time, kind, which) < std::tie(other.time, other.kind, other.which);
    }
};

// A heap of four children a node. What is pushed while the first one is dealt with takes its slot, which is most often
// near where it belongs: an op's end brings the next one's.
class EventQueue {
public:
    // When the first one happens; infinity: nothing does.
    double soonest() {
        close();
        return heap_.empty() ? std::numeric_limits<double>::infinity() : heap_.front().time;
    }

    Happening pop() {
        close();
        open_ = true;
        return heap_.front();
    }

    void push(const Happening& what) {
        if (open_) {
            open_ = false;
            heap_.front() = what;
            sink();
            return;
        }
        std::size_t i = heap_.size();
        heap_.push_back(what);
        for (; i > 0 && what.before(heap_[(i - 1) / kChildren]); i = (i - 1) / kChildren)
            heap_[i] = heap_[(i - 1) / kChildren];
        heap_[i] = what;
    }

private:
    static constexpr std::size_t kChildren = 4;

    void close() {
        if (!open_)
            return;
        open_ = false;
        heap_.front() = heap_.back();
        heap_.pop_back();
        if (!heap_.empty())
            sink();
    }

    void sink() {
        const Happening what = heap_.front();
        std::size_t i = 0;
        for (;;) {
            const std::size_t first = kChildren * i + 1;
            if (first >= heap_.size())
                break;
            const std::size_t end = first + kChildren < heap_.size() ? first + kChildren : heap_.size();
            std::size_t least = first;
            for (std::size_t c = first + 1; c < end; ++c)
                least = heap_[c].before(heap_[least]) ? c : least;
            if (!heap_[least].before(what))
                break;
            heap_[i] = heap_[least];
            i = least;
        }
        heap_[i] = what;
    }

    std::vector<Happening> heap_;
    bool open_ = false;  // the first one was taken, and its slot is free
};

enum class State : uint8_t { kIdle, kWaking, kBusy };

struct Thread {
    int32_t own_begin = 0, own_end = 0, next = 0;  // lanes with affinity here, and where the round among them goes on
    int32_t lane = -1;                             // in hand
    State state = State::kBusy;
    double since = 0.0;                // it is idle
    double took_up = 0.0;              // when it did the lane in hand
    double free_from = 0.0;            // when it can do the next one
    double free_at = 0.0;              // when its last op ended
    int64_t last = kNoOp;              // that op
    int32_t earlier = -1, later = -1;  // among those of its node that are idle, in the order in which they got so
    int32_t behind = -1;               // who gets the GIL next
    double busy = 0.0;
    bool several() const { return own_end - own_begin > 1; }
    bool alone() const { return own_end - own_begin == 1; }
};

class Threads {
public:
    struct Node {
        int32_t idle = -1;              // the thread that got idle last
        int32_t listed = 0;             // lanes that are ready and that nobody holds
        bool held = false;              // the GIL
        int32_t first = -1, last = -1;  // threads that wait for it
    };

    explicit Threads(const Replayed& in)
        : in_(in), threads_(at(in.threads)), nodes_(at((in.threads + in.threads_a_node - 1) / in.threads_a_node)),
          lane_from_(nodes_.size() + 1, static_cast<int32_t>(in.affinity.size())), ready_(in.affinity.size()),
          shared_(in.affinity.size()) {
        for (std::size_t l = in.affinity.size(); l-- > 0;)
            lane_from_[at(in.affinity[l] / in.threads_a_node)] = static_cast<int32_t>(l);
        for (std::size_t n = nodes_.size(); n-- > 0;)
            lane_from_[n] = std::min(lane_from_[n], lane_from_[n + 1]);
        for (std::size_t l = 0; l < in.affinity.size(); ++l) {
            Thread& affinity = threads_[at(in.affinity[l])];
            if (affinity.own_end == 0)
                affinity.own_begin = affinity.next = static_cast<int32_t>(l);
            affinity.own_end = static_cast<int32_t>(l) + 1;
        }
    }

    Thread& operator[](int32_t t) { return threads_[at(t)]; }
    std::vector<Thread>& all() { return threads_; }
    Node& node(int32_t t) { return nodes_[at(t / in_.threads_a_node)]; }
    std::size_t nodes() const { return nodes_.size(); }

    // A lane that nobody holds is ready.
    void list(int32_t l) {
        ++node(in_.affinity[at(l)]).listed;
        ready_.insert(at(l));
        if (in_.pinned[at(l)] == 0)
            shared_.insert(at(l));
    }

    // Takes one off the list for a thread: its own, in turn, else one that it may take from another; -1: there is none.
    int32_t take(int32_t t) {
        if (node(t).listed == 0)
            return -1;
        Thread& own = threads_[at(t)];
        int64_t l = ready_.next(at(own.next), at(own.own_end));
        if (l < 0)
            l = ready_.next(at(own.own_begin), at(own.next));
        if (l >= 0) {
            own.next = static_cast<int32_t>(l) + 1 < own.own_end ? static_cast<int32_t>(l) + 1 : own.own_begin;
        } else {
            const std::size_t n = at(t / in_.threads_a_node);
            l = shared_.next(at(lane_from_[n]), at(lane_from_[n + 1]));
            if (l < 0)
                return -1;
        }
        --node(t).listed;
        ready_.erase(at(l));
        shared_.erase(at(l));
        return static_cast<int32_t>(l);
    }

    bool own_ready(const Thread& thread) const { return ready_.next(at(thread.own_begin), at(thread.own_end)) >= 0; }
    // The thread is idle, or is so no more.
    void rest(int32_t t, double now) {
        Thread& own = threads_[at(t)];
        own.state = State::kIdle;
        own.lane = -1;
        own.since = now;
        own.earlier = node(t).idle;
        own.later = -1;
        if (own.earlier >= 0)
            threads_[at(own.earlier)].later = t;
        node(t).idle = t;
    }

    void rouse(int32_t t) {
        const Thread& own = threads_[at(t)];
        if (own.earlier >= 0)
            threads_[at(own.earlier)].later = own.later;
        if (own.later >= 0)
            threads_[at(own.later)].earlier = own.earlier;
        else
            node(t).idle = own.earlier;
    }

    // Whether the thread has its node's GIL now; else it will be the next one some time.
    bool get_gil(int32_t t) {
        Node& here = node(t);
        if (!here.held) {
            here.held = true;
            return true;
        }
        threads_[at(t)].behind = -1;
        if (here.first < 0)
            here.first = t;
        else
            threads_[at(here.last)].behind = t;
        here.last = t;
        return false;
    }

    // The thread lets go of it: who has it now; -1: nobody.
    int32_t next_for_gil(int32_t t) {
        Node& here = node(t);
        const int32_t next = here.first;
        here.held = next >= 0;
        if (next >= 0)
            here.first = threads_[at(next)].behind;
        return next;
    }

private:
    const Replayed& in_;
    std::vector<Thread> threads_;
    std::vector<Node> nodes_;
    std::vector<int32_t> lane_from_;  // by node, and at the end: its first lane
    BitTree ready_, shared_;  // lanes that are listed; and of these, those that any thread of the node may serve
};

// As in core/lanes/worker.cpp and core/outside/spawned.h.
constexpr double kPoll = 40e-6;   // a thread that finds nothing to do looks for so long before it sleeps,
constexpr double kAlone = 50e-6;  // and one with a single lane, before that, so long for what its head waits for
constexpr double kTurn = 100e-6;  // a thread with several lanes leaves one for another that is ready after so long

// Nodes tell each other nothing sooner than a link takes. So each has a queue of its own, which is worked off up to the
// time at which the earliest of all events could be heard of elsewhere: what a node looks at lies together.
class Replay {
public:
    Replay(const Replayed& in, const Question& asked)
        : in_(in), asked_(asked), parts_(in, asked), threads_(in),
          queues_(asked.link_latency > 0.0 && in.affinity.size() > 1 ? threads_.nodes() : 1),
          soonest_(queues_.size(), kNever), lanes_left_(at(asked.steps), static_cast<int32_t>(in.affinity.size())) {
        const std::size_t rows = at(asked.shown) * in.seconds.size();
        answer_.start.assign(rows, 0.0);
        answer_.end.assign(rows, 0.0);
        answer_.thread.assign(rows, 0);
        cause_.assign(rows, kNoOp);
        woken_.reserve(in.affinity.size());
    }

    Answer run() {
        for (std::size_t l = 0; l < in_.affinity.size(); ++l)
            list_ready(static_cast<int32_t>(l), 0.0);
        for (const bool owns : {true, false}) {  // whoever has lanes begins with them
            for (int32_t t = 0; t < in_.threads; ++t)
                if ((threads_[t].own_end > 0) == owns)
                    choose(t, 0.0);
        }
        for (int32_t measured = 0; measured < 2;) {
            const double first = *std::min_element(soonest_.begin(), soonest_.end());
            if (first == kNever)
                throw std::logic_error(
                    "lanes of this schedule would wait for each other; this is a fault of Ostinato's");
            const double end = queues_.size() > 1 ? first + asked_.link_latency : kNever;
            const int32_t until = measured == 0 ? half() : asked_.steps;
            for (std::size_t q = 0; q < queues_.size(); ++q) {
                if (soonest_[q] < end)
                    work_off(q, end, until);
            }
            if (lanes_left_[at(until - 1)] > 0)
                continue;
            if (queues_.size() > 1)
                now_ = end;
            if (measured++ == 0)
                begin_to_measure();
        }
        tell();
        return std::move(answer_);
    }

private:
    enum : uint32_t { kEnd, kAway, kLook, kAwake };  // what happens; the second and third to a lane, else to a thread
    // Deals with what happens on a node, or on all, before `end`; with a single queue, until all lanes have ended a
    // step.
    void work_off(std::size_t q, double end, int32_t until) {
        EventQueue& queue = queues_[q];
        for (; (soonest_[q] = queue.soonest()) < end;) {
            if (queues_.size() == 1 && lanes_left_[at(until - 1)] == 0)
                return;
            const Happening next = queue.pop();
            const auto which = static_cast<int32_t>(next.which);
            now_ = next.time;
            if (next.kind == kEnd) {
                end_batch(which);
            } else if (next.kind == kAway) {
                complete(which, parts_.lane(which).served);
                look_again(which);
            } else if (next.kind == kLook) {
                look_again(which);
            } else {
                choose(which, now_);
            }
        }
    }

    // --- threads ---

    // The thread takes a lane that is ready, its own first.
    void choose(int32_t t, double now) {
        const int32_t l = threads_.take(t);
        if (l >= 0) {
            parts_.lane(l).listed = false;
            serve(t, l, now);
        } else {
            threads_.rest(t, now);
        }
    }

    // It leaves a lane. One that has no other stays with it, and looks.
    void turn(Thread& own, double now) const {
        if (own.several())
            own.free_from = now + asked_.model.switch_;
    }

    static bool polls(const Thread& idle, double now) {
        return now - idle.since <= (idle.alone() ? kAlone + kPoll : kPoll);
    }

    void notify(int32_t t, double now) {
        threads_.rouse(t);
        threads_[t].state = State::kWaking;
        push(now + asked_.model.wake, kAwake, t);
    }

    // The head of a lane that nobody holds can run: the lane's affinity has it, if that looks; else whoever looks; else
    // who sleeps is woken.
    void make_ready(int32_t l, double now) {
        const int32_t affinity = in_.affinity[at(l)];
        const int32_t other = in_.pinned[at(l)] == 0 ? threads_.node(affinity).idle : -1;
        if (threads_[affinity].state == State::kIdle && polls(threads_[affinity], now)) {
            take(affinity, l, now);
        } else if (other >= 0 && polls(threads_[other], now)) {
            take(other, l, now);
        } else {
            list_ready(l, now);
            if (threads_[affinity].state == State::kIdle)
                notify(affinity, now);
            else if (threads_[affinity].state == State::kBusy && other >= 0)
                notify(other, now);
        }
    }

    void list_ready(int32_t l, double now) {
        Lane& lane = parts_.lane(l);
        lane.ready_at = now;
        lane.listed = true;
        threads_.list(l);
    }

    // An idle thread that looks sees the head come.
    void take(int32_t t, int32_t l, double now) {
        parts_.lane(l).ready_at = now;
        threads_.rouse(t);
        serve(t, l, now, true);
    }

    void serve(int32_t t, int32_t l, double now, bool looked = false) {
        Thread& own = threads_[t];
        Lane& lane = parts_.lane(l);
        now = std::max(now, own.free_from);
        lane.queued += std::max(now - std::max(lane.ready_at, begun_), 0.0);
        if (own.free_at > lane.ready_at) {
            lane.cause = own.last;
            lane.free_at = own.free_at;
        }
        if (lane.served != t)
            now += asked_.model.transfer;
        lane.served = t;
        own.lane = l;
        own.state = State::kBusy;
        own.took_up = now;
        go_on(t, now, looked);
    }

    // --- lanes ---

    // The thread goes on with the lane in hand. `looked`: until now, for what its head waits for.
    void go_on(int32_t t, double now, bool looked = false) {
        Thread& own = threads_[t];
        const int32_t l = own.lane;
        Lane& lane = parts_.lane(l);
        const double seen = parts_.next_seen(lane, t);
        if (seen > now) {
            if (own.several() || seen == kUnknown || lane.from_afar) {
                leave(l, seen);
                turn(own, now);
                choose(t, now);
                return;
            }
            now = seen;  // it has nothing else to do, and stays
            looked = true;
        }
        now += parts_.looks(lane, t, looked);
        const Manner manner = parts_.batch(lane).manner;
        if (manner == Manner::kAway) {
            push(begin(l, t, now), kAway, l);
            own.free_at = now;
            own.last = lane.cause;
            choose(t, now);
        } else if (manner == Manner::kThread || threads_.get_gil(t)) {
            push(begin(l, t, now), kEnd, t);
        }
    }

    // Nobody holds the lane until its head has come.
    void leave(int32_t l, double seen) {
        if (seen == kUnknown)
            parts_.await(l);
        else
            push(seen, kLook, l);
    }

    void look_again(int32_t l) {
        const double seen = parts_.next_seen(parts_.lane(l), parts_.lane(l).served);
        if (seen > now_)
            leave(l, seen);
        else
            make_ready(l, now_);
    }

    // Begins the batch that is next; when it ends.
    double begin(int32_t l, int32_t t, double now) {
        Lane& lane = parts_.lane(l);
        const Batch& batch = parts_.batch(lane);
        lane.began = now;
        lane.runs = true;
        const int32_t row = lane.step - (asked_.steps - asked_.shown);
        const bool shown = row >= 0 && row < asked_.shown;
        if (!shown && !batch.differs) {
            lane.takes = batch.seconds;
            return now + lane.takes;
        }
        int64_t cause = lane.cause;
        double end = now;
        for (int64_t i = batch.begin; i < batch.begin + batch.count; ++i) {
            const int32_t op = in_.lane_ops[at(i)];
            const double start = end;
            end += parts_.seconds(op, lane.step);
            if (shown) {
                const std::size_t slot = at(parts_.instance(row, op));
                answer_.start[slot] = start;
                answer_.end[slot] = end;
                answer_.thread[slot] = t;
                cause_[slot] = cause;
            }
            cause = parts_.instance(lane.step, op);
        }
        lane.takes = end - now;
        return end;
    }

    void end_batch(int32_t t) {
        Thread& own = threads_[t];
        const int32_t l = own.lane;
        const bool gil = parts_.batch(parts_.lane(l)).manner == Manner::kGil;
        own.free_at = now_;
        const bool over = complete(l, t);
        const double now = now_ + rings_ * asked_.model.notify;
        own.last = parts_.lane(l).cause;
        if (gil)
            pass_gil_on(t);
        if (over && own.several() && now_ - own.took_up >= kTurn) {
            if (threads_.own_ready(own)) {
                list_ready(l, now_);
                turn(own, now);
                choose(t, now_);
                return;
            }
            own.took_up = now_;
        }
        go_on(t, now);
    }

    void pass_gil_on(int32_t t) {
        const int32_t next = threads_.next_for_gil(t);
        if (next < 0)
            return;
        parts_.lane(threads_[next].lane).cause = threads_[t].last;
        push(begin(threads_[next].lane, next, now_), kEnd, next);
    }

    // The lane's batch has ended. Whether its step has.
    bool complete(int32_t l, int32_t t) {
        Lane& lane = parts_.lane(l);
        const Batch& batch = parts_.batch(lane);
        account(lane, batch);
        lane.runs = false;
        const bool over = parts_.complete(l, t, now_, woken_);
        if (over && lane.step <= asked_.steps) {
            --lanes_left_[at(lane.step - 1)];
            if (lane.step == half())
                half_ended_ = std::max(half_ended_, now_);
            else if (lane.step == asked_.steps)
                ended_ = std::max(ended_, now_);
        }
        rings_ = 0;
        for (const int32_t other : woken_) {
            const int32_t affinity = in_.affinity[at(other)];
            if (&threads_.node(affinity) == &threads_.node(t) && threads_[affinity].state == State::kIdle &&
                !polls(threads_[affinity], now_)) {
                notify(affinity, now_);
                ++rings_;
            }
            look_again(other);
        }
        return over;
    }

    // --- what is told ---

    int32_t half() const { return asked_.steps / 2; }

    void begin_to_measure() {
        begun_ = now_;
        for (Lane& lane : parts_.lanes())
            lane.busy = lane.done = lane.queued = 0.0;
        for (Thread& each : threads_.all())
            each.busy = 0.0;
    }

    // Of the batch that runs, what is over since the measurement began.
    void account(Lane& lane, const Batch& batch) {
        const double took = now_ - std::max(lane.began, begun_);
        lane.busy += took;
        if (batch.manner != Manner::kAway)
            threads_[lane.served].busy += took;
        if (lane.takes > 0.0)
            lane.done += batch.seconds * (took / lane.takes);
    }

    void tell() {
        for (Lane& lane : parts_.lanes()) {
            if (lane.runs)
                account(lane, parts_.batch(lane));
            else if (lane.listed)
                lane.queued += now_ - std::max(lane.ready_at, begun_);
            answer_.lane_busy.push_back(lane.busy);
            answer_.lane_queued.push_back(lane.queued);
        }
        for (const Thread& each : threads_.all())
            answer_.thread_busy.push_back(each.busy);
        answer_.span = now_ - begun_;
        answer_.step_seconds = std::max((ended_ - half_ended_) / (asked_.steps - half()), parts_.busiest(answer_.span));
        trace_back();
    }

    void trace_back() {
        const auto ops = static_cast<int64_t>(in_.seconds.size());
        const int64_t first = int64_t{asked_.steps - asked_.shown} * ops;
        const auto last = std::max_element(answer_.end.end() - ops, answer_.end.end());
        for (int64_t i = last - answer_.end.begin(); i >= 0 && i < asked_.shown * ops; i = cause_[at(i)] - first) {
            answer_.chain.push_back(i);
            if (cause_[at(i)] < 0)
                break;
        }
        std::reverse(answer_.chain.begin(), answer_.chain.end());
    }

    void push(double time, uint32_t kind, int32_t which) {
        const int32_t t = kind == kAway || kind == kLook ? in_.affinity[at(which)] : which;
        const std::size_t q = queues_.size() > 1 ? at(t / in_.threads_a_node) : 0;
        queues_[q].push({time, kind, static_cast<uint32_t>(which)});
        soonest_[q] = std::min(soonest_[q], time);
    }

    static constexpr double kNever = std::numeric_limits<double>::infinity();

    const Replayed& in_;
    const Question& asked_;
    Parts parts_;
    Threads threads_;
    std::vector<EventQueue> queues_;   // by node; where links take no time, one for all
    std::vector<double> soonest_;      // when the first event of each happens
    std::vector<int32_t> lanes_left_;  // by step: how many have not ended it
    std::vector<int32_t> woken_;
    std::vector<int64_t> cause_;  // by step shown and op
    Answer answer_;
    int32_t rings_ = 0;  // threads that were woken by the last op that ended
    double now_ = 0.0, begun_ = 0.0;
    double half_ended_ = 0.0, ended_ = 0.0;  // the last lane's half of the steps, and all
};

}  // namespace

Answer replay(const Replayed& schedule, const Question& question) { return Replay(schedule, question).run(); }

}  // namespace ostinato::passes
