// A worker: one thread while it has a slot. It picks lanes and spawned calls, runs them, polls, and parks.
#pragma once

#include <cstdint>
#include <optional>

#include "lanes/floating_point.h"
#include "lanes/machine.h"
#include "lanes/slot.h"
#include "python/thread.h"

namespace ostinato {

constexpr std::int64_t kSignalNs = 20'000'000;  // how often a waiting thread looks at signals

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

    // A visitor's: serves the slot as long as what comes next there is part of `run`, or is `call`. False: a signal
    // handler raised.
    bool serve_visit(const Program& program, const Run& run);
    void serve_visit(SpawnedCall& call);
    // The run that a visitor waits for; null for others.
    const Run* visited() const { return visited_; }

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
    bool serve_other(bool any);
    bool left_alone(const Lane& lane) const;
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
    bool calls_have_turn(std::int64_t now);
    void shorten_lists();
    bool polled_enough();
    void end_idle();  // the slot has something to do
    template <class Function>
    void for_each_messenger(Function call);
    void leave_messages();  // to the threads that make progress where no worker does
    void start_polling();
    bool stop_polling();
    bool waits_long() const;

    const FloatingPointMode own_mode_;
    FloatingPointMode mode_;
    std::int64_t turn_started_ = 0, polling_since_ = 0, polling_for_ = 0;
    std::int64_t granted_ = 0, looked_ = 0;  // the budget that was granted when the clock was looked at last
    bool calls_turn_ = false;                // among equals, it is the turn of calls, not of lanes
    std::int64_t calls_turn_since_ = 0;
    unsigned polls_ = 0;
    bool polling_ = false;
    const Run* visited_ = nullptr;
    const Program* visited_program_ = nullptr;
};

// Runs the lane whose claim the worker holds until its head waits or the worker is wanted elsewhere.
Outcome run_lane(Worker& worker, Lane& lane);

// A thread in replay(): it replaces the worker of slot 0. So does a visitor: a thread in result() that does a short run
// or call itself.
class Caller {
public:
    enum class Visit : std::uint8_t { kRun, kCall };

    // Takes the slot if it is free, or is made free at once. The thread holds the GIL.
    explicit Caller(Machine& machine);
    // The same, but only a worker that has nothing to do is asked for the slot.
    Caller(Machine& machine, Visit what);
    ~Caller();
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

    // Serves slot 0, or waits for it and for `run`, until the run is done. False: a signal handler raised.
    bool work_until_done(Run& run);
    // Does what the thread waits for, as far as that comes next on the slot. False: a signal handler raised.
    bool visit(const Program& program, const Run& run);
    void visit(SpawnedCall& call);

private:
    void ask();  // for the slot, for a short while
    void poll(std::int64_t give_up);
    // In between no worker takes the slot, or enters a run: what is submitted meanwhile is left to this thread.
    void begin_waiting();
    void end_waiting();
    bool wait_for_slot(Run& run, PythonThread& python);  // or for `run`. False: a signal handler raised
    void leave();

    Machine& machine_;
    Slot& slot_;
    bool in_slot_;
    bool waiting_ = false;
};

// Waits until `run` is done or `timeout_ns` (negative: no limit) has passed. False: a signal handler raised.
bool wait_until_done(Run& run, std::int64_t timeout_ns);

}  // namespace ostinato
