// Two pinned threads, written by hand as well as can be: each runs its half of every row in order and has a progress
// counter on cache lines of its own; it looks at the other's only where the pattern needs something that it has not
// seen yet, and advances its own only where the other needs it.
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "peer.h"

namespace {

struct Stretch {
    int64_t need;  // the other's progress, counted from the beginning of this step, without which it cannot begin
    int32_t end;   // it ends before this item
    bool publish;
};

struct Side {
    std::vector<Item> items;
    std::vector<Stretch> stretches;
    alignas(128) std::atomic<int64_t> progress{0};
    alignas(128) int32_t failed = 0;
};

struct Pair {
    Side sides[2];
    uint64_t step = 0;
};

constexpr int64_t no_need = INT64_MIN / 2;

void pin(int cpu_index) {
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

void run_side(Side& mine, const Side& other, uint64_t begin, uint64_t end) {
    const auto own = static_cast<int64_t>(mine.items.size());
    const auto others = static_cast<int64_t>(other.items.size());
    Item* const items = mine.items.data();
    int64_t seen = 0;
    int32_t failed = 0;
    for (uint64_t step = begin; step < end; ++step) {
        const int64_t base = static_cast<int64_t>(step) * others;
        int32_t at = 0;
        for (const Stretch& stretch : mine.stretches) {
            while (seen < base + stretch.need) {
                seen = other.progress.load(std::memory_order_acquire);
                if (seen < base + stretch.need)
                    _mm_pause();  // polls less often, which lets the line through sooner
            }
            for (; at < stretch.end; ++at)
                failed |= items[at](step);
            if (stretch.publish)
                mine.progress.store(static_cast<int64_t>(step) * own + at, std::memory_order_release);
        }
    }
    mine.failed = failed;
}

}  // namespace

void* peer_create(const PeerGraph* graph) {
    auto* pair = new Pair;
    const auto n = static_cast<size_t>(graph->n_ops);
    std::vector<int32_t> sequence[2];
    std::vector<int64_t> position(n);
    for (size_t i = 0; i < n; ++i) {
        const int32_t op = graph->order[i];
        auto& own = sequence[graph->half[op]];
        position[static_cast<size_t>(op)] = static_cast<int64_t>(own.size());
        own.push_back(op);
    }
    std::vector<int64_t> need(n, no_need);
    for (int32_t e = 0; e < graph->n_edges; ++e) {
        const auto a = static_cast<size_t>(graph->source[e]), b = static_cast<size_t>(graph->target[e]);
        if (graph->half[a] == graph->half[b])
            continue;
        const auto others = static_cast<int64_t>(sequence[graph->half[a]].size());
        need[b] = std::max(need[b], position[a] + 1 - graph->distance[e] * others);
    }
    // What an earlier wait of the step has seen need not be waited for again, and what nobody waits for is not
    // published.
    std::vector<bool> published[2] = {std::vector<bool>(sequence[0].size()), std::vector<bool>(sequence[1].size())};
    for (int half = 0; half < 2; ++half) {
        const auto others = static_cast<int64_t>(sequence[1 - half].size());
        int64_t satisfied = no_need;
        for (const int32_t op : sequence[half]) {
            int64_t& own = need[static_cast<size_t>(op)];
            if (own <= satisfied) {
                own = no_need;
            } else {
                satisfied = own;
                published[1 - half][static_cast<size_t>((own - 1 + others) % others)] = true;
            }
        }
    }
    for (int half = 0; half < 2; ++half) {
        Side& side = pair->sides[half];
        for (size_t i = 0; i < sequence[half].size(); ++i) {
            const int32_t op = sequence[half][i];
            const int64_t own = need[static_cast<size_t>(op)];
            if (i == 0 || own != no_need || published[half][i - 1])
                side.stretches.push_back({own, 0, false});
            side.items.push_back(make_item(*graph, op));
            side.stretches.back().end = static_cast<int32_t>(i + 1);
            side.stretches.back().publish = published[half][i];
        }
    }
    return pair;
}

int32_t peer_run(void* peer, int64_t steps) {
    auto& pair = *static_cast<Pair*>(peer);
    const uint64_t begin = pair.step, end = begin + static_cast<uint64_t>(steps);
    cpu_set_t before;
    pthread_getaffinity_np(pthread_self(), sizeof before, &before);
    std::thread second([&] {
        pin(1);
        run_side(pair.sides[1], pair.sides[0], begin, end);
    });
    pin(0);
    run_side(pair.sides[0], pair.sides[1], begin, end);
    second.join();
    pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    pair.step = end;
    return pair.sides[0].failed | pair.sides[1].failed;
}

void peer_destroy(void* peer) { delete static_cast<Pair*>(peer); }

const char* peer_version() { return "C++"; }
