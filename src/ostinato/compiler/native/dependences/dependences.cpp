#include "dependences/dependences.h"

#include <algorithm>

#include "at.h"
#include "dependences/apart.h"
#include "dependences/box_index.h"

namespace ostinato::passes {

namespace {

constexpr std::size_t kFewNeighbours = 32;

// The boxes of one group, numbered from 0.
struct Boxes {
    std::vector<int64_t> lo, hi;
    std::vector<int32_t> id;  // of each row of the group
    int32_t count = 0;
};

class LocalBoxes {
public:
    LocalBoxes(const Accesses& accesses, std::size_t boxes) : accesses_(accesses), local_(boxes, -1) {}

    Boxes of(std::span<const int64_t> rows) {
        Boxes out;
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
                add(t, time, write);
            if (t.write)
                for (int64_t read = last_read_[at(other)]; read > std::max(since, write);
                     read = earlier_read_[at(read)])
                    add(t, time, read);
            return true;
        };
        if (crowded_[at(t.box)]) {
            index_.search(t.box, since, !t.write, visit);
        } else {
            for (int64_t i = start_[at(t.box)]; i < start_[at(t.box) + 1]; ++i)
                visit(neighbours_[at(i)]);
        }
    }

    void add(const Touch& t, int64_t time, int64_t earlier) {
        const auto n = static_cast<int64_t>(touches_.size());
        const Touch& from = touches_[at((earlier - 1) % n)];
        const auto rounds = static_cast<int32_t>((time - 1) / n - (earlier - 1) / n);
        const int32_t distance = t.turn - from.turn + rounds * period_;
        if (distance > 0 || from.op != t.op)
            edges_.add(from.op, t.op, distance);
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

void scan_group(const Accesses& accesses, std::span<const int64_t> rows, const GivenEdges& given, LocalBoxes& local,
                Edges& edges) {
    const int32_t period = accesses.period[at(rows[0])];
    const Boxes boxes = local.of(rows);
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
        scan_apart(touches, given, index, period, edges);
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
    const Boxes boxes = local.of(rows);
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
    std::vector<int64_t> start(at(accesses.groups) + 1, 0);
    for (int32_t g : accesses.group)
        ++start[at(g) + 1];
    for (std::size_t g = 0; g < at(accesses.groups); ++g)
        start[g + 1] += start[g];
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
