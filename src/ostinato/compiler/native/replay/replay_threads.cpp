#include "replay/replay_threads.h"

#include <algorithm>

namespace ostinato::passes {

Threads::Threads(const Replayed& in)
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

void Threads::list(int32_t l) {
    ++node(in_.affinity[at(l)]).listed;
    ready_.insert(at(l));
    if (in_.pinned[at(l)] == 0)
        shared_.insert(at(l));
}

int32_t Threads::take(int32_t t) {
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

void Threads::rest(int32_t t, double now) {
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

void Threads::rouse(int32_t t) {
    const Thread& own = threads_[at(t)];
    if (own.earlier >= 0)
        threads_[at(own.earlier)].later = own.later;
    if (own.later >= 0)
        threads_[at(own.later)].earlier = own.earlier;
    else
        node(t).idle = own.earlier;
}

bool Threads::get_gil(int32_t t) {
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

int32_t Threads::next_for_gil(int32_t t) {
    Node& here = node(t);
    const int32_t next = here.first;
    here.held = next >= 0;
    if (next >= 0)
        here.first = threads_[at(next)].behind;
    return next;
}

}  // namespace ostinato::passes
