// What a compiled program is, apart from its arrays: lanes, their order, their waits. Immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace ostinato {

// Preconditions do something in a run's first step only, postconditions in its last; both are external. A device
// operation enqueues something on its lane's stream: its end means issued.
enum class Kind : std::uint8_t {
    kNothing,
    kNative,
    kPython,
    kUntil,
    kExternal,
    kPrecondition,
    kPostcondition,
    kDevice
};

inline bool is_external(Kind kind) { return kind >= Kind::kExternal && kind <= Kind::kPostcondition; }

// Before the batch that names it: timeline[lane] >= step * ops_of(lane) + offset.
struct Wait {
    std::uint32_t lane;
    std::uint32_t stride;  // operations a step on that lane
    std::int64_t offset;   // position + 1 - distance * stride
};

// Consecutive operations of one kind on one lane, with waits only before the first and a publish only after the last.
struct Batch {
    std::uint32_t begin, end;  // positions in the lane
    std::uint32_t wait_begin, wait_end;
    Kind kind;
    bool publishes;  // somebody waits for the last one
};

struct LaneOrder {
    std::vector<std::uint32_t> ops;  // operation ids in order
    std::vector<Batch> batches;
    std::vector<Wait> waits;
    std::vector<Wait> window;    // with offset for `window_period` steps ago: keeps lanes together
    std::uint32_t first = 0;     // of its first operation, where operations of all lanes are stored one after the other
    std::uint32_t affinity = 0;  // the slot that serves it
    bool pinned = false;         // no other slot may serve it
    bool native = true;          // all its batches are
};

constexpr std::uint32_t kNotExternal = UINT32_MAX;

struct Schedule {
    std::uint32_t n_ops = 0;
    std::uint32_t n_stored = 0;  // entries for operations: each lane begins on a pair of cache lines of its own
    std::vector<LaneOrder> lanes;
    std::uint64_t first_step = 0;     // steps are numbered from here, so that the first waits hold by themselves
    std::uint64_t window_period = 0;  // lanes look at each other every so many steps; lead < 2 * window_period
    // Predecessors by the user's edges (not those that only order): poison follows them.
    std::vector<std::uint64_t> pred_begin;  // n_ops + 1
    std::vector<std::uint32_t> pred_op, pred_distance;
    // The operation that decides whether the step is the run's last; -1: none.
    std::int64_t until_op = -1;
    std::uint32_t until_lane = 0;
    std::uint32_t until_position = 0;
    std::uint64_t until_every = 1;
    std::vector<std::uint32_t> periods;  // lengths of the rings used; periods[0] == 1
    // External operations: their numbers by operation (empty if there are none), their operations by number.
    std::vector<std::uint32_t> external_of, externals;
    std::uint32_t n_posts = 0;     // postconditions
    std::uint32_t n_holdings = 0;  // reservations
    std::uint32_t unrolled = 1;    // so many of the user's steps are one step; the operations are those of each in turn

    // An operation and a step as the user counts them.
    std::pair<std::uint32_t, std::uint64_t> as_recorded(std::uint32_t op, std::uint64_t step) const {
        const std::uint32_t recorded = n_ops / unrolled;
        return {op % recorded, step * unrolled + op / recorded};
    }

    std::size_t bytes() const {
        const auto held = [](const auto& vector) { return vector.capacity() * sizeof(vector[0]); };
        std::size_t total = held(pred_begin) + held(pred_op) + held(pred_distance) + held(periods);
        for (const LaneOrder& lane : lanes)
            total += held(lane.ops) + held(lane.batches) + held(lane.waits) + held(lane.window);
        return total;
    }
};

// The compiler's flat arrays, from which a schedule is built.
struct ScheduleArrays {
    std::span<const std::int64_t> lane_begin;  // lanes + 1: into lane_ops
    std::span<const std::int32_t> lane_ops;    // operation ids, lane after lane, in order
    std::span<const std::int32_t> affinity;    // by lane
    std::span<const std::uint8_t> pinned;      // by lane
    std::span<const std::uint8_t> kind;        // by operation
    std::span<const std::int64_t> wait_begin;  // operations + 1: into the next two
    std::span<const std::int32_t> wait_op;     // the operation waited for
    std::span<const std::int32_t> wait_distance;
    std::span<const std::uint8_t> published;   // by operation
    std::span<const std::int64_t> pred_begin;  // operations + 1
    std::span<const std::int32_t> pred_op, pred_distance;
    std::span<const std::int32_t> periods;
    std::int64_t until_op = -1, until_every = 1;
    std::uint64_t largest_distance = 0;
    std::uint32_t n_posts = 0, n_holdings = 0, unrolled = 1;
};

std::shared_ptr<Schedule> build_schedule(const ScheduleArrays& arrays);

}  // namespace ostinato
