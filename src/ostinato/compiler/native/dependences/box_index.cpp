#include "dependences/box_index.h"

#include <algorithm>
#include <numeric>

#include "at.h"

namespace ostinato::passes {

namespace {

constexpr int32_t kLeaf = 8;

}  // namespace

BoxIndex::BoxIndex(const int64_t* lo, const int64_t* hi, int32_t dims, int32_t count)
    : lo_(lo), hi_(hi), dims_(dims), count_(count), boxes_(at(count)), leaf_of_(at(count)) {
    std::iota(boxes_.begin(), boxes_.end(), 0);
    if (count > 0)
        build(0, count, -1);
}

void BoxIndex::build(int32_t first, int32_t last, int32_t parent) {
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

}  // namespace ostinato::passes
