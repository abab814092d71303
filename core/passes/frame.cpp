#include "passes/frame.h"

#include <algorithm>

namespace ostinato::passes {

bool Layout::operator==(const Layout& other) const {
    return low == other.low && high == other.high && item == other.item &&
           std::equal(axes.begin(), axes.end(), other.axes.begin(), other.axes.end(),
                      [](const Axis& a, const Axis& b) { return a.stride == b.stride && a.extent == b.extent; });
}

Layout layout_of(uintptr_t address, int64_t item, std::span<const int64_t> shape, std::span<const int64_t> strides) {
    Layout out;
    out.item = item;
    int64_t before = 0, after = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
        if (shape[d] == 0)
            return out;
        const int64_t reach = (shape[d] - 1) * strides[d];
        (reach < 0 ? before : after) += reach;
        if (reach != 0)
            out.axes.push_back({std::abs(strides[d]), shape[d]});
    }
    out.low = address + static_cast<uintptr_t>(before);
    out.high = address + static_cast<uintptr_t>(after) + static_cast<uintptr_t>(item);
    return out;
}

Frame::Frame(const Layout& root) : low_(root.low), high_(root.high), item_(root.item), axes_(root.axes) {
    std::sort(axes_.begin(), axes_.end(), [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
    if (root.item > 1)
        axes_.push_back({1, root.item});
    int64_t inner = 1;  // bytes from the first to the end of the last of all axes within
    for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
        if (axis->stride < inner) {
            *this = Frame(low_, high_);
            return;
        }
        inner += (axis->extent - 1) * axis->stride;
    }
}

Frame::Frame(uintptr_t low, uintptr_t high)
    : low_(low), high_(high), axes_{{1, static_cast<int64_t>(high - low)}}, plain_bytes_(true) {}

void Frame::digits(int64_t offset, int64_t* out) const {
    for (std::size_t d = 0; d < axes_.size(); ++d) {
        // Padding between rows belongs to the row before it.
        out[d] = std::min(offset / axes_[d].stride, axes_[d].extent - 1);
        offset -= out[d] * axes_[d].stride;
    }
}

bool Frame::place(const Layout& view, int64_t* lo, int64_t* hi) const {
    const auto add = [&](int64_t stride, int64_t extent) {
        for (std::size_t d = 0; d < axes_.size(); ++d) {
            if (stride % axes_[d].stride != 0)
                continue;
            hi[d] += (extent - 1) * (stride / axes_[d].stride);
            return hi[d] < axes_[d].extent;
        }
        return extent == 1;
    };
    digits(static_cast<int64_t>(view.low - low_), lo);
    std::copy(lo, lo + axes_.size(), hi);
    for (const Axis& axis : view.axes)
        if (!add(axis.stride, axis.extent))
            return false;
    // An element of the view may be several of the frame's (complex numbers over floats).
    if (view.item > item_ && view.item % item_ == 0)
        return add(item_, view.item / item_) && add(1, item_);
    return add(1, view.item);
}

void Frame::box(const Layout& view, int64_t* lo, int64_t* hi) const {
    const std::size_t dims = axes_.size();
    if (view.low < low_ || view.high > high_) {
        for (std::size_t d = 0; d < dims; ++d) {
            lo[d] = 0;
            hi[d] = axes_[d].extent;
        }
        return;
    }
    if (!place(view, lo, hi)) {
        digits(static_cast<int64_t>(view.low - low_), lo);
        digits(static_cast<int64_t>(view.high - 1 - low_), hi);
        bool same = true;  // so far both ends lie in the same row
        for (std::size_t d = 0; d < dims; ++d) {
            if (!same) {
                lo[d] = 0;
                hi[d] = axes_[d].extent - 1;
            }
            same = same && lo[d] == hi[d];
        }
    }
    for (std::size_t d = 0; d < dims; ++d)
        ++hi[d];
}

}  // namespace ostinato::passes
