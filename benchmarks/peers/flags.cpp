// As pair.cpp, but what is done is announced in the cache line of the data itself, so that one transfer brings both:
// the last word of an op's first array holds one more than the last step in which the op wrote it. Ops without data
// have a line each for that.
#include <immintrin.h>

#include <atomic>

#include "halves.h"

namespace {

using Flag = std::atomic<int64_t>;
constexpr size_t line_words = 8;

struct alignas(64) Line {
    int64_t words[line_words] = {};
};

struct Stretch {
    Flag* need[phases];  // by the phase of this step; null: none
    int64_t lag;         // the flag must have come to `step - lag`
    Flag* own[phases];   // null: not published
    int32_t end;
};

struct Side {
    Items items[phases];
    std::vector<Stretch> stretches;
    alignas(128) int32_t failed = 0;
};

struct Flags {
    std::vector<Line> lines;  // of ops without data
    Side sides[2];
    uint64_t step = 0;

    Flag* of(const PeerGraph& graph, int32_t op, int64_t step_phase) {
        auto* line = &lines[static_cast<size_t>(op)];
        if (graph.data != nullptr)
            line = static_cast<Line*>(graph.data[step_phase * graph.data_begin[graph.n_ops] + graph.data_begin[op]]);
        return reinterpret_cast<Flag*>(&line->words[line_words - 1]);
    }
};

void run_side(Side& mine, uint64_t begin, uint64_t end) {
    int32_t failed = 0;
    for (uint64_t step = begin; step < end; ++step) {
        const uint64_t phase = step % phases;
        Item* const items = mine.items[phase].data();
        int32_t at = 0;
        for (const Stretch& stretch : mine.stretches) {
            if (const Flag* const flag = stretch.need[phase]; flag != nullptr) {
                while (flag->load(std::memory_order_acquire) < static_cast<int64_t>(step) - stretch.lag)
                    _mm_pause();
            }
            for (; at < stretch.end; ++at)
                failed |= items[at](step);
            if (Flag* const flag = stretch.own[phase]; flag != nullptr)
                flag->store(static_cast<int64_t>(step) + 1, std::memory_order_release);
        }
    }
    mine.failed = failed;
}

}  // namespace

void* peer_create(const PeerGraph* graph) {
    auto* flags = new Flags;
    flags->lines.resize(static_cast<size_t>(graph->n_ops));
    const std::array<Half, 2> halves = divide(*graph);
    for (size_t h = 0; h < 2; ++h) {
        const Half& half = halves[h];
        const Half& other = halves[1 - h];
        const auto others = static_cast<int64_t>(other.sequence.size());
        Side& side = flags->sides[h];
        for (size_t i = 0; i < half.sequence.size(); ++i) {
            if (i == 0 || half.need[i] != no_need || half.published[i - 1])
                side.stretches.push_back({});
            Stretch& stretch = side.stretches.back();
            stretch.end = static_cast<int32_t>(i + 1);
            for (int phase = 0; phase < phases; ++phase) {
                side.items[phase].push_back(make_item(*graph, half.sequence[i], phase));
                if (half.published[i])
                    stretch.own[phase] = flags->of(*graph, half.sequence[i], phase);
                if (half.need[i] == no_need)
                    continue;
                const int64_t position = ((half.need[i] - 1) % others + others) % others;
                const int64_t distance = (position - (half.need[i] - 1)) / others;
                stretch.lag = distance - 1;
                stretch.need[phase] = flags->of(*graph, other.sequence[static_cast<size_t>(position)],
                                                (phase + distance * (phases - 1)) % phases);
            }
        }
    }
    return flags;
}

int32_t peer_run(void* peer, int64_t steps) {
    auto& flags = *static_cast<Flags*>(peer);
    const uint64_t begin = flags.step, end = begin + static_cast<uint64_t>(steps);
    run_both([&](int side) { run_side(flags.sides[side], begin, end); });
    flags.step = end;
    return flags.sides[0].failed | flags.sides[1].failed;
}

void peer_destroy(void* peer) { delete static_cast<Flags*>(peer); }

const char* peer_version() { return "C++"; }
