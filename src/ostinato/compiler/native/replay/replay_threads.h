// The threads of a simulated machine: what each does, who is idle, who waits for the GIL, and the lanes to be taken up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "at.h"
#include "replay/replay_parts.h"
#include "schedule/bit_tree.h"

namespace ostinato::passes {

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

}  // namespace ostinato::passes
