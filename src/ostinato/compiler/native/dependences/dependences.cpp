#include "dependences/dependences.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <vector>

#include "at.h"

namespace ostinato::passes {

namespace {

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

constexpr std::size_t kFewNeighbours = 32;

// The boxes of one group, numbered from 0.
struct GroupBoxes {
    std::vector<int64_t> lo, hi;
    std::vector<int32_t> id;  // of each row of the group
    int32_t count = 0;
};

class LocalBoxes {
public:
    LocalBoxes(const Accesses& accesses, std::size_t boxes) : accesses_(accesses), local_(boxes, -1) {}

    GroupBoxes of(std::span<const int64_t> rows) {
        GroupBoxes out;
        std::vector<int32_t> seen;
        const auto dims = at(accesses_.dims);
        for (int64_t row : rows) {
            const int32_t box = accesses_.box[at(row)];
            int32_t& id = local_[at(box)];
            if (id < 0) {
                id = static_cast<int32_t>(seen.size());
                seen.push_back(box);
                const auto from = static_cast<std::ptrdiff_t>(at(box) * dims), to = from + accesses_.dims;
                out.lo.insert(out.lo.end(), accesses_.lo.begin() + from, accesses_.lo.begin() + to);
                out.hi.insert(out.hi.end(), accesses_.hi.begin() + from, accesses_.hi.begin() + to);
            }
            out.id.push_back(id);
        }
        for (int32_t box : seen)
            local_[at(box)] = -1;
        out.count = static_cast<int32_t>(seen.size());
        return out;
    }

private:
    const Accesses& accesses_;
    std::vector<int32_t> local_;
};

// One access as its group sees it. Of a ring of n arrays we follow one array: in step t it is the element whose phase
// is -t modulo n, so over n steps every access meets it exactly once, in step `turn`. All its arrays look alike, so
// this one history says everything. A plain allocation is a ring of one.
struct Touch {
    int32_t op, box, turn;
    int32_t apart;  // touches with the same number do not conflict, unless it is negative
    bool write;
};

// Edges within a step that hold anyway, from each op and to it.
struct GivenEdges {
    Adjacency successors, predecessors;
};

// Adds the edge to an access at `time` from one at `earlier`. Times count accesses from 1 through two rounds.
void add_edge(std::span<const Touch> touches, const Touch& t, int64_t time, int64_t earlier, int32_t period,
              Edges& edges) {
    const auto n = static_cast<int64_t>(touches.size());
    const Touch& from = touches[at((earlier - 1) % n)];
    const auto rounds = static_cast<int32_t>((time - 1) / n - (earlier - 1) / n);
    const int32_t distance = t.turn - from.turn + rounds * period;
    if (distance > 0 || from.op != t.op)
        edges.add(from.op, t.op, distance);
}

// Goes through a group's accesses in the order in which they happen, twice: once to reach the steady state, once to
// write down the edges. Per box it keeps the last write and the reads since. An access needs an edge from the last
// write of every box it overlaps and, if it writes, from the reads since; it needs none from what happened before the
// last write of its very own box, since it comes after that write, which came after all of these. So every edge is a
// conflict, and every conflict is an edge or follows from edges.
class Scan {
public:
    Scan(std::span<const Touch> touches, BoxIndex& index, int32_t period, Edges& edges)
        : touches_(touches), index_(index), period_(period), edges_(edges) {
        const auto boxes = at(index.count());
        last_write_.assign(boxes, 0);
        last_read_.assign(boxes, 0);
        earlier_read_.assign(2 * touches.size() + 1, 0);
        find_neighbours();
    }

    void run() {
        int64_t time = 0;
        for (const Touch& t : touches_)
            note(t, ++time);
        for (const Touch& t : touches_) {
            ++time;
            look(t, time);
            note(t, time);
        }
    }

private:
    // Boxes with few neighbours keep a list of them; the others are searched for by time in the tree.
    void find_neighbours() {
        const int32_t boxes = index_.count();
        start_.assign(at(boxes) + 1, 0);
        crowded_.assign(at(boxes), false);
        std::vector<int32_t> found;
        for (int32_t b = 0; b < boxes; ++b) {
            found.clear();
            index_.search(b, 0, false, [&](int32_t other) {
                found.push_back(other);
                return found.size() <= kFewNeighbours;
            });
            if (found.size() > kFewNeighbours) {
                crowded_[at(b)] = true;
                any_crowded_ = true;
            } else {
                neighbours_.insert(neighbours_.end(), found.begin(), found.end());
            }
            start_[at(b) + 1] = static_cast<int64_t>(neighbours_.size());
        }
    }

    void note(const Touch& t, int64_t time) {
        if (t.write) {
            last_write_[at(t.box)] = time;
        } else {
            earlier_read_[at(time)] = last_read_[at(t.box)];
            last_read_[at(t.box)] = time;
        }
        if (any_crowded_)
            index_.note(t.box, time, t.write);
    }

    void look(const Touch& t, int64_t time) {
        const int64_t since = last_write_[at(t.box)];
        const auto visit = [&](int32_t other) {
            const int64_t write = last_write_[at(other)];
            if (write > 0 && write >= since)
                add_edge(touches_, t, time, write, period_, edges_);
            if (t.write)
                for (int64_t read = last_read_[at(other)]; read > std::max(since, write);
                     read = earlier_read_[at(read)])
                    add_edge(touches_, t, time, read, period_, edges_);
            return true;
        };
        if (crowded_[at(t.box)]) {
            index_.search(t.box, since, !t.write, visit);
        } else {
            for (int64_t i = start_[at(t.box)]; i < start_[at(t.box) + 1]; ++i)
                visit(neighbours_[at(i)]);
        }
    }

    std::span<const Touch> touches_;
    BoxIndex& index_;
    int32_t period_;
    Edges& edges_;
    // Times count accesses from 1 through both rounds; 0 is never.
    std::vector<int64_t> last_write_, last_read_, earlier_read_;
    std::vector<int64_t> start_;
    std::vector<int32_t> neighbours_;
    std::vector<bool> crowded_;
    bool any_crowded_ = false;
};

// The latest writes of a box, latest first, none with the same number as another: up to the latest that conflicts with
// everything, since that comes after all before it; and no more than three, since of these one is neither of the same
// number as an access nor as another one.
class Writes {
public:
    struct Write {
        int64_t time;
        int32_t apart;
    };

    void add(Write write) {
        if (write.apart < 0) {
            count_ = 0;
        } else {
            const auto same = std::find_if(begin(), end(), [&](const Write& w) { return w.apart == write.apart; });
            if (same != end()) {
                std::copy(same + 1, end(), same);
                --count_;
            }
        }
        count_ = std::min(count_ + 1, kMost);
        std::copy_backward(begin(), end() - 1, end());
        writes_[0] = write;
    }

    // Whether an access that conflicts with the writes, at `time`, comes before one of them that comes before another
    // access to the box; `apart` and `apart_of_other` are the numbers of the two.
    bool between(int64_t time, int32_t apart, int32_t apart_of_other) const {
        return std::any_of(begin(), end(), [&](const Write& w) {
            return w.time > time && (w.apart < 0 || (w.apart != apart && w.apart != apart_of_other));
        });
    }

    // The time before which every access comes before a write that comes before an access of number `apart`.
    int64_t all_before(int32_t apart) const {
        const Write* found = nullptr;
        for (const Write& w : *this) {
            if (w.apart < 0 || found != nullptr)
                return w.time;
            if (w.apart != apart)
                found = &w;
        }
        return 0;
    }

    const Write* begin() const { return writes_; }
    const Write* end() const { return writes_ + count_; }

private:
    static constexpr std::ptrdiff_t kMost = 3;

    Write* begin() { return writes_; }
    Write* end() { return writes_ + count_; }

    Write writes_[kMost] = {};
    std::ptrdiff_t count_ = 0;
};

// Which touches have another of the same number, by an edge that holds anyway before or after them, that conflicts with
// whatever they conflict with. No other touch of the box lies between two of the same number.
class Chains {
public:
    Chains(std::span<const Touch> touches, const GivenEdges& given) {
        by_op_.reserve(touches.size());
        for (const Touch& t : touches)
            by_op_.push_back({t.op, t.box, t.turn, t.write});
        std::sort(by_op_.begin(), by_op_.end());
        for (const Touch& t : touches) {
            followed_.push_back(t.apart >= 0 && any(t, given.successors));
            preceded_.push_back(t.apart >= 0 && any(t, given.predecessors));
        }
    }

    bool followed(std::size_t touch) const { return followed_[touch]; }
    bool preceded(std::size_t touch) const { return preceded_[touch]; }

private:
    // Operation, box, turn, whether it writes.
    using Key = std::tuple<int32_t, int32_t, int32_t, bool>;

    bool any(const Touch& t, const Adjacency& beside) const {
        return std::ranges::any_of(beside.of(t.op), [&](const Neighbour& each) {
            const auto found = std::lower_bound(by_op_.begin(), by_op_.end(), Key{each.op, t.box, t.turn, t.write});
            return found != by_op_.end() && *found <= Key{each.op, t.box, t.turn, true};
        });
    }

    std::vector<Key> by_op_;
    std::vector<bool> followed_, preceded_;
};

// As `Scan`, for touches of which some do not conflict although they overlap; those with the same number follow each
// other. Slower: an access is left out only where a write lies between that conflicts with both.
class ApartScan {
public:
    ApartScan(std::span<const Touch> touches, const GivenEdges& given, BoxIndex& index, int32_t period, Edges& edges)
        : touches_(touches), chains_(touches, given), index_(index), period_(period), edges_(edges),
          writes_(at(index.count())), last_(at(index.count()), 0), earlier_(2 * touches.size() + 1, 0) {}

    void run() {
        int64_t time = 0;
        for (const Touch& t : touches_)
            note(t, ++time);
        for (std::size_t i = 0; i < touches_.size(); ++i) {
            ++time;
            if (!chains_.preceded(i))
                look(touches_[i], time);
            note(touches_[i], time);
        }
    }

private:
    void note(const Touch& t, int64_t time) {
        if (t.write)
            writes_[at(t.box)].add({time, t.apart});
        earlier_[at(time)] = last_[at(t.box)];
        last_[at(t.box)] = time;
        index_.note(t.box, time, t.write);
    }

    void look(const Touch& t, int64_t time) {
        const Writes& own = writes_[at(t.box)];
        const auto n = static_cast<int64_t>(touches_.size());
        // What happened more than a round ago happened again since, and comes after itself through this access.
        const int64_t since = std::max({own.all_before(t.apart), time - n, int64_t{1}});
        index_.search(t.box, since, !t.write, [&](int32_t box) {
            const Writes& others = writes_[at(box)];
            const int64_t from = std::max(since, others.all_before(t.apart));
            for (int64_t earlier = last_[at(box)]; earlier >= from; earlier = earlier_[at(earlier)]) {
                const std::size_t position = at((earlier - 1) % n);
                const Touch& e = touches_[position];
                const bool conflict = (e.write || t.write) && (e.apart < 0 || e.apart != t.apart);
                if (conflict && !chains_.followed(position) && !own.between(earlier, e.apart, t.apart) &&
                    !others.between(earlier, e.apart, t.apart))
                    add_edge(touches_, t, time, earlier, period_, edges_);
            }
            return true;
        });
    }

    std::span<const Touch> touches_;
    Chains chains_;
    BoxIndex& index_;
    int32_t period_;
    Edges& edges_;
    // Times count accesses from 1 through both rounds; 0 is never.
    std::vector<Writes> writes_;
    std::vector<int64_t> last_, earlier_;
};

void scan_group(const Accesses& accesses, std::span<const int64_t> rows, const GivenEdges& given, LocalBoxes& local,
                Edges& edges) {
    const int32_t period = accesses.period[at(rows[0])];
    const GroupBoxes boxes = local.of(rows);
    std::vector<Touch> touches;
    touches.reserve(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto row = at(rows[i]);
        touches.push_back({accesses.op[row], boxes.id[i], (period - accesses.phase[row]) % period,
                           accesses.apart_of(row), (accesses.mode[row] & 2) != 0});
    }
    if (period > 1)
        std::stable_sort(touches.begin(), touches.end(),
                         [](const Touch& a, const Touch& b) { return a.turn < b.turn; });
    BoxIndex index(boxes.lo.data(), boxes.hi.data(), accesses.dims, boxes.count);
    if (std::any_of(touches.begin(), touches.end(), [](const Touch& t) { return t.apart >= 0; }))
        ApartScan(touches, given, index, period, edges).run();
    else
        Scan(touches, index, period, edges).run();
}

// Which array a ring's element is changes from step to step, and an edge cannot say "in every third step": so a ring's
// access and another's, plain or of another ring, that can touch the same bytes conflict in every step. A writer comes
// after itself every `period` steps, so distances up to that many say all.
void conflict_always(const Accesses& a, std::size_t row, std::size_t other, Edges& edges) {
    if (a.apart_of(row) >= 0 && a.apart_of(row) == a.apart_of(other))
        return;
    const bool write = (a.mode[row] & 2) != 0, other_write = (a.mode[other] & 2) != 0;
    int32_t period = 0;
    if (write && other_write)
        period = std::min(a.period[row], a.period[other]);
    else if (write)
        period = a.period[row];
    else if (other_write)
        period = a.period[other];
    const int32_t first = std::min(a.op[row], a.op[other]), second = std::max(a.op[row], a.op[other]);
    for (int32_t d = 0; d < period; ++d) {
        edges.add(first, second, first == second ? d + 1 : d);
        edges.add(second, first, d + 1);
    }
}

void mix_group(const Accesses& accesses, std::span<const int64_t> rows, LocalBoxes& local, Edges& edges) {
    const GroupBoxes boxes = local.of(rows);
    const BoxIndex index(boxes.lo.data(), boxes.hi.data(), accesses.dims, boxes.count);
    std::vector<std::vector<std::size_t>> in_box(at(boxes.count));
    for (std::size_t i = 0; i < rows.size(); ++i)
        in_box[at(boxes.id[i])].push_back(at(rows[i]));
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto row = at(rows[i]);
        const int32_t ring = accesses.alias[row];
        if (ring < 0)
            continue;
        index.search(boxes.id[i], 0, false, [&](int32_t box) {
            for (std::size_t other : in_box[at(box)])
                if (accesses.alias[other] != ring && (accesses.alias[other] < 0 || other > row))
                    conflict_always(accesses, row, other, edges);
            return true;
        });
    }
}

}  // namespace

Edges inferred(int32_t ops, const Accesses& accesses) {
    const std::size_t rows = accesses.op.size();
    const std::vector<int64_t> start = starts_of(accesses.groups, accesses.group);
    std::vector<int64_t> sorted(rows), next(start.begin(), start.end() - 1);
    for (std::size_t row = 0; row < rows; ++row)
        sorted[at(next[at(accesses.group[row])]++)] = static_cast<int64_t>(row);

    Edges edges;
    GivenEdges given;
    if (!accesses.apart.empty())
        given = {successors(ops, accesses.given), predecessors(ops, accesses.given)};
    LocalBoxes local(accesses, accesses.dims > 0 ? accesses.lo.size() / at(accesses.dims) : 1);
    std::vector<int64_t> plain;
    for (std::size_t g = 0; g < at(accesses.groups); ++g) {
        const std::span<const int64_t> all(sorted.data() + start[g], at(start[g + 1] - start[g]));
        plain.clear();
        for (int64_t row : all)
            if (accesses.alias[at(row)] < 0)
                plain.push_back(row);
        if (!plain.empty())
            scan_group(accesses, plain, given, local, edges);
        if (plain.size() < all.size())
            mix_group(accesses, all, local, edges);
    }
    return sorted_unique(ops, span_of(edges));
}

}  // namespace ostinato::passes
