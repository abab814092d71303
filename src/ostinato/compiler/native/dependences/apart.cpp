#include "dependences/apart.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "at.h"

namespace ostinato::passes {

namespace {

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
        for (int64_t e = beside.start[at(t.op)]; e < beside.start[at(t.op) + 1]; ++e) {
            const Key least{beside.op[at(e)], t.box, t.turn, t.write}, most{beside.op[at(e)], t.box, t.turn, true};
            const auto found = std::lower_bound(by_op_.begin(), by_op_.end(), least);
            if (found != by_op_.end() && *found <= most)
                return true;
        }
        return false;
    }

    std::vector<Key> by_op_;
    std::vector<bool> followed_, preceded_;
};

// As the scan of dependences.cpp, but an access is left out only where a write lies between that conflicts with both.
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
                    add(t, time, e, earlier);
            }
            return true;
        });
    }

    void add(const Touch& t, int64_t time, const Touch& e, int64_t earlier) {
        const auto n = static_cast<int64_t>(touches_.size());
        const auto rounds = static_cast<int32_t>((time - 1) / n - (earlier - 1) / n);
        const int32_t distance = t.turn - e.turn + rounds * period_;
        if (distance > 0 || e.op != t.op)
            edges_.add(e.op, t.op, distance);
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

}  // namespace

void scan_apart(std::span<const Touch> touches, const GivenEdges& given, BoxIndex& index, int32_t period,
                Edges& edges) {
    ApartScan(touches, given, index, period, edges).run();
}

}  // namespace ostinato::passes
