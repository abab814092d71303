// The poison history: for each operation, one bit a step for the last `window` steps, set when it failed or was
// skipped. Written by the operation's lane, and by that of its fence, which may learn later that it has failed;
// read by lanes whose operations come after it. A bit is ordered before its reader by the timeline wait between the two
// operations, so the words themselves are relaxed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "program/schedule.h"

namespace ostinato {

class History {
public:
    // `window` steps for `n_ops` operations, all clear. A power of two.
    void prepare(std::uint32_t n_ops, std::uint64_t window) {
        if (!words_) {
            mask_ = window - 1;
            per_op_ = (window + 63) / 64;
            count_ = per_op_ * n_ops;
            words_ = std::make_unique<std::atomic<std::uint64_t>[]>(count_);
        }
        for (std::size_t i = 0; i < count_; ++i)
            words_[i].store(0, std::memory_order_relaxed);
    }
    bool test(std::uint32_t op, std::uint64_t step) const {
        const std::uint64_t at = step & mask_;
        return (words_[op * per_op_ + at / 64].load(std::memory_order_relaxed) >> (at % 64)) & 1;
    }
    void mark(std::uint32_t op, std::uint64_t step, bool poisoned) {
        const std::uint64_t at = step & mask_;
        std::atomic<std::uint64_t>& word = words_[op * per_op_ + at / 64];
        const std::uint64_t bit = std::uint64_t{1} << (at % 64);
        if (poisoned)
            word.fetch_or(bit, std::memory_order_relaxed);
        else
            word.fetch_and(~bit, std::memory_order_relaxed);
    }
    std::size_t bytes() const { return count_ * sizeof(std::uint64_t); }

private:
    std::unique_ptr<std::atomic<std::uint64_t>[]> words_;
    std::size_t count_ = 0, per_op_ = 0;
    std::uint64_t mask_ = 0;
};

// How far failures spread: when nothing is left that they do not reach, a run that goes on after errors may end.
class PoisonReach {
public:
    // Takes note that `failed` did in `step`. Cost: linear in operations and edges.
    void spread(const Schedule& schedule, std::span<const std::uint32_t> failed, std::uint64_t step);
    // The first step from which on every operation is poisoned that has anything to do, in that step and all later
    // ones; kNever when there is none.
    std::uint64_t everything() const;
    void clear() { from_.clear(); }

private:
    void build_successors(const Schedule& schedule);

    struct Edge {
        std::uint32_t op, distance;
    };
    std::vector<std::uint64_t> begin_;  // of each operation's successors
    std::vector<Edge> successors_;
    std::vector<std::uint32_t> idle_;  // operations that do nothing after a run's first step
    std::vector<std::uint64_t> from_;  // from which step on each operation is poisoned in every step
};

}  // namespace ostinato
