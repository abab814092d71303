#pragma once

#include <cstdint>
#include <vector>

namespace ostinato::passes {

// Boxes [lo, hi) of one allocation in a tree of bounding boxes, with the times of the latest access and the latest
// write under every node, so that a search can leave out all that was last touched before a given time.
class BoxIndex {
public:
    // `lo` and `hi` hold `count` rows of `dims` numbers; both must outlive the index.
    BoxIndex(const int64_t* lo, const int64_t* hi, int32_t dims, int32_t count);

    int32_t count() const { return count_; }

    bool overlap(int32_t a, int32_t b) const {
        return meet(lo_ + int64_t{a} * dims_, hi_ + int64_t{a} * dims_, lo_ + int64_t{b} * dims_,
                    hi_ + int64_t{b} * dims_);
    }

    // `box` was accessed at `time`; times never go back.
    void note(int32_t box, int64_t time, bool write) {
        for (int32_t n = leaf_of_[static_cast<std::size_t>(box)]; n >= 0;
             n = nodes_[static_cast<std::size_t>(n)].parent) {
            Node& node = nodes_[static_cast<std::size_t>(n)];
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
            const Node& node = nodes_[static_cast<std::size_t>(n)];
            const int64_t* bound = bounds_.data() + int64_t{n} * 2 * dims_;
            if ((writes ? node.written : node.accessed) < since || !meet(lo, hi, bound, bound + dims_)) {
                n = node.skip;
                continue;
            }
            for (int32_t i = node.first; i < node.last; ++i) {
                const int32_t other = boxes_[static_cast<std::size_t>(i)];
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
    void build(int32_t first, int32_t last, int32_t parent);

    const int64_t* lo_;
    const int64_t* hi_;
    int32_t dims_, count_;
    std::vector<int32_t> boxes_, leaf_of_;
    std::vector<Node> nodes_;
    std::vector<int64_t> bounds_;  // per node: lo, then hi
};

}  // namespace ostinato::passes
