// Failures and poison: core/DESIGN.md, "Poison".
#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

#include "devices/device_ops.h"
#include "program/program.h"

namespace ostinato {

namespace {

// So many runs that failed are remembered, as what later ones were skipped for.
constexpr std::size_t kMostTainted = 64;

// How many steps of `run` come before the step `all`.
std::uint64_t steps_before(const Run& run, std::uint64_t all) {
    return all - std::min(all, run.first.load(std::memory_order_relaxed));
}

}  // namespace

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

std::array<std::shared_ptr<Run>, 2> Program::taint_locked(Run& run) {
    go_slow_locked();
    ++failures_;
    std::array<std::shared_ptr<Run>, 2> dropped;
    if (std::find(undelivered_.rbegin(), undelivered_.rend(), run.index) != undelivered_.rend())
        return dropped;
    undelivered_.push_back(run.index);
    tainted_.push_back(run.shared_from_this());
    dropped[0].swap(run.skipped_for);  // it has something of its own to tell; and so there are no chains of runs
    if (tainted_.size() > kMostTainted) {
        dropped[1] = std::move(tainted_.front());
        tainted_.pop_front();
    }
    return dropped;
}

void Program::note_skipped(Run& run) {
    const std::lock_guard<std::mutex> lock(mutex);
    run.poisoned.store(true, std::memory_order_relaxed);
    if (!run.failures.empty() || (run.outside && run.outside->poisoned_by))
        return;  // it has something of its own to tell, and was looked at then
    for (const std::shared_ptr<Run>& earlier : tainted_) {
        if (earlier->index < run.index)
            run.skipped_for = earlier;
    }
    end_if_lost_locked(run);
}

void Program::end_if_lost_locked(Run& run) {
    if (shared_)
        return;  // other ranks may still have something to do
    const std::uint64_t all = reach_.everything();
    if (all == kNever)
        return;
    const std::uint64_t before = run.limit();
    stop_locked(run, steps_before(run, all));
    run.exhausted = run.exhausted || run.limit() < before;
}

void Program::limit_locked(Run& run, std::span<const std::uint32_t> ops, std::uint64_t step, bool stops) {
    if (run.failures.size() <= kMostSpread)  // for later runs, too
        reach_.spread(*schedule, ops, step);
    if (stops)
        stop_locked(run, 0);
    else
        end_if_lost_locked(run);
    for (const std::shared_ptr<Run>& later : pending_) {  // those that skip something already
        if (later->index > run.index && later->poisoned.load(std::memory_order_relaxed))
            end_if_lost_locked(*later);
    }
}

void Program::fail(Run& run, std::uint32_t op, std::uint64_t step, std::int32_t code, ExceptionHandle exception,
                   std::uint32_t failed) {
    const bool leaving = exception && leaves(*exception);
    const std::array<std::uint32_t, 2> ops{failed == UINT32_MAX ? op : failed, op};
    const auto [recorded, at] = schedule->as_recorded(ops[0], step);
    Failure failure{recorded, run.user_step(at), code, std::move(exception)};  // not kept: it ends outside the lock
    std::array<std::shared_ptr<Run>, 2> dropped;                               // likewise
    {
        const std::lock_guard<std::mutex> lock(mutex);
        dropped = taint_locked(run);
        for (const std::uint32_t marked : ops)
            history.mark(marked, step, true);
        const auto same = [&](const Failure& known) {
            return std::tuple(known.op, known.step) == std::tuple(failure.op, failure.step);
        };
        if (failed != UINT32_MAX && std::any_of(run.failures.begin(), run.failures.end(), same)) {
            // Several fences learn of it.
        } else if (run.failures.size() < kMostFailures) {
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
            limit_locked(run, ops, step, run.on_error == OnError::kStop || leaving);
    }
}

void Program::poison(Run& run, std::uint32_t op, std::uint64_t step, const std::shared_ptr<Event>& by) {
    std::array<std::shared_ptr<Run>, 2> dropped;  // ends outside the lock
    const std::lock_guard<std::mutex> lock(mutex);
    dropped = taint_locked(run);
    history.mark(op, step, true);
    run.poisoned.store(true, std::memory_order_relaxed);
    if (by && !run.outside->poisoned_by)
        run.outside->poisoned_by = by;
    limit_locked(run, std::span(&op, 1), step, run.on_error == OnError::kStop);
}

void Program::poison_start(Run& run) {
    std::array<std::shared_ptr<Run>, 2> dropped;  // ends outside the lock
    const std::lock_guard<std::mutex> lock(mutex);
    if (run.start_poisoned.load(std::memory_order_relaxed))
        return;  // another lane was here
    dropped = taint_locked(run);
    run.start_poisoned.store(true, std::memory_order_relaxed);
    run.poisoned.store(true, std::memory_order_relaxed);
    run.outside->poisoned_by = run.outside->after;
    // One step at least, all of it skipped: later runs learn from its history what they must skip.
    const std::uint64_t first = run.first.load(std::memory_order_relaxed);
    std::vector<std::uint32_t> all(schedule->n_ops);
    std::iota(all.begin(), all.end(), 0);
    reach_.spread(*schedule, all, first);
    std::uint64_t steps = 1;
    if (run.on_error == OnError::kStop) {
        run.cut_at(first);
    } else {
        const std::uint64_t reached = shared_ ? kNever : reach_.everything();
        steps = reached == kNever ? kNever : std::max(steps, steps_before(run, reached));
    }
    stop_locked(run, steps);
    run.exhausted = run.limit() < run.requested;
}

void Program::deliver(Run& run) {
    std::deque<std::shared_ptr<Run>> dropped;  // ends outside the lock
    const std::lock_guard<std::mutex> lock(mutex);
    if (!run.done.load(std::memory_order_acquire))
        return;
    const bool poison_only = run.failures.empty() && !run.cancelled && !(run.outside && run.outside->poisoned_by) &&
                             run.poisoned.load(std::memory_order_relaxed);
    std::erase_if(undelivered_,
                  [&](std::uint64_t index) { return index == run.index || (poison_only && index < run.index); });
    if (undelivered_.empty())
        dropped.swap(tainted_);
}

void Program::retrieve(Run& run) {
    deliver(run);
    const std::lock_guard<std::mutex> lock(mutex);
    if (!run.done.load(std::memory_order_acquire))
        return;
    Run& source = run.skipped_for ? *run.skipped_for : run;
    run.retrieved = source.retrieved = true;
    if (source.outside && source.outside->poisoned_by)
        source.outside->poisoned_by->retrieve();
}

void Program::forget(Run& run) {
    retrieve(run);
    std::vector<ExceptionHandle> raised;  // both end outside the lock
    std::shared_ptr<Run> earlier;
    const std::lock_guard<std::mutex> lock(mutex);
    // Runs after it may have been skipped for it. They keep it; the program does not.
    if (&run != last_.get() || !run.done.load(std::memory_order_acquire) || !tainted_.empty())
        return;
    for (Failure& failure : run.failures)
        raised.push_back(std::move(failure.exception));
    earlier.swap(run.skipped_for);
}

void Program::trust_devices_locked() {
    for (const std::shared_ptr<InFlightQueue>& in_flight_queue : in_flight_queues)
        in_flight_queue->device_failed->store(false, std::memory_order_relaxed);
}

bool Program::starts_clean(Run& run) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (run.start == Run::Start::kUndecided) {
        // No failure has come since the submission, and all before it had been told.
        const bool clean =
            runs_ == Runs::kIndependent || (run.all_delivered_at_submit && failures_ == run.failures_at_submit);
        run.start = clean ? Run::Start::kClean : Run::Start::kPoisoned;
        if (clean) {
            reach_.clear();
            trust_devices_locked();
        }
    }
    return run.start == Run::Start::kClean;
}

}  // namespace ostinato
