#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "at.h"

namespace ostinato::passes {

// Boxes [lo, hi) of one allocation in a tree of bounding boxes, with the times of the latest access and the latest
// write under every node, so that a search can leave out all that was last touched before a given time.
class BoxIndex {
public:
    // `lo` and `hi` hold `count` rows of `dims` numbers; both must outlive the index.
    BoxIndex(const int64_t* lo, const int64_t* hi, int32_t dims, int32_t count)
        : lo_(lo), hi_(hi), dims_(dims), count_(count), boxes_(at(count)), leaf_of_(at(count)) {
        std::iota(boxes_.begin(), boxes_.end(), 0);
        if (count > 0)
            build(0, count, -1);
    }

    int32_t count() const { return count_; }

    bool overlap(int32_t a, int32_t b) const {
        return meet(lo_ + int64_t{a} * dims_, hi_ + int64_t{a} * dims_, lo_ + int64_t{b} * dims_,
                    hi_ + int64_t{b} * dims_);
    }

    // `box` was accessed at `time`; times never go back.
    void note(int32_t box, int64_t time, bool write) {
        for (int32_t n = leaf_of_[at(box)]; n >= 0; n = nodes_[at(n)].parent) {
            Node& node = nodes_[at(n)];
            node.accessed = time;
            if (write)
                node.written = time;
        }
    }

    // Calls `visit(other)` for the boxes that overlap `box`, itself included, until it returns false. Subtrees without
    // an access (`writes`: without a write) at or after `since` are left out.
    template <class Visit>
    void search(int32_t box, int64_t since, bool writes, Visit&& visit) const {
        const int64_t* lo = lo_ + int64_t{box} * dims_;
        const int64_t* hi = hi_ + int64_t{box} * dims_;
        for (int32_t n = 0; n < static_cast<int32_t>(nodes_.size());) {
            const Node& node = nodes_[at(n)];
            const int64_t* bound = bounds_.data() + int64_t{n} * 2 * dims_;
            if ((writes ? node.written : node.accessed) < since || !meet(lo, hi, bound, bound + dims_)) {
                n = node.skip;
                continue;
            }
            for (int32_t i = node.first; i < node.last; ++i) {
                const int32_t other = boxes_[at(i)];
                if (overlap(box, other) && !visit(other))
                    return;
            }
            ++n;
        }
    }

private:
    struct Node {
        int64_t accessed = 0, written = 0;
        int32_t first = 0, last = 0;  // its boxes, for a leaf
        int32_t parent = -1;
        int32_t skip = 0;  // the node that follows its subtree
    };

    bool meet(const int64_t* lo, const int64_t* hi, const int64_t* lo2, const int64_t* hi2) const {
        for (int32_t d = 0; d < dims_; ++d)
            if (lo[d] >= hi2[d] || lo2[d] >= hi[d])
                return false;
        return true;
    }

    void build(int32_t first, int32_t last, int32_t parent) {
        const auto index = static_cast<int32_t>(nodes_.size());
        nodes_.emplace_back();
        nodes_.back().parent = parent;
        bounds_.resize(bounds_.size() + 2 * at(dims_));
        int64_t* bound = bounds_.data() + int64_t{index} * 2 * dims_;
        int32_t widest = 0;
        int64_t width = 0;
        for (int32_t d = 0; d < dims_; ++d) {
            int64_t low = lo_[int64_t{boxes_[at(first)]} * dims_ + d];
            int64_t high = hi_[int64_t{boxes_[at(first)]} * dims_ + d];
            int64_t least = low + high, most = least;
            for (int32_t i = first; i < last; ++i) {
                const int64_t k = int64_t{boxes_[at(i)]} * dims_ + d;
                low = std::min(low, lo_[k]);
                high = std::max(high, hi_[k]);
                least = std::min(least, lo_[k] + hi_[k]);
                most = std::max(most, lo_[k] + hi_[k]);
            }
            bound[d] = low;
            bound[dims_ + d] = high;
            if (most - least > width) {
                width = most - least;
                widest = d;
            }
        }
        if (last - first <= kLeaf) {
            nodes_[at(index)].first = first;
            nodes_[at(index)].last = last;
            for (int32_t i = first; i < last; ++i)
                leaf_of_[at(boxes_[at(i)])] = index;
        } else {
            const int32_t middle = first + (last - first) / 2;
            std::nth_element(boxes_.begin() + first, boxes_.begin() + middle, boxes_.begin() + last,
                             [&](int32_t a, int32_t b) {
                                 const int64_t i = int64_t{a} * dims_ + widest, j = int64_t{b} * dims_ + widest;
                                 const int64_t ca = lo_[i] + hi_[i], cb = lo_[j] + hi_[j];
                                 return ca != cb ? ca < cb : a < b;
                             });
            build(first, middle, index);
            build(middle, last, index);
        }
        nodes_[at(index)].skip = static_cast<int32_t>(nodes_.size());
    }

    static constexpr int32_t kLeaf = 8;

    const int64_t* lo_;
    const int64_t* hi_;
    int32_t dims_, count_;
    std::vector<int32_t> boxes_, leaf_of_;
    std::vector<Node> nodes_;
    std::vector<int64_t> bounds_;  // per node: lo, then hi
};

}  // namespace ostinato::passes
