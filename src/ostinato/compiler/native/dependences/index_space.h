#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

namespace ostinato::passes {

struct Axis {
    int64_t stride, extent;  // stride in bytes, positive; extent > 1
    bool operator==(const Axis&) const = default;
};

// The bytes that an array touches. Its axes are those with more than one element and a stride, the longest stride
// first; a negative stride is turned round, since only the set of bytes matters.
struct Layout {
    uintptr_t low = 0, high = 0;  // [low, high) holds all of them
    int64_t item = 1;
    std::span<const Axis> axes;

    bool empty() const { return low == high; }
    bool operator==(const Layout& other) const {
        return low == other.low && high == other.high && item == other.item && std::ranges::equal(axes, other.axes);
    }
};

// Keeps the axes of many layouts, and so makes these.
class Layouts {
public:
    Layout add(uintptr_t address, int64_t item, std::span<const int64_t> shape, std::span<const int64_t> strides) {
        Layout out;
        out.item = item;
        int64_t before = 0, after = 0;
        std::size_t count = 0;
        for (std::size_t d = 0; d < shape.size(); ++d) {
            if (shape[d] == 0)
                return out;
            const int64_t reach = (shape[d] - 1) * strides[d];
            (reach < 0 ? before : after) += reach;
            if (reach != 0)
                ++count;
        }
        out.low = address + static_cast<uintptr_t>(before);
        out.high = address + static_cast<uintptr_t>(after) + static_cast<uintptr_t>(item);
        const std::span<Axis> axes = room(count);
        std::size_t filled = 0;
        for (std::size_t d = 0; d < shape.size(); ++d)
            if (shape[d] != 1 && strides[d] != 0)
                axes[filled++] = {std::abs(strides[d]), shape[d]};
        std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
        out.axes = axes;
        return out;
    }

private:
    std::span<Axis> room(std::size_t count) {
        constexpr std::size_t kBlock = 4096;  // more than the axes of any array
        if (blocks_.empty() || used_ + count > kBlock) {
            blocks_.push_back(std::make_unique_for_overwrite<Axis[]>(kBlock));
            used_ = 0;
        }
        used_ += count;
        return {blocks_.back().get() + used_ - count, count};
    }

    std::vector<std::unique_ptr<Axis[]>> blocks_;
    std::size_t used_ = 0;
};

// The axes of an allocation, by which its views become boxes: outermost first, and last the bytes of an element.
class IndexSpace {
public:
    // The index space of an array. An array whose elements overlap each other has no axes of its own: plain bytes.
    explicit IndexSpace(const Layout& root)
        : low_(root.low), high_(root.high), axes_(root.axes.begin(), root.axes.end()) {
        if (root.item > 1)
            axes_.push_back({1, root.item});
        int64_t inner = 1;  // bytes from the first to the end of the last of all axes within
        for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
            if (axis->stride < inner) {
                *this = IndexSpace(low_, high_);
                return;
            }
            inner += (axis->extent - 1) * axis->stride;
        }
    }

    // Plain bytes.
    IndexSpace(uintptr_t low, uintptr_t high)
        : low_(low), high_(high), axes_{{1, static_cast<int64_t>(high - low)}}, plain_bytes_(true) {}

    bool has_strides(const Layout& view) const {
        return std::all_of(view.axes.begin(), view.axes.end(), [&](const Axis& axis) {
            return std::any_of(axes_.begin(), axes_.end(), [&](const Axis& own) { return own.stride == axis.stride; });
        });
    }

    // Cuts axes into rows as `view` has them, where they can be. `shifts`: rows begin where those of the view do,
    // though the first one may then begin before the memory.
    void cut(const Layout& view, bool shifts) {
        // Innermost first: the finest rows there are.
        Axis inner{1, view.item};
        for (auto axis = view.axes.rbegin(); axis != view.axes.rend(); ++axis) {
            if ((inner.extent - 1) * inner.stride < axis->stride)
                cut(axis->stride, inner.stride, shifts ? static_cast<int64_t>(view.low - low_) % axis->stride : 0);
            inner = *axis;
        }
    }

    uintptr_t low() const { return low_; }
    std::span<const Axis> axes() const { return axes_; }
    int32_t dims() const { return static_cast<int32_t>(axes_.size()); }
    bool plain_bytes() const { return plain_bytes_; }

    // The least box of whole index ranges that holds `view`, into lo and hi (`dims()` numbers each). Steps count as if
    // all between were touched. A view that does not follow the axes gets the box of all between its ends; one that
    // leaves the index space, all of it.
    void box(const Layout& view, int64_t* lo, int64_t* hi) const {
        const std::size_t dims = axes_.size();
        if (view.low < low_ || view.high > high_) {
            for (std::size_t d = 0; d < dims; ++d) {
                lo[d] = 0;
                hi[d] = axes_[d].extent;
            }
            return;
        }
        if (!box_by_axes(view, lo, hi)) {
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

private:
    // `begin`: how many bytes after the begin of a row a row is to begin.
    void cut(int64_t stride, int64_t inner, int64_t begin) {
        for (std::size_t d = 0; d < axes_.size(); ++d) {
            Axis& axis = axes_[d];
            if (stride % axis.stride != 0)
                continue;
            const int64_t row = stride / axis.stride;
            // Only the outermost axis may end within a row.
            if (row == 1 || row >= axis.extent || inner % axis.stride != 0 || (d > 0 && axis.extent % row != 0))
                return;
            if (d == 0 && begin > 0 && begin % axis.stride == 0) {
                low_ -= static_cast<uintptr_t>(stride - begin);
                axis.extent += (stride - begin) / axis.stride;
            }
            const Axis outer{stride, (axis.extent + row - 1) / row};
            axis.extent = row;
            axes_.insert(axes_.begin() + static_cast<std::ptrdiff_t>(d), outer);
            return;
        }
    }

    // Moves the far end of a box by an axis of a view; false if that axis does not follow an axis of the index space.
    bool extend(int64_t stride, int64_t extent, int64_t* hi) const {
        if (extent == 1)
            return true;
        for (std::size_t d = 0; d < axes_.size(); ++d) {
            if (stride % axes_[d].stride != 0)
                continue;
            const int64_t reach = hi[d] + (extent - 1) * (stride / axes_[d].stride);
            if (reach < axes_[d].extent) {
                hi[d] = reach;
                return true;
            }
            // Too long for this axis, but perhaps it is whole rows of it: reshaped views, or elements of another size.
            if (d == 0 || axes_[d - 1].stride % stride != 0)
                return false;
            const int64_t row = axes_[d - 1].stride / stride;
            return extent > row && extent % row == 0 && extend(stride, row, hi) &&
                   extend(axes_[d - 1].stride, extent / row, hi);
        }
        return false;
    }

    bool box_by_axes(const Layout& view, int64_t* lo, int64_t* hi) const {
        digits(static_cast<int64_t>(view.low - low_), lo);
        std::copy(lo, lo + axes_.size(), hi);
        return extend(1, view.item, hi) && std::all_of(view.axes.begin(), view.axes.end(), [&](const Axis& axis) {
                   return extend(axis.stride, axis.extent, hi);
               });
    }

    void digits(int64_t offset, int64_t* out) const {
        for (std::size_t d = 0; d < axes_.size(); ++d) {
            // Padding between rows belongs to the row before it.
            out[d] = std::min(offset / axes_[d].stride, axes_[d].extent - 1);
            offset -= out[d] * axes_[d].stride;
        }
    }

    uintptr_t low_, high_;
    std::vector<Axis> axes_;
    bool plain_bytes_ = false;
};

}  // namespace ostinato::passes
