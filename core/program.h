// A program in the core: a schedule, its lanes, and the queue of runs that pass through them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "lane.h"
#include "poison.h"
#include "poison_reach.h"

namespace ostinato {

class Machine;

// A run keeps at most so many failures, those that come first in what is told of it; the others are counted.
constexpr std::size_t kMostFailures = 100;

// How far failures spread is worked out for so many of a run; beyond that, runs go on to their end.
constexpr std::size_t kMostSpread = 8;

class Program : public std::enable_shared_from_this<Program> {
public:
    Program(std::shared_ptr<Machine> machine, std::shared_ptr<const Schedule> schedule, std::shared_ptr<Plan> plan);

    // Appends `run`, with the current plan, to the queue; lanes see it once the frontier is published. Any thread, at
    // any time. Throws when the program has been closed.
    void submit(const std::shared_ptr<Run>& run);

    // Runs submitted from now on use `plan`; the first of them does not overlap earlier ones.
    void rebind(std::shared_ptr<Plan> plan);
    std::shared_ptr<Plan> plan();
    // Lets go of the plan: nothing can be submitted any more.
    void close();

    // Ends `run` at the first step boundary that all lanes can share. Returns false when it is already done.
    bool stop(Run& run);
    bool cancel(Run& run);
    // Skips every body of `run` from the next operation boundary on.
    void abort(Run& run);
    // The step now under way is the run's last (called by the holder of the until operation's lane).
    void stop_at(Run& run, std::uint64_t last_step);

    // A failure of `op` in the internal step `step`; marks it, and stops the run where it asks for that.
    void fail(Run& run, std::uint32_t op, std::uint64_t step, std::int32_t code, ExceptionHandle exception);
    // Whether poison from earlier runs, which have all ended, stays out of `run`. Decided for all lanes by the first
    // that enters: failures of the run itself must not count.
    bool starts_clean(Run& run);

    // How `run` ended has reached somebody: its failures, or those before it that poisoned it. When all failures have
    // been delivered, later submissions start clean.
    void deliver(Run& run);

    // The run that failed last; null once all was told and the program started clean.
    std::shared_ptr<Run> failed_run();
    // The runs that are not done.
    std::vector<std::shared_ptr<Run>> in_flight();

    // Called by the last lane that leaves `run`.
    void finish(Run& run);

    bool idle() const {  // every submitted run is done
        return completed.value.load(std::memory_order_acquire) == frontier.value.load(std::memory_order_acquire);
    }

    std::uint64_t user_step(std::uint64_t step) const { return step - schedule->first_step; }

    const std::shared_ptr<Machine> machine;
    const std::shared_ptr<const Schedule> schedule;
    std::vector<std::unique_ptr<Lane>> lanes;
    std::vector<std::uint32_t> homes;  // seats that serve them, each once
    Timeline frontier;                 // runs submitted
    Timeline completed;                // runs done
    std::atomic<bool> slow{false};     // a failure or an abort: lanes take the slow path
    History history;                   // which operations of which steps failed or were skipped; valid while `slow`
    std::atomic<bool> active{false};   // in the machine's list of programs; guarded by its mutex for writing

    std::mutex mutex;  // submission, stopping, failures, completion: never the replay loop's fast path

private:
    // Lets no step after the furthest begun begin, and none from step `at_least` of the run on.
    bool stop_locked(Run& run, std::uint64_t at_least);
    void go_slow_locked();
    bool finish_first();  // false: the first of the runs that are not done has not ended

    // Guarded by the mutex.
    std::shared_ptr<Run> last_;  // the run submitted last
    std::shared_ptr<Plan> plan_;
    bool fence_next_ = false;
    std::deque<std::shared_ptr<Run>> pending_;  // those not done, in order
    std::shared_ptr<Run> failed_;
    PoisonReach reach_;
    std::uint64_t failures_ = 0;
    std::vector<std::uint64_t> undelivered_;  // runs with failures that nobody has been told of
};

}  // namespace ostinato
