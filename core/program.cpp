#include "program.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "machine.h"

namespace ostinato {

Program::Program(std::shared_ptr<Machine> its_machine, std::shared_ptr<const Schedule> its_schedule,
                 std::shared_ptr<Plan> its_plan, Runs runs)
    : machine(std::move(its_machine)), schedule(std::move(its_schedule)), holdings(schedule->n_holdings), runs_(runs),
      plan_(std::move(its_plan)) {
    const auto sentinel = std::make_shared<Run>();
    sentinel->done = true;
    sentinel->lanes_behind = static_cast<std::uint32_t>(schedule->lanes.size());
    for (std::size_t i = 0; i < schedule->externals.size(); ++i)
        signals.push_back(std::make_unique<Signal>());
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
        if (!signals.empty()) {
            for (const std::uint32_t op : schedule->lanes[i].ops) {
                if (schedule->external_of[op] != kNotExternal)
                    signals[schedule->external_of[op]]->lane = i;
            }
        }
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
    run->posts.resize(schedule->n_posts);
    const bool waits = runs_ == Runs::kSerial && run->after && !run->after->done();
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!plan_)
            throw std::runtime_error("the program is closed");
        run->plan = plan_;
        run->fenced = std::exchange(fence_next_, false) || runs_ != Runs::kPipelined;
        run->all_delivered_at_submit = undelivered_.empty();
        run->failures_at_submit = failures_;
        if (waits) {
            waiting_.push_back(run);
            unqueued.fetch_add(1, std::memory_order_relaxed);
        } else {
            enqueue_locked(run);
        }
    }
    if (!waits) {
        queued(run);
        return;
    }
    machine->activate(shared_from_this());  // so that the machine knows of the run
    run->after->listen([self = shared_from_this(), run](Event&) {
        {
            const std::lock_guard<std::mutex> lock(self->mutex);
            if (std::erase(self->waiting_, run) == 0)
                return;  // cancelled meanwhile
            self->enqueue_locked(run);
            self->unqueued.fetch_sub(1, std::memory_order_release);
        }
        self->queued(run);
    });
}

void Program::enqueue_locked(const std::shared_ptr<Run>& run) {
    run->index = last_->index + 1;
    if (runs_ == Runs::kIndependent)
        undelivered_.clear();
    if (slow.load(std::memory_order_relaxed) && undelivered_.empty()) {
        if (completed.value.load(std::memory_order_acquire) == last_->index) {
            slow.store(false, std::memory_order_relaxed);  // nothing is in flight: nobody reads it now
            for (auto& lane : lanes)
                lane->clean_from = 0;
        } else {
            run->fenced = true;
        }
    }
    pending_.push_back(run);
    run->started = true;
    if (run->after) {
        run->started = run->after->done();
        if (run->started && !run->after->poisoned())
            run->after.reset();
        else
            start_locked();
    }
    last_->next = run;
    last_ = run;
    frontier.value.store(run->index, std::memory_order_release);
}

void Program::queued(const std::shared_ptr<Run>& run) {
    // Against servers that go to sleep: they set `asleep`, fence, and look at the frontier once more.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!active.load(std::memory_order_relaxed))
        machine->activate(shared_from_this());
    machine->ring_homes(*this, run->priority);
    if (run->after) {
        run->after->listen([self = shared_from_this(), run](Event&) {
            const std::lock_guard<std::mutex> lock(self->mutex);
            run->started = true;
            self->start_locked();
        });
    }
}

void Program::start_locked() {
    // Events happen in any order; the timeline counts runs in theirs, since lanes are in it.
    std::uint64_t upto = started.value.load(std::memory_order_relaxed);
    for (const std::shared_ptr<Run>& run : pending_) {
        if (!run->started)
            break;
        upto = std::max(upto, run->index);
    }
    if (upto != started.value.load(std::memory_order_relaxed))
        publish(started, upto);
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
    std::vector<std::shared_ptr<Run>> runs(pending_.begin(), pending_.end());
    runs.insert(runs.end(), waiting_.begin(), waiting_.end());
    return runs;
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
    Told told;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto at =
            std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& entry) { return entry.get() == &run; });
        if (at == waiting_.end()) {
            if (!stop_locked(run, 0))
                return false;
            run.cancelled = true;
            if (!run.started) {
                run.started = true;
                start_locked();
            }
            return true;
        }
        run.cancelled = true;
        run.set_limit(0);
        told = end_locked(std::move(*at));
        waiting_.erase(at);
    }
    tell(told);
    unqueued.fetch_sub(1, std::memory_order_release);
    return true;
}

void Program::abort(Run& run) {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!stop_locked(run, 0))
            return;
        run.aborted.store(true, std::memory_order_release);
        go_slow_locked();
    }
    for (const auto& signal : signals) {
        // The lane looks whether its run is aborted, and arms, under one hold of this; so that either it sees the
        // abort, or we see that it is in the run, and what is armed is not a later run's.
        const std::lock_guard<std::mutex> lock(signal->mutex);
        if (lanes[signal->lane]->run_index.load(std::memory_order_acquire) != run.index)
            continue;
        if (!signal->firm && signal->timeline.value.load(std::memory_order_relaxed) < signal->armed)
            publish(signal->timeline, signal->armed);
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

void Program::taint_locked(Run& run) {
    go_slow_locked();
    ++failures_;
    if (std::find(undelivered_.begin(), undelivered_.end(), run.index) == undelivered_.end())
        undelivered_.push_back(run.index);
}

void Program::limit_locked(Run& run, std::uint32_t op, std::uint64_t step, bool stops) {
    if (stops) {
        stop_locked(run, 0);
        return;
    }
    const std::uint64_t all = reach_.spread(*schedule, std::span(&op, 1), step);
    if (all != kNever)
        stop_locked(run, all - run.first.load(std::memory_order_relaxed));
}

void Program::fail(Run& run, std::uint32_t op, std::uint64_t step, std::int32_t code, ExceptionHandle exception) {
    const bool leaving = exception && leaves(*exception);
    Failure failure{op, run.user_step(step), code, std::move(exception)};  // not kept: it ends outside the lock
    std::shared_ptr<Run> failed;                                           // likewise the last one
    {
        const std::lock_guard<std::mutex> lock(mutex);
        taint_locked(run);
        history.mark(op, step, true);
        if (run.failures.empty()) {
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
        if (run.on_error == OnError::kStop || leaving || run.failures.size() <= kMostSpread)
            limit_locked(run, op, step, run.on_error == OnError::kStop || leaving);
    }
}

void Program::poison(Run& run, std::uint32_t op, std::uint64_t step, const std::shared_ptr<Event>& by) {
    std::shared_ptr<Run> failed = run.shared_from_this();  // the last one ends outside the lock
    const std::lock_guard<std::mutex> lock(mutex);
    taint_locked(run);
    history.mark(op, step, true);
    failed.swap(failed_);
    run.poisoned.store(true, std::memory_order_relaxed);
    if (!run.poisoned_by)
        run.poisoned_by = by;
    limit_locked(run, op, step, run.on_error == OnError::kStop);
}

void Program::poison_start(Run& run) {
    std::shared_ptr<Run> failed = run.shared_from_this();  // the last one ends outside the lock
    const std::lock_guard<std::mutex> lock(mutex);
    if (run.start_poisoned.load(std::memory_order_relaxed))
        return;  // another lane was here
    taint_locked(run);
    failed.swap(failed_);
    run.start_poisoned.store(true, std::memory_order_relaxed);
    run.poisoned.store(true, std::memory_order_relaxed);
    run.poisoned_by = run.after;
    // One step at least, all of it skipped: later runs learn from its history what they must skip.
    std::uint64_t steps = 1;
    if (run.on_error != OnError::kStop) {
        std::vector<std::uint32_t> all(schedule->n_ops);
        std::iota(all.begin(), all.end(), 0);
        const std::uint64_t first = run.first.load(std::memory_order_relaxed);
        const std::uint64_t reached = reach_.spread(*schedule, all, first);
        steps = reached == kNever ? kNever : std::max(steps, reached - first);
    }
    stop_locked(run, steps);
}

void Program::reach_post(Run& run, std::uint32_t index, std::uint64_t step, bool skipped) {
    std::shared_ptr<Event> event;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        Post& post = run.posts[index];
        if (skipped)
            post.skipped = step + 1;
        if (step - run.first.load(std::memory_order_relaxed) + 1 != run.limit())
            return;
        post.told = true;
        post.poisoned = skipped;
        event = std::move(post.event);
    }
    if (event)
        skipped ? event->poison() : event->trigger();
}

std::shared_ptr<Event> Program::end_of(Run& run, PythonObjectHandle origin) {
    std::unique_lock<std::mutex> lock(mutex);
    if (run.end)
        return run.end;
    auto event = std::make_shared<Event>(std::move(origin));
    event->comes_after(run.grants);
    if (!run.done.load(std::memory_order_acquire))
        return run.end = event;
    const bool bad = run.bad();
    lock.unlock();
    bad ? event->poison() : event->trigger();
    return event;
}

std::shared_ptr<Event> Program::post_of(Run& run, std::uint32_t index, PythonObjectHandle origin) {
    std::unique_lock<std::mutex> lock(mutex);
    Post& post = run.posts[index];
    if (post.event)
        return post.event;
    auto event = std::make_shared<Event>(std::move(origin));
    event->comes_after(run.grants);
    if (!post.told)
        return post.event = event;
    const bool bad = post.poisoned;
    lock.unlock();
    bad ? event->poison() : event->trigger();
    return event;
}

void Program::deliver(Run& run) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!run.done.load(std::memory_order_acquire))
        return;
    const bool poison_only =
        run.failures.empty() && !run.cancelled && !run.poisoned_by && run.poisoned.load(std::memory_order_relaxed);
    std::erase_if(undelivered_,
                  [&](std::uint64_t index) { return index == run.index || (poison_only && index < run.index); });
}

bool Program::starts_clean(Run& run) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (run.start == Run::Start::kUndecided) {
        // No failure has come since the submission, and all before it had been told.
        const bool clean =
            runs_ == Runs::kIndependent || (run.all_delivered_at_submit && failures_ == run.failures_at_submit);
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
    Told told;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (pending_.empty() || !pending_.front()->ended)
            return false;
        told = end_locked(std::move(pending_.front()));
        pending_.pop_front();
    }
    tell(told);
    return true;
}

Program::Told Program::end_locked(std::shared_ptr<Run> run) {
    Told told{run, std::move(run->plan), {}};
    const std::uint64_t steps = run->limit(), end = run->first.load(std::memory_order_relaxed) + steps;
    for (Post& post : run->posts) {
        if (post.told)
            continue;
        post.told = true;
        post.poisoned = run->cancelled || (steps != 0 && post.skipped == end);
        if (post.event)
            told.events.emplace_back(std::move(post.event), post.poisoned);
    }
    if (run->end)
        told.events.emplace_back(std::move(run->end), run->bad());
    run->done.store(true, std::memory_order_release);
    if (run->wants_callback)
        machine->call_back(run);  // before a later run can end and the machine be closed
    if (run->index != 0)
        publish(completed, run->index);
    return told;
}

void Program::tell(const Told& told) {
    Run& run = *told.run;
    run.finished.ring();
    light_fence();  // against a caller that falls asleep: it looks at `done` after its heavy fence
    Seat* const caller = run.caller.load(std::memory_order_acquire);
    if (caller != nullptr && caller->asleep.load(std::memory_order_relaxed))
        caller->doorbell.ring();
    for (const auto& [event, poisoned] : told.events)
        poisoned ? event->poison() : event->trigger();
}

}  // namespace ostinato
