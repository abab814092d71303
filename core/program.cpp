#include "program.h"

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "machine.h"

namespace ostinato {

Program::Program(std::shared_ptr<Machine> its_machine, std::shared_ptr<const Schedule> its_schedule,
                 std::shared_ptr<Plan> its_plan)
    : machine(std::move(its_machine)), schedule(std::move(its_schedule)), plan_(std::move(its_plan)) {
    const auto sentinel = std::make_shared<Run>();
    sentinel->done = true;
    sentinel->lanes_behind = static_cast<std::uint32_t>(schedule->lanes.size());
    for (std::uint32_t i = 0; i < schedule->lanes.size(); ++i) {
        auto lane = std::make_unique<Lane>();
        lane->program = this;
        lane->order = &schedule->lanes[i];
        lane->index = i;
        lane->step = schedule->first_step;
        lane->begun = schedule->first_step;
        lane->run = sentinel;
        lane->phase.assign(schedule->periods.size(), 0);
        lane->timeline.value = schedule->first_step * lane->order->ops.size();
        lane->block(frontier, 1);
        lanes.push_back(std::move(lane));
        if (std::find(homes.begin(), homes.end(), schedule->lanes[i].home) == homes.end())
            homes.push_back(schedule->lanes[i].home);
    }
    for (const auto& lane : lanes) {
        for (const auto& other : lanes)
            lane->neighbours.push_back({&other->timeline, 0});
    }
    last_ = sentinel;
}

void Program::submit(const std::shared_ptr<Run>& run) {
    const auto n_lanes = static_cast<std::uint32_t>(lanes.size());
    run->set_limit(std::min(run->requested, kNever - 1));
    run->lanes_left = n_lanes;
    run->lanes_behind = n_lanes;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!plan_)
            throw std::runtime_error("the program is closed");
        run->index = last_->index + 1;
        run->plan = plan_;
        run->fenced = std::exchange(fence_next_, false);
        run->all_delivered_at_submit = undelivered_.empty();
        run->failures_at_submit = failures_;
        if (slow.load(std::memory_order_relaxed) && undelivered_.empty()) {
            if (completed.value.load(std::memory_order_acquire) == last_->index) {
                slow.store(false, std::memory_order_relaxed);  // nothing is in flight: nobody reads it now
                for (auto& lane : lanes)
                    lane->clean_from = 0;
            } else {
                run->fenced = true;
            }
        }
        if (n_lanes != 0)
            pending_.push_back(run);
        last_->next = run;
        last_ = run;
        frontier.value.store(run->index, std::memory_order_release);
        if (n_lanes == 0) {
            run->plan.reset();
            run->done.store(true, std::memory_order_release);
            completed.value.store(run->index, std::memory_order_release);
        }
    }
    if (n_lanes == 0)
        return;
    // Against servers that go to sleep: they set `asleep`, fence, and look at the frontier once more.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!active.load(std::memory_order_relaxed))
        machine->activate(shared_from_this());
    machine->ring_homes(*this, run->priority);
}

void Program::rebind(std::shared_ptr<Plan> plan) {
    const std::lock_guard<std::mutex> lock(mutex);
    plan_.swap(plan);
    fence_next_ = true;
}

std::shared_ptr<Run> Program::failed_run() {
    const std::lock_guard<std::mutex> lock(mutex);
    return failed_;
}

std::vector<std::shared_ptr<Run>> Program::in_flight() {
    const std::lock_guard<std::mutex> lock(mutex);
    return {pending_.begin(), pending_.end()};
}

std::shared_ptr<Plan> Program::plan() {
    const std::lock_guard<std::mutex> lock(mutex);
    return plan_;
}

void Program::close() {
    std::shared_ptr<Plan> plan;  // ends outside the lock
    const std::lock_guard<std::mutex> lock(mutex);
    plan.swap(plan_);
}

bool Program::stop_locked(Run& run, std::uint64_t at_least) {
    if (run.done.load(std::memory_order_acquire))
        return false;
    const std::uint64_t limit = run.limit();
    run.bound.store(kDeciding, std::memory_order_release);
    heavy_fence();  // every lane has stored the step it begins, or will see that we decide and wait for our mutex
    std::uint64_t steps = at_least;
    for (const auto& lane : lanes) {
        const std::uint64_t in = lane->run_index.load(std::memory_order_acquire);
        if (in > run.index)
            steps = limit;
        else if (in == run.index)
            steps = std::max(
                steps, lane->begun.load(std::memory_order_relaxed) - run.first.load(std::memory_order_relaxed) + 1);
    }
    run.set_limit(std::min(steps, limit));
    return true;
}

bool Program::stop(Run& run) {
    const std::lock_guard<std::mutex> lock(mutex);
    return stop_locked(run, 0);
}

bool Program::cancel(Run& run) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!stop_locked(run, 0))
        return false;
    run.cancelled = true;
    return true;
}

void Program::abort(Run& run) {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!stop_locked(run, 0))
            return;
        run.aborted.store(true, std::memory_order_relaxed);
        go_slow_locked();
    }
    machine->call_attention();
}

void Program::stop_at(Run& run, std::uint64_t last_step) {
    const std::lock_guard<std::mutex> lock(mutex);
    const std::uint64_t steps = last_step - run.first.load(std::memory_order_relaxed) + 1;
    // No lane has begun a later step: all wait for this verdict before they read the limit.
    if (steps < run.limit())
        run.set_limit(steps);
}

void Program::go_slow_locked() {
    if (slow.load(std::memory_order_relaxed))
        return;
    history.prepare(schedule->n_ops, 4 * schedule->window_period);
    reach_.clear();
    slow.store(true, std::memory_order_release);
}

// Which of two failures is told rather than the other: what leaves the program, then the least in (step, program
// order).
static bool told_before(const Failure& a, const Failure& b) {
    const bool a_leaves = a.exception && leaves(*a.exception);
    const bool b_leaves = b.exception && leaves(*b.exception);
    return std::tuple(!a_leaves, a.step, a.op) < std::tuple(!b_leaves, b.step, b.op);
}

void Program::fail(Run& run, std::uint32_t op, std::uint64_t step, std::int32_t code, ExceptionHandle exception) {
    const bool leaving = exception && leaves(*exception);
    Failure failure{op, user_step(step), code, std::move(exception)};  // those that are not kept end outside the lock
    std::shared_ptr<Run> failed;                                       // likewise the last one
    {
        const std::lock_guard<std::mutex> lock(mutex);
        go_slow_locked();
        history.mark(op, step, true);
        ++failures_;
        if (run.failures.empty()) {
            undelivered_.push_back(run.index);
            failed = run.shared_from_this();
            failed.swap(failed_);
        }
        if (run.failures.size() < kMostFailures) {
            run.failures.push_back(std::move(failure));
        } else {
            ++run.failures_unlisted;
            const auto last = std::max_element(run.failures.begin(), run.failures.end(), told_before);
            if (told_before(failure, *last))
                std::swap(failure, *last);
        }
        if (leaving)
            run.cancelled = true;
        if (run.on_error == OnError::kStop || leaving) {
            stop_locked(run, 0);
        } else if (run.failures.size() <= kMostSpread) {
            const std::uint64_t all = reach_.spread(*schedule, op, step);
            if (all != kNever)
                stop_locked(run, all - run.first.load(std::memory_order_relaxed));
        }
    }
}

void Program::deliver(Run& run) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!run.done.load(std::memory_order_acquire))
        return;
    const bool poison_only = run.failures.empty() && !run.cancelled && run.poisoned.load(std::memory_order_relaxed);
    std::erase_if(undelivered_,
                  [&](std::uint64_t index) { return index == run.index || (poison_only && index < run.index); });
}

bool Program::starts_clean(Run& run) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (run.start == Run::Start::kUndecided) {
        // No failure has come since the submission, and all before it had been told.
        const bool clean = run.all_delivered_at_submit && failures_ == run.failures_at_submit;
        run.start = clean ? Run::Start::kClean : Run::Start::kPoisoned;
        if (clean)
            reach_.clear();
    }
    return run.start == Run::Start::kClean;
}

void Program::finish(Run& run) {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        run.ended = true;
    }
    // Lanes pass through runs in order, but the last of two lanes may get here before the last of another two. Runs
    // are told to be done in order all the same, by whoever finds them first in the queue.
    while (finish_first()) {
    }
}

bool Program::finish_first() {
    std::shared_ptr<Plan> plan;  // released outside the lock: its arrays may be the user's last reference
    std::shared_ptr<Run> run;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (pending_.empty() || !pending_.front()->ended)
            return false;
        run = std::move(pending_.front());
        pending_.pop_front();
        plan = std::move(run->plan);
        run->done.store(true, std::memory_order_release);
        if (run->wants_callback)
            machine->call_back(run);  // before a later run can end and the machine be closed
        publish(completed, run->index);
    }
    run->finished.ring();
    light_fence();  // against a caller that falls asleep: it looks at `done` after its heavy fence
    Seat* const caller = run->caller.load(std::memory_order_acquire);
    if (caller != nullptr && caller->asleep.load(std::memory_order_relaxed))
        caller->doorbell.ring();
    return true;
}

}  // namespace ostinato
