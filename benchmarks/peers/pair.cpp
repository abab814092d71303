// Two pinned threads, written by hand as well as can be: each has a progress counter on cache lines of its own; it
// looks at the other's only where the pattern needs something that it has not seen yet, and advances its own only where
// the other needs it.
#include <immintrin.h>

#include <atomic>

#include "halves.h"

namespace {

struct Stretch {
    int64_t need;  // as of Half
    int32_t end;   // it ends before this item
    bool publish;
};

struct Side {
    Items items[phases];
    std::vector<Stretch> stretches;
    alignas(128) std::atomic<int64_t> progress{0};
    alignas(128) int32_t failed = 0;
};

struct Pair {
    Side sides[2];
    uint64_t step = 0;
};

void run_side(Side& mine, const Side& other, uint64_t begin, uint64_t end) {
    const auto own = static_cast<int64_t>(mine.items[0].size());
    const auto others = static_cast<int64_t>(other.items[0].size());
    int64_t seen = 0;
    int32_t failed = 0;
    for (uint64_t step = begin; step < end; ++step) {
        Item* const items = mine.items[step % phases].data();
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
    const std::array<Half, 2> halves = divide(*graph);
    for (size_t h = 0; h < 2; ++h) {
        const Half& half = halves[h];
        Side& side = pair->sides[h];
        for (size_t i = 0; i < half.sequence.size(); ++i) {
            if (i == 0 || half.need[i] != no_need || half.published[i - 1])
                side.stretches.push_back({half.need[i], 0, false});
            for (int phase = 0; phase < phases; ++phase)
                side.items[phase].push_back(make_item(*graph, half.sequence[i], phase));
            side.stretches.back().end = static_cast<int32_t>(i + 1);
            side.stretches.back().publish = half.published[i];
        }
    }
    return pair;
}

int32_t peer_run(void* peer, int64_t steps) {
    auto& pair = *static_cast<Pair*>(peer);
    const uint64_t begin = pair.step, end = begin + static_cast<uint64_t>(steps);
    run_both([&](int side) { run_side(pair.sides[side], pair.sides[1 - side], begin, end); });
    pair.step = end;
    return pair.sides[0].failed | pair.sides[1].failed;
}

void peer_destroy(void* peer) { delete static_cast<Pair*>(peer); }

const char* peer_version() { return "C++"; }
