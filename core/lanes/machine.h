// A machine: slots, the worker threads behind them, and the programs that have work.
#pragma once

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "lanes/slot.h"
#include "outside/blocking_pool.h"
#include "outside/spawned.h"
#include "program/program.h"

namespace ostinato {

class PythonThread;

class Machine : public std::enable_shared_from_this<Machine> {
public:
    // One slot per entry of `cores`: the core its worker is pinned to, or -1. The first core is left to callers: the
    // worker of slot 0 is not pinned. `crowded`: there are more slots than cores, so that polling takes the core from
    // a thread that has work. `watched`: slots count how long they are idle, since activity() will be called.
    static std::shared_ptr<Machine> create(const std::vector<int>& cores, bool crowded, PythonObjectHandle init,
                                           bool watched);
    ~Machine();
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;

    // Tells every thread to end, and waits for them if `join`. Runs have ended by then.
    void close(bool join);
    // Nobody can submit to it any more: closes as soon as nothing is in flight.
    void forget();
    void close_if_forgotten();
    // All runs that are not done, of programs whose handles are gone too.
    std::vector<std::pair<std::shared_ptr<Program>, std::shared_ptr<Run>>> in_flight();
    // Before the interpreter ends: cancels all runs of all machines, and waits until no thread of ours is left. Without
    // the GIL.
    static void end_all();
    bool closed() const { return closing_.load(std::memory_order_acquire); }
    // The process has forked since this machine was made: its threads are not here.
    bool forked() const { return made_.forked(); }
    // In a forked child: forget the threads, which live in the parent.
    void abandon();

    // Lists `program`, which has work: workers look at its lanes. What that costs does not depend on how many others
    // have work: the lists of slots are brought up to date, not copied.
    void activate(const std::shared_ptr<Program>& program);
    // Lets go of `program` if it is idle. The caller holds no lock.
    void retire(Program& program);
    // Takes the programs off the lists whose lanes all wait. What they wait for lists them again.
    void suspend_waiting(Slot& slot);
    // Lists a suspended program again, and notifies its slots. Under the parking mutex, which keeps it alive.
    void resume(Program& program);
    // Gives the claim of `lane` back, for a worker of another slot than its affinity.
    void give_back(Lane& lane);
    // Notifies every slot, so that those asleep let go of retired programs.
    void notify_all();
    // Notifies those slots of `program` that nobody looks after, and calls those back that serve something less
    // urgent. After the frontier was published.
    void notify_slots(const Program& program, std::int32_t priority);
    // Has somebody take `call`, which is ready: a slot that sleeps, or else one that serves what is not more urgent.
    void notify_for(const SpawnedCall& call);
    // Before `slot` is busy for a while: notifies one that sleeps, if calls (or lanes) are left that it could look
    // after. Whether it did.
    bool pass_on_calls(const Slot& slot);
    void pass_on(const Slot& slot);
    // Whether calls that are not bound to a slot are for `slot`.
    bool takes_calls(const Slot& slot) const {
        return !slot.by_caller.load(std::memory_order_relaxed) || slots_.size() == 1;
    }
    // The same, now: where lanes can go nowhere else, a slot that sleeps is to take them instead, and is notified.
    bool should_take_calls(const Slot& slot);
    // Every worker comes back to its loop at its next operation boundary.
    void call_attention();

    // Takes the slot for this thread. False: another thread has it. A caller sees to it that somebody takes the calls
    // that are ready, unless it is about to take the next one itself.
    bool take_slot(Slot& slot, bool as_caller, bool for_call = false);
    // For the caller that has slot 0: no worker is pinned to the core that it runs on. The worker that was takes the
    // core that was left to callers before.
    void leave_core_to_caller() {
        const int core = sched_getcpu();
        if (core != callers_core_) [[unlikely]]
            swap_cores(core);
    }
    void leave_slot(Slot& slot);  // threads that were notified before and could not take it are seen from here on

    Slot& slot(std::size_t i) { return *slots_[i]; }
    const std::vector<std::unique_ptr<Slot>>& slots() const { return slots_; }
    // Brings the lists of `slot` up to date. Few dead entries may stay in long lists, unless `sweep`.
    void refresh(Slot& slot, bool sweep = false);
    bool stale(const Slot& slot) const { return version_.load(std::memory_order_acquire) != slot.version; }

    // Has `job` done by the machine's own thread, which holds the GIL while it ends what that holds.
    void do_soon(std::function<void(PythonThread&)> job);
    // Whether the calling thread is the machine's own, which runs callbacks.
    bool own_thread() const { return own_id_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

    // Aborts `run` if it is not done in 0.1 s.
    void abort_later(std::shared_ptr<Program> program, std::shared_ptr<Run> run);

    // For tasks that may block.
    BlockingPool& blocking_pool() { return blocking_pool_; }
    SpawnedCalls& calls() { return calls_; }
    // The machine's own thread looks round.
    void wake_own();

    const bool crowded;
    const bool watched;                          // slots count how long they are idle, and runs their steps
    const std::size_t few_listed;                // lanes that a slot looks through again and again
    const PythonObjectHandle init;               // the function that every thread calls before its first task, or null
    std::atomic<std::uint32_t> sleepers{0};      // slots that are parked
    std::atomic<bool> priorities_differ{false};  // some run has had a priority that is not 0
    std::atomic<std::uint64_t> looked_at{0};     // statistics: lanes that refreshing has looked at
    std::atomic<std::uint64_t> steps_ended{0};   // statistics: steps of the runs that have ended, if watched

private:
    struct Cancelled {
        std::shared_ptr<Program> program;
        std::shared_ptr<Run> run;
        std::int64_t deadline;
    };

    Machine(const std::vector<int>& cores, bool crowded, PythonObjectHandle init, bool watched);
    void swap_cores(int callers_core);
    void work(std::size_t index);  // a worker's thread
    void start(void (Machine::*body)(std::size_t), std::size_t index, int core);
    void tick(std::size_t);  // the machine's own: attention every 20 ms while anything runs, callbacks
    bool over_locked() const { return forgotten_ && programs_.empty() && calls_.idle(); }
    void notify_sleeper(const Slot* except);
    Slot* sleeper_for_calls(const Slot* except);
    void list_locked(Program& program);
    void unlist_locked(Program& program);
    void add_lanes(Slot& slot, const std::shared_ptr<Program>& program);

    const MadeHere made_;
    std::vector<std::unique_ptr<Slot>> slots_;
    std::mutex mutex_;  // the list of programs, the threads
    std::vector<std::thread> threads_;
    std::vector<int> cores_;  // by slot, what its worker is pinned to, or -1; guarded by having slot 0
    int callers_core_;        // no worker is pinned to it; -1: workers are not pinned; guarded by having slot 0
    std::vector<std::shared_ptr<Program>> programs_;
    std::atomic<std::uint64_t> version_{1};
    std::uint64_t unlisted_ = 0;  // how often a program left the lists; guarded by mutex_
    std::atomic<bool> closing_{false};
    bool forgotten_ = false;  // guarded by mutex_

    std::atomic<std::thread::id> own_id_{};
    std::mutex own_mutex_;  // what the machine's own thread does
    std::condition_variable own_wake_;
    std::vector<std::function<void(PythonThread&)>> due_;
    std::vector<Cancelled> cancelled_;
    std::atomic<bool> own_asleep_{false};

    BlockingPool blocking_pool_{*this};
    SpawnedCalls calls_;
};

}  // namespace ostinato
