// A graph divided between two pinned threads by hand: each runs its half of every row in the given order.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <new>
#include <thread>
#include <vector>

#include "peer.h"

struct Half {
    std::vector<int32_t> sequence;
    // By position: the other's progress, counted from the beginning of this step, without which the op cannot begin.
    std::vector<int64_t> need;
    std::vector<bool> published;  // the other waits for it
};

// On cache lines that nothing of the other thread shares: processors fetch lines in pairs.
template <class T>
struct PairAllocator {
    using value_type = T;
    static constexpr size_t pair = 128;
    PairAllocator() = default;
    template <class U>
    explicit PairAllocator(const PairAllocator<U>&) {}
    T* allocate(size_t n) {
        const size_t bytes = (n * sizeof(T) + pair - 1) / pair * pair;
        return static_cast<T*>(::operator new(bytes, std::align_val_t{pair}));
    }
    void deallocate(T* data, size_t) { ::operator delete(data, std::align_val_t{pair}); }
    bool operator==(const PairAllocator&) const { return true; }
};
using Items = std::vector<Item, PairAllocator<Item>>;

constexpr int64_t no_need = INT64_MIN / 2;

inline std::array<Half, 2> divide(const PeerGraph& graph) {
    std::array<Half, 2> halves;
    const auto n = static_cast<size_t>(graph.n_ops);
    std::vector<int64_t> position(n);
    for (size_t i = 0; i < n; ++i) {
        const int32_t op = graph.order[i];
        auto& sequence = halves[static_cast<size_t>(graph.half[op])].sequence;
        position[static_cast<size_t>(op)] = static_cast<int64_t>(sequence.size());
        sequence.push_back(op);
    }
    std::vector<int64_t> need(n, no_need);
    for (int32_t e = 0; e < graph.n_edges; ++e) {
        const auto a = static_cast<size_t>(graph.source[e]), b = static_cast<size_t>(graph.target[e]);
        if (graph.half[a] == graph.half[b])
            continue;
        const auto others = static_cast<int64_t>(halves[static_cast<size_t>(graph.half[a])].sequence.size());
        need[b] = std::max(need[b], position[a] + 1 - graph.distance[e] * others);
    }
    for (Half& half : halves)
        half.published.resize(half.sequence.size());
    // What an earlier wait of the step has seen need not be waited for again, nor what every wait of the step before
    // has seen; and what nobody waits for is not published.
    for (size_t i = 0; i < 2; ++i) {
        Half& half = halves[i];
        Half& other = halves[1 - i];
        const auto others = static_cast<int64_t>(other.sequence.size());
        int64_t satisfied = no_need;
        for (const int32_t op : half.sequence)
            satisfied = std::max(satisfied, need[static_cast<size_t>(op)] - others);
        for (const int32_t op : half.sequence) {
            const int64_t own = need[static_cast<size_t>(op)];
            half.need.push_back(own <= satisfied ? no_need : own);
            if (own > satisfied) {
                satisfied = own;
                other.published[static_cast<size_t>(((own - 1) % others + others) % others)] = true;
            }
        }
    }
    return halves;
}

inline void pin(int cpu_index) {
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &allowed) && cpu_index-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            pthread_setaffinity_np(pthread_self(), sizeof one, &one);
            return;
        }
    }
}

// Calls `run(0)` on this thread and `run(1)` on another, each on a core of its own.
template <class Run>
void run_both(const Run& run) {
    cpu_set_t before;
    pthread_getaffinity_np(pthread_self(), sizeof before, &before);
    std::thread second([&] {
        pin(1);
        run(1);
    });
    pin(0);
    run(0);
    second.join();
    pthread_setaffinity_np(pthread_self(), sizeof before, &before);
}
