// A program in the core: a schedule, its lanes, and the queue of runs that pass through them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lanes/habit.h"
#include "lanes/lane.h"
#include "outside/external.h"
#include "program/poison.h"

namespace ostinato {

class Machine;
struct InFlightQueue;
struct Traffic;

// A run keeps at most so many failures, those that come first in what is told of it; the others are counted.
constexpr std::size_t kMostFailures = 100;

// How far failures spread is worked out for so many of a run; beyond that, runs go on to their end.
constexpr std::size_t kMostSpread = 8;

// What a program holds of one reservation. Where requests are shared, a release and a later request may come together.
struct Holding {
    std::atomic<std::uint32_t> held{0};
    std::atomic<std::uint32_t> skipped{0};  // acquires that were skipped, and whose releases have nothing to do
};

// How the runs of a program relate.
enum class Runs : std::uint8_t {
    kPipelined,    // in the order of submission, overlapping
    kSerial,       // one at a time, in the order in which they may start
    kIndependent,  // one at a time, each as if the others had never been; another program takes what should overlap
};

// Steps of runs that threads wait for, and what they took; other runs disturb it.
struct Turn {
    std::uint64_t left = UINT64_MAX;  // a longer run that a thread waits for is not taken
    std::uint64_t steps = 0;
    std::int64_t ns = 0;
    bool disturbed = false;
};

class Program : public std::enable_shared_from_this<Program> {
public:
    Program(std::shared_ptr<Machine> machine, std::shared_ptr<const Schedule> schedule, std::shared_ptr<Plan> plan,
            Runs runs);
    ~Program();
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    // Appends `run`, with the current plan, to the queue; lanes see it once the frontier is published. Serial runs are
    // appended when their start event has happened. Any thread, at any time. Throws when the program has been closed.
    // False: another has taken over, to which runs are to be submitted now; or the turn has not so many steps left.
    bool submit(const std::shared_ptr<Run>& run);

    // From now on a turn of so many steps; only what is `timed` reads a clock.
    void begin_turn(std::uint64_t steps, bool timed);
    Turn turn();
    bool turn_timed() const { return turn_timed_.load(std::memory_order_relaxed); }
    // A run of this turn has ended as it should, which a thread waited for so long.
    void add_to_turn(std::uint64_t steps, std::int64_t ns);

    // What follows is one run that is submitted in parts, with the present plan: others are submitted when the last
    // part has been, or by `release`. Parts can go over to another program by `switch_from`. False, and nothing is
    // done: runs are in flight, or failures that nobody has been told of, or it takes no runs.
    bool hold();
    void release();
    // Another program has run steps meanwhile, and has ended them: the next step of this one has the number `step`, as
    // the user counts. While it is held.
    void advance(std::uint64_t step);
    // What is held ends without a step, for `failed`, a run of such a program.
    void skip_held(const std::shared_ptr<Run>& failed);

    // Takes no runs until it takes over from another one.
    void make_passive();
    // Goes on where `other` stands, a program of the same operations on the same arrays: with the number of its next
    // step and with what it holds of reservations. From then on `other` takes no runs, unless it takes over in turn.
    // False, and nothing is done: one of them has runs that are not done, or failures that nobody has been told of, or
    // is closed, or `other` takes no runs, or got another plan while it is held.
    bool switch_from(Program& other);
    // How many of the user's steps it and those that it replaced have run; exact while nothing is in flight.
    std::uint64_t steps_run();
    // Gives the next step the number `step`, as the user counts. False, and nothing is done: runs are in flight.
    bool number_from(std::uint64_t step);
    bool takes_runs();
    bool passive();

    // Runs submitted from now on use `plan`; the first of them does not overlap earlier ones.
    void rebind(std::shared_ptr<Plan> plan);
    std::shared_ptr<Plan> plan();
    std::shared_ptr<Plan> held_plan();
    // Lets go of the plan: nothing can be submitted any more.
    void close();

    // Ends `run` at the first step boundary that all lanes can share. Returns false when it is already done.
    bool cancel(Run& run);
    // Skips every body of `run` from the next operation boundary on.
    void abort(Run& run);
    // The step now under way is the run's last (called by the holder of the until operation's lane).
    void stop_at(Run& run, std::uint64_t last_step);

    // The default precondition of `run` is poisoned: nothing in its first step runs.
    void poison_start(Run& run);
    // `op` in the internal step `step` is skipped since `by` is poisoned (null: since something failed that is told
    // elsewhere): as a failure, but that there is none to tell.
    void poison(Run& run, std::uint32_t op, std::uint64_t step, const std::shared_ptr<Event>& by);
    // What comes before postcondition `index` is done, or was skipped, in the internal step `step`.
    void reach_post(Run& run, std::uint32_t index, std::uint64_t step, bool skipped);
    // An event for the end of `run`, or for one of its postconditions; `origin` explains if it is poisoned.
    std::shared_ptr<Event> end_of(Run& run, PythonObjectHandle origin);
    std::shared_ptr<Event> post_of(Run& run, std::uint32_t index, PythonObjectHandle origin);

    // A failure of `op` in the internal step `step`; marks it, and stops the run where it asks for that. `failed`: the
    // operation that it is told of, and that is marked too, where that is another.
    void fail(Run& run, std::uint32_t op, std::uint64_t step, std::int32_t code, ExceptionHandle exception,
              std::uint32_t failed = UINT32_MAX);
    // Whether poison from earlier runs, which have all ended, stays out of `run`. Decided for all lanes by the first
    // that enters: failures of the run itself must not count.
    bool starts_clean(Run& run);
    // Nothing is in flight: what devices do from now on does not come of what has failed.
    void trust_devices_locked();

    // How `run` ended has reached somebody: its failures, or those before it that poisoned it. When all failures have
    // been delivered, later submissions start clean.
    void deliver(Run& run);
    // The same, and the user was told: nobody need be told again of this run's failure, nor of that which poisoned it.
    void retrieve(Run& run);
    // The same, where nobody else can ask how it ended: what it raised is not kept. Tracebacks lead to the frames of
    // whoever replayed, and these to the program, which keeps its last run.
    void forget(Run& run);

    // Something of `run` was skipped, for the first time.
    void note_skipped(Run& run);
    // The runs that are not done.
    std::vector<std::shared_ptr<Run>> in_flight();

    // Called by the last lane that leaves `run`.
    void finish(Run& run);

    // For programs whose runs other ranks take part in: core/DESIGN.md, "Ranks". Before the first run.
    void join(std::shared_ptr<Traffic> its_traffic);
    bool shared() const { return shared_; }
    // Lets no further step begin until `settle`, and returns the number of steps that it has begun on this rank.
    std::uint64_t halt(Run& run, bool cancels);
    // All ranks run so many steps of `run`.
    void settle(Run& run, std::uint64_t steps);
    // All ranks have left `run`, which may have failed elsewhere.
    void agree(Run& run, bool failed_elsewhere);

    // Claims all lanes if all of them wait; else none.
    bool hold_waiting_lanes();

    bool idle() const {  // every submitted run is done
        return completed.value.load(std::memory_order_acquire) == frontier.value.load(std::memory_order_acquire) &&
               unqueued.load(std::memory_order_acquire) == 0;
    }

    const std::shared_ptr<Machine> machine;
    const std::shared_ptr<const Schedule> schedule;
    std::vector<std::unique_ptr<Lane>> lanes;
    std::vector<std::uint32_t> affinities;         // slots that serve them, each once
    Timeline frontier;                             // runs submitted
    Timeline completed;                            // runs done
    Timeline started;                              // runs up to which all have started that had an event to wait for
    Timeline settled;                              // the last run of which the ranks have agreed when it is to stop
    std::shared_ptr<Traffic> traffic;              // null: no rank is sent to, or received from
    std::vector<std::shared_ptr<Signal>> signals;  // of external operations, by number
    std::vector<std::shared_ptr<InFlightQueue>> in_flight_queues;  // of streams, by number
    std::vector<Holding> holdings;                                 // of reservations, by number
    std::atomic<std::uint32_t> unqueued{0};                        // runs that wait for an event, or are held
    std::atomic<std::uint64_t> further_parts{0};                   // of runs submitted in parts: all but the last ones
    Habit habit;                                                   // of those who wait for its runs
    std::uint64_t step_offset;      // of its steps from those the user counts; changes only while nothing is in flight
    std::atomic<bool> slow{false};  // a failure or an abort: lanes take the slow path
    History history;                // which operations of which steps failed or were skipped; valid while `slow`
    // --- guarded by the machine's mutex, for writing ---
    std::atomic<bool> active{false};  // the machine has it: it has runs that are not done
    std::atomic<bool> listed{false};  // in the lists of workers, or on its way there
    bool suspended = false;           // active, not listed: all lanes wait, and what they wait for lists it again
    std::uint64_t listing = 0;        // how often it has been listed
    std::size_t machine_index = 0;    // in the machine's vector

    std::vector<Timeline*> suspended_on;  // where it is registered; guarded by the parking mutex

    std::mutex mutex;  // submission, stopping, failures, completion: never the replay loop's fast path

private:
    std::uint64_t steps_run_locked() const;
    // Lets no step after the furthest begun begin, and none from step `at_least` of the run on.
    bool stop_locked(Run& run, std::uint64_t at_least);
    void go_slow_locked();
    // `run` has something that later runs must not build on until it was told.
    // Returns what is to end outside the lock.
    std::array<std::shared_ptr<Run>, 2> taint_locked(Run& run);
    // After a failure of `ops`: ends the run where it asks for that, or where nothing is left that it does not reach.
    void limit_locked(Run& run, std::span<const std::uint32_t> ops, std::uint64_t step, bool stops);
    // Ends a run before the steps of which nothing is left that is not poisoned.
    void end_if_lost_locked(Run& run);
    bool quiet_locked() const { return plan_ && idle() && undelivered_.empty(); }
    void enqueue_locked(const std::shared_ptr<Run>& run);
    // Ends the hold, and returns the runs that it held, which are in the queue now.
    std::vector<std::shared_ptr<Run>> release_locked();
    // A run that may start: false where it is held.
    bool start_or_hold_locked(const std::shared_ptr<Run>& run);
    void queued(const std::shared_ptr<Run>& run);  // after that, without the lock
    void attend_barriers(Run& run) const;          // those it was given, with the plan that it has
    void start_locked();                           // publishes up to which run all have started
    struct Told {                                  // what an end leaves to do without the lock
        std::shared_ptr<Run> run;
        std::shared_ptr<Plan> plan;  // its arrays may be the user's last reference
        std::vector<std::pair<std::shared_ptr<Event>, std::vector<Event::Listener>>> events;
    };
    Told end_locked(std::shared_ptr<Run> run);
    static void tell(Told& told);
    bool finish_first();  // false: the first of the runs that are not done has not ended

    void tell_ranks(Run& run, bool ended);

    const Runs runs_;
    bool shared_ = false;  // with other ranks
    // Guarded by the mutex.
    std::vector<std::shared_ptr<Run>> waiting_;  // serial runs that may not start yet
    std::vector<std::shared_ptr<Run>> held_;     // runs to be queued when the hold ends
    std::shared_ptr<Plan> held_plan_;            // of the parts; null where there is no hold
    Turn turn_;
    std::atomic<bool> turn_timed_{false};
    std::shared_ptr<Run> last_;  // the run submitted last
    std::shared_ptr<Plan> plan_;
    std::int32_t last_priority_ = 0;  // of that run
    bool fence_next_ = false;
    bool passive_ = false;                      // another has taken over, or it has not yet
    std::deque<std::shared_ptr<Run>> pending_;  // those not done, in order
    std::deque<std::shared_ptr<Run>> tainted_;  // the last of those with failures, or with poisoned preconditions
    PoisonReach reach_;
    std::uint64_t failures_ = 0;
    std::vector<std::uint64_t> undelivered_;  // runs with failures that nobody has been told of
};

}  // namespace ostinato
