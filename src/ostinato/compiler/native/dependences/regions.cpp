#include "dependences/regions.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "at.h"

namespace ostinato::passes {

namespace {

struct Extent {
    uintptr_t low, high;
};

// Roots whose bytes overlap are one allocation.
struct Allocations {
    std::vector<int32_t> of_root;
    std::vector<IndexSpace> spaces;
};

IndexSpace index_space_of(const Operands& operands, std::span<const int32_t> roots, Extent hull) {
    // One root, or several over the same memory, of which one spans all: its axes are the allocation's.
    int32_t widest = roots[0];
    for (int32_t r : roots) {
        const Layout &a = operands.roots[at(r)], &b = operands.roots[at(widest)];
        if (a.high - a.low > b.high - b.low)
            widest = r;
    }
    const Layout& root = operands.roots[at(widest)];
    return root.low == hull.low && root.high == hull.high ? IndexSpace(root) : IndexSpace(hull.low, hull.high);
}

// The owner of the memory may have fewer axes than the arrays made of it: `numpy.arange(64).reshape(8, 8)` is a view of
// a line. So views of several axes say where rows end, those with the finest rows first, and of these the first one in
// memory: it begins where a row does, if any does.
void cut_rows(const Operands& operands, Allocations& allocations, bool shifts) {
    const auto outer = [&](int32_t view) {
        const std::span<const Axis> axes = operands.views[at(view)].layout.axes;
        return axes.empty() ? 0 : axes[0].stride;
    };
    std::vector<int32_t> telling;  // views with strides that are not all those of their index space
    for (std::size_t v = 0; v < operands.views.size(); ++v) {
        const Operands::View& view = operands.views[v];
        if (!view.layout.empty() &&
            !allocations.spaces[at(allocations.of_root[at(view.root)])].has_strides(view.layout))
            telling.push_back(static_cast<int32_t>(v));
    }
    const auto key = [&](int32_t view) { return std::pair(outer(view), operands.views[at(view)].layout.low); };
    std::stable_sort(telling.begin(), telling.end(), [&](int32_t a, int32_t b) { return key(a) < key(b); });
    for (int32_t v : telling) {
        const Operands::View& view = operands.views[at(v)];
        allocations.spaces[at(allocations.of_root[at(view.root)])].cut(view.layout, shifts);
    }
}

// `shifts`: index spaces may begin before the memory, so that rows of arrays that lie anywhere in it are rows of
// theirs.
Allocations find_allocations(const Operands& operands, bool shifts) {
    const std::size_t roots = operands.roots.size();
    std::vector<Extent> extent(roots);
    for (std::size_t r = 0; r < roots; ++r)
        extent[r] = {operands.roots[r].low, operands.roots[r].high};
    for (const Operands::View& view : operands.views) {
        if (view.layout.empty())
            continue;
        Extent& e = extent[at(view.root)];
        e.low = e.low == e.high ? view.layout.low : std::min(e.low, view.layout.low);
        e.high = std::max(e.high, view.layout.high);
    }
    std::vector<int32_t> sorted(roots);
    std::iota(sorted.begin(), sorted.end(), 0);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](int32_t a, int32_t b) { return extent[at(a)].low < extent[at(b)].low; });
    Allocations out;
    out.of_root.assign(roots, -1);
    for (std::size_t i = 0; i < roots;) {
        Extent hull = extent[at(sorted[i])];
        std::size_t j = i + 1;
        for (; j < roots && extent[at(sorted[j])].low < hull.high; ++j)
            hull.high = std::max(hull.high, extent[at(sorted[j])].high);
        const std::span<const int32_t> members(sorted.data() + i, j - i);
        for (int32_t r : members)
            out.of_root[at(r)] = static_cast<int32_t>(out.spaces.size());
        out.spaces.push_back(index_space_of(operands, members, hull));
        i = j;
    }
    cut_rows(operands, out, shifts);
    return out;
}

// Rings over the same arrays in the same order are one.
std::vector<int32_t> same_rings(const Operands& operands) {
    const auto same = [&](const Operands::Ring& a, const Operands::Ring& b) {
        return std::equal(
            a.arrays.begin(), a.arrays.end(), b.arrays.begin(), b.arrays.end(),
            [&](int32_t x, int32_t y) { return operands.views[at(x)].layout == operands.views[at(y)].layout; });
    };
    std::unordered_map<uintptr_t, std::vector<int32_t>> by_address;
    std::vector<int32_t> out;
    for (const Operands::Ring& ring : operands.rings) {
        const auto self = static_cast<int32_t>(out.size());
        std::vector<int32_t>& known = by_address[operands.views[at(ring.arrays[0])].layout.low];
        const auto twin =
            std::find_if(known.begin(), known.end(), [&](int32_t r) { return same(ring, operands.rings[at(r)]); });
        out.push_back(twin == known.end() ? self : *twin);
        if (twin == known.end())
            known.push_back(self);
    }
    return out;
}

// Distinct boxes, numbered as they come.
class BoxTable {
public:
    explicit BoxTable(Regions& out) : out_(out), hash_{&out}, equal_{&out}, known_(64, hash_, equal_) {}

    int32_t add(const IndexSpace& space, const Layout& view) {
        const auto dims = at(out_.dims);
        const std::size_t from = out_.lo.size();
        out_.lo.resize(from + dims, 0);
        out_.hi.resize(from + dims, 1);
        space.box(view, out_.lo.data() + from, out_.hi.data() + from);
        return keep();
    }

    int32_t whole() {
        out_.lo.resize(out_.lo.size() + at(out_.dims), 0);
        out_.hi.resize(out_.hi.size() + at(out_.dims), 1);
        return keep();
    }

private:
    struct Hash {
        const Regions* out;
        std::size_t operator()(int32_t box) const {
            std::size_t hash = 0;
            for (int64_t i = int64_t{box} * out->dims; i < (int64_t{box} + 1) * out->dims; ++i)
                hash = ((hash ^ at(out->lo[at(i)])) * 0x9e3779b97f4a7c15u ^ at(out->hi[at(i)])) * 0xc2b2ae3d27d4eb4fu;
            return hash ^ hash >> 32;
        }
    };
    struct Equal {
        const Regions* out;
        bool operator()(int32_t a, int32_t b) const {
            const auto same = [&](const std::vector<int64_t>& v) {
                const auto x = v.begin() + int64_t{a} * out->dims, y = v.begin() + int64_t{b} * out->dims;
                return std::equal(x, x + out->dims, y);
            };
            return same(out->lo) && same(out->hi);
        }
    };

    int32_t keep() {
        const auto last = static_cast<int32_t>(out_.lo.size() / at(out_.dims)) - 1;
        const auto [where, fresh] = known_.insert(last);
        if (!fresh) {
            out_.lo.resize(out_.lo.size() - at(out_.dims));
            out_.hi.resize(out_.hi.size() - at(out_.dims));
        }
        return *where;
    }

    Regions& out_;
    Hash hash_;
    Equal equal_;
    std::unordered_set<int32_t, Hash, Equal> known_;
};

class Builder {
public:
    explicit Builder(const Operands& operands)
        : operands_(operands), allocations_(find_allocations(operands, true)), ring_(same_rings(operands)),
          boxes_(out_) {}

    Regions build() {
        find_ring_spaces();
        find_mixed();
        view_box_.assign(operands_.views.size(), -1);
        const auto allocations = static_cast<int32_t>(allocations_.spaces.size());
        const auto rings = static_cast<int32_t>(operands_.rings.size());
        out_.groups = allocations + rings + operands_.tokens;
        for (const Operands::Access& access : operands_.accesses) {
            switch (access.kind) {
                case Operands::Kind::kArray:
                    add_view(access, access.what, 1, -1);
                    break;
                case Operands::Kind::kElement:
                    add_element(access, allocations);
                    break;
                case Operands::Kind::kToken:
                    add(access, allocations + rings + access.what, 1, 0, -1, boxes_.whole());
                    break;
            }
        }
        return std::move(out_);
    }

private:
    // A ring whose arrays do not overlap is a space of its own, with the axes of its first array; any other is no more
    // than its views taken together.
    bool turns(const Operands::Ring& ring) const { return ring.disjoint && ring.arrays.size() > 1; }

    void find_ring_spaces() {
        for (const IndexSpace& space : allocations_.spaces)
            out_.dims = std::max(out_.dims, space.dims());
        for (const Operands::Ring& ring : operands_.rings) {
            ring_spaces_.emplace_back(operands_.views[at(ring.arrays[0])].layout);
            whole_.push_back(false);
            for (int32_t v : ring.arrays) {
                const Layout& layout = operands_.views[at(v)].layout;
                if (!layout.empty() && IndexSpace(layout).plain_bytes())
                    whole_.back() = true;
            }
            out_.dims = std::max(out_.dims, ring_spaces_.back().dims());
        }
    }

    // An allocation is mixed where a ring meets anything but itself: there its accesses are listed by their aliases,
    // too.
    void find_mixed() {
        constexpr int32_t kNone = -2, kPlain = -1, kMixed = -3;
        std::vector<int32_t> colour(allocations_.spaces.size(), kNone);
        const auto paint = [&](int32_t view, int32_t with) {
            if (operands_.views[at(view)].layout.empty())
                return;
            int32_t& c = colour[at(allocation(view))];
            c = c == kNone || c == with ? with : kMixed;
        };
        for (const Operands::Access& access : operands_.accesses) {
            if (access.kind == Operands::Kind::kArray)
                paint(access.what, kPlain);
            if (access.kind != Operands::Kind::kElement)
                continue;
            const Operands::Element& element = operands_.elements[at(access.what)];
            const int32_t ring = ring_[at(element.ring)];
            for (int32_t v : element.views)
                paint(v, turns(operands_.rings[at(ring)]) ? ring : kPlain);
        }
        mixed_.resize(colour.size());
        for (std::size_t a = 0; a < colour.size(); ++a)
            mixed_[a] = colour[a] == kMixed;
    }

    int32_t allocation(int32_t view) const { return allocations_.of_root[at(operands_.views[at(view)].root)]; }

    void add_view(const Operands::Access& access, int32_t view, int32_t period, int32_t alias) {
        const Layout& layout = operands_.views[at(view)].layout;
        if (layout.empty())
            return;
        int32_t& box = view_box_[at(view)];
        if (box < 0)
            box = boxes_.add(allocations_.spaces[at(allocation(view))], layout);
        add(access, allocation(view), period, 0, alias, box);
    }

    void add_element(const Operands::Access& access, int32_t first_ring_group) {
        const Operands::Element& element = operands_.elements[at(access.what)];
        const int32_t ring = ring_[at(element.ring)];
        const Operands::Ring& arrays = operands_.rings[at(ring)];
        if (!turns(arrays)) {
            for (int32_t v : element.views)
                add_view(access, v, 1, -1);
            return;
        }
        const Layout& layout = operands_.views[at(element.views[0])].layout;
        if (layout.empty())
            return;
        const IndexSpace& space = ring_spaces_[at(ring)];
        const int32_t box = boxes_.add(space, whole_[at(ring)] ? operands_.views[at(arrays.arrays[0])].layout : layout);
        const auto period = static_cast<int32_t>(arrays.arrays.size());
        add(access, first_ring_group + ring, period, element.offset, -1, box);
        for (int32_t v : element.views)
            if (mixed_[at(allocation(v))])
                add_view(access, v, period, ring);
    }

    void add(const Operands::Access& access, int32_t group, int32_t period, int32_t phase, int32_t alias, int32_t box) {
        out_.op.push_back(access.op);
        out_.mode.push_back(access.mode);
        out_.group.push_back(group);
        out_.period.push_back(period);
        out_.phase.push_back(phase);
        out_.alias.push_back(alias);
        out_.box.push_back(box);
    }

    const Operands& operands_;
    Allocations allocations_;
    std::vector<int32_t> ring_;  // the ring that stands for each
    Regions out_;
    BoxTable boxes_;
    std::vector<IndexSpace> ring_spaces_;
    std::vector<bool> whole_;  // rings of arrays that have no axes of their own
    std::vector<bool> mixed_;
    std::vector<int32_t> view_box_;
};

}  // namespace

Regions regions(const Operands& operands) { return Builder(operands).build(); }

Boxes boxes(const Operands& operands) {
    const Allocations allocations = find_allocations(operands, false);
    Boxes out;
    for (const IndexSpace& space : allocations.spaces)
        out.dims = std::max(out.dims, space.dims());
    const std::size_t dims = at(out.dims);
    out.stride.assign(allocations.spaces.size() * dims, 0);
    for (std::size_t a = 0; a < allocations.spaces.size(); ++a) {
        const IndexSpace& space = allocations.spaces[a];
        out.low.push_back(static_cast<int64_t>(space.low()));
        for (std::size_t d = 0; d < space.axes().size(); ++d)
            out.stride[a * dims + d] = space.axes()[d].stride;
    }
    out.lo.assign(operands.views.size() * dims, 0);
    out.hi.assign(operands.views.size() * dims, 1);
    for (std::size_t v = 0; v < operands.views.size(); ++v) {
        const Operands::View& view = operands.views[v];
        out.allocation.push_back(view.layout.empty() ? -1 : allocations.of_root[at(view.root)]);
        if (!view.layout.empty())
            allocations.spaces[at(out.allocation.back())].box(view.layout, &out.lo[v * dims], &out.hi[v * dims]);
    }
    return out;
}

}  // namespace ostinato::passes
