// A worker: one thread while it has a slot. It picks lanes and spawned calls, runs them, polls, and parks.
#pragma once

#include <cstdint>
#include <optional>

#include "lanes/floating_point.h"
#include "lanes/machine.h"
#include "lanes/slot.h"
#include "python/thread.h"

namespace ostinato {

enum class Outcome : std::uint8_t {
    kBlocked,  // the head of the lane waits
    kYielded,  // attention, or its turn is over
    kRunOver,  // internal to the lane loop
};

class Worker {
public:
    Worker(Machine& machine, Slot& slot, PythonThread& python);
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    // A worker's time on its slot: until the slot is wanted, the machine closes, or there is nothing to do. Returns
    // the epoch to sleep on.
    std::uint32_t serve_as_worker();
    // A caller's: until `run` is done. False: a signal handler raised, and the run goes on.
    bool serve_until_done(const Run& run);

    // Polls a head that waits, for a short while and without the GIL. Returns what it last saw; below `target`, the
    // lane is blocked.
    std::uint64_t await(Lane& lane, Timeline& timeline, std::uint64_t target);
    void take_mode(const FloatingPointMode& mode) {
        if (!(mode == mode_)) [[unlikely]] {
            mode_ = mode;
            mode.apply();
        }
    }
    bool attention() const { return slot.attention.load(std::memory_order_relaxed) != 0; }
    // The budget is used up: whether another lane of the same urgency should have a turn.
    bool turn_over();

    Machine& machine;
    Slot& slot;
    PythonThread& python;
    std::int64_t budget = 0;  // operations until the clock is looked at, where others want a turn
    int patience = 0;         // looks at a head that waits before doing anything else

    static const Worker* current();  // the calling thread's; null when it serves no lanes

private:
    bool serve_one();  // runs one lane as far as it goes, or one call; false when none was ready
    void run(SpawnedCall& call);
    void run(Lane& lane, bool calls);
    // The lane to serve next, or null, when `urgent` is the priority of a call that could be served instead.
    // `visiting`: of all lanes whose slots are in calls, too.
    struct Choice {
        Slot::Listed* listed = nullptr;
        bool due = false;  // passed over for long: comes before what is more urgent
    };
    Choice choose(bool visiting, std::optional<std::int32_t> urgent);
    Slot::Listed* candidate(std::size_t at);
    Slot::Listed* passed_over(std::size_t n, std::int32_t priority);
    void begin_turn();
    bool calls_have_turn(std::int64_t now);
    void shorten_lists();
    void look_at_lists();
    bool polled_enough();
    bool waits_long() const;

    const FloatingPointMode own_mode_;
    FloatingPointMode mode_;
    std::int64_t turn_started_ = 0, polling_since_ = 0, polling_for_ = 0;
    std::int64_t granted_ = 0, looked_ = 0;  // the budget that was granted when the clock was looked at last
    bool calls_turn_ = false;                // among equals, it is the turn of calls, not of lanes
    std::int64_t calls_turn_since_ = 0;
    unsigned polls_ = 0;
};

// Runs the lane whose claim the worker holds until its head waits or the worker is wanted elsewhere.
Outcome run_lane(Worker& worker, Lane& lane);

}  // namespace ostinato
