#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ostinato::passes {

struct Axis {
    int64_t stride, extent;  // stride in bytes, positive; extent > 1
};

// The bytes that an array touches. Its axes are those with more than one element and a stride, the longest stride
// first; a negative stride is turned round, since only the set of bytes matters.
struct Layout {
    uintptr_t low = 0, high = 0;  // [low, high) holds all of them
    int64_t item = 1;
    std::span<const Axis> axes;

    bool empty() const { return low == high; }
    bool operator==(const Layout& other) const;
};

// Keeps the axes of many layouts, and so makes these.
class Layouts {
public:
    Layout add(uintptr_t address, int64_t item, std::span<const int64_t> shape, std::span<const int64_t> strides);

private:
    std::span<Axis> room(std::size_t count);

    std::vector<std::unique_ptr<Axis[]>> blocks_;
    std::size_t used_ = 0;
};

// The axes of an allocation, by which its views become boxes: outermost first, and last the bytes of an element.
class IndexSpace {
public:
    // The index space of an array. An array whose elements overlap each other has no axes of its own: plain bytes.
    explicit IndexSpace(const Layout& root);
    // Plain bytes.
    IndexSpace(uintptr_t low, uintptr_t high);

    bool has_strides(const Layout& view) const;
    // Cuts axes into rows as `view` has them, where they can be.
    void cut(const Layout& view);

    uintptr_t low() const { return low_; }
    std::span<const Axis> axes() const { return axes_; }
    int32_t dims() const { return static_cast<int32_t>(axes_.size()); }
    bool plain_bytes() const { return plain_bytes_; }

    // The least box of whole index ranges that holds `view`, into lo and hi (`dims()` numbers each). Steps count as if
    // all between were touched. A view that does not follow the axes gets the box of all between its ends; one that
    // leaves the index space, all of it.
    void box(const Layout& view, int64_t* lo, int64_t* hi) const;

private:
    void cut(int64_t stride, int64_t inner);
    // Moves the far end of a box by an axis of a view; false if that axis does not follow an axis of the index space.
    bool extend(int64_t stride, int64_t extent, int64_t* hi) const;
    bool box_by_axes(const Layout& view, int64_t* lo, int64_t* hi) const;
    void digits(int64_t offset, int64_t* out) const;

    uintptr_t low_, high_;
    std::vector<Axis> axes_;
    bool plain_bytes_ = false;
};

}  // namespace ostinato::passes
