#include "lanes/lane_loop.h"

#include "program/program.h"
#include "python/ops.h"

namespace ostinato {

namespace {

// The value of timeline `wait.lane` that `wait` asks for in `step`.
std::uint64_t target_of(const Wait& wait, std::uint64_t step) {
    return step * wait.stride + static_cast<std::uint64_t>(wait.offset);
}

// Whether lane `other` has come to `target`; if not, even after polling, `lane` is blocked. Polls briefly in place, so
// that little lies between the arrival of a result and what is done with it; then the worker takes over.
[[gnu::always_inline]] inline bool satisfied(Worker& worker, Lane& lane, std::uint32_t other, std::uint64_t target) {
    Lane::Neighbour& neighbour = lane.neighbours[other];
    if (neighbour.seen >= target)
        return true;
    const Timeline& timeline = *neighbour.timeline;
    std::uint64_t value = timeline.value.load(std::memory_order_acquire);
    if (value < target) {
        if (!worker.python.holds()) {
            for (int i = worker.patience; i > 0 && value < target; --i) {
                relax();  // every look takes the line from its writer: looking less often lets it get more done
                value = timeline.value.load(std::memory_order_acquire);
            }
        }
        if (value < target) {
            value = worker.await(lane, lane.program->lanes[other]->timeline, target);
            if (value < target)
                return false;
        }
    }
    neighbour.seen = value;
    return true;
}

// Whether it is known that no step of the run before `step` was its last. If not, the lane is blocked. The verdict is
// given in the steps that the user counts as every - 1, 2 * every - 1, ...
bool verdict_known(Worker& worker, Lane& lane, std::uint64_t step) {
    const Program& program = *lane.program;
    const Schedule& schedule = *program.schedule;
    const Run& run = *lane.run;
    const std::uint64_t judged = run.user_step(step) / schedule.until_every * schedule.until_every;  // those below
    if (judged <= run.user_step(run.first.load(std::memory_order_relaxed)))
        return true;  // none has been due in this run
    const auto ops = static_cast<std::uint64_t>(program.lanes[schedule.until_lane]->order->ops.size());
    const std::uint64_t last = judged - 1 + run.offset.load(std::memory_order_relaxed);
    return satisfied(worker, lane, schedule.until_lane, last * ops + schedule.until_position + 1);
}

// The bound that was read forbids the step: whether it still does once no stopper is deciding.
bool really_over(const Lane& lane, const Run& run, std::uint64_t steps) {
    if (run.bound.load(std::memory_order_acquire) == kDeciding)
        const std::lock_guard<std::mutex> decided(lane.program->mutex);
    const std::uint64_t bound = run.bound.load(std::memory_order_acquire);
    return bound != kDeciding && steps + 1 >= bound;
}

bool window_open(Worker& worker, Lane& lane, std::uint64_t step) {
    for (const Wait& wait : lane.order->window) {
        if (!satisfied(worker, lane, wait.lane, target_of(wait, step)))
            return false;
    }
    return true;
}

// Turns the rings and hands out the step number.
void prepare_step(Lane& lane, Plan& plan, std::uint64_t user_step) {
    const Schedule& schedule = *lane.program->schedule;
    for (std::size_t i = 1; i < schedule.periods.size(); ++i)
        lane.phase[i] = static_cast<std::uint32_t>(user_step % schedule.periods[i]);
    for (std::uint32_t i = plan.step_patch_begin[lane.index]; i < plan.step_patch_begin[lane.index + 1]; ++i)
        plan.scalars[plan.step_patches[i].scalar].i64 = static_cast<std::int64_t>(user_step);
}

// Whether an operation of this kind is one of those that do something in some steps only, and not in this one.
[[gnu::always_inline]] inline bool has_nothing_to_do(Kind kind, const Run& run, std::uint64_t step,
                                                     std::uint64_t first) {
    if (kind == Kind::kPrecondition)
        return step != first;
    return kind == Kind::kPostcondition && step - first + 2 != run.bound.load(std::memory_order_relaxed);
}

// The lane loop proper. `Rings`: arrays are chosen by step. `Traced`: every operation is recorded. Whoever leaves it
// for another function that looks at the lane writes the cursor back first. Four instances, each compiled by itself:
// inlined together they would share registers.
template <bool Rings, bool Traced>
[[gnu::noinline]] Outcome run_steps(Worker& worker, Lane& lane) {
    Program& program = *lane.program;
    const LaneOrder& order = *lane.order;
    Run& run = *lane.run;
    NativeOp* const natives = run.plan->native.data() + order.first;
    const Batch* const batches = order.batches.data();
    const Wait* const waits = order.waits.data();
    const std::uint64_t per_step = order.ops.size();
    const auto n_batches = static_cast<std::uint32_t>(order.batches.size());
    const std::atomic<std::uint32_t>& attention = worker.slot.attention;
    const Schedule& schedule = *program.schedule;
    const std::uint64_t first = run.first.load(std::memory_order_relaxed);
    const std::uint64_t offset = run.offset.load(std::memory_order_relaxed);
    const bool judged = schedule.until_op >= 0 && schedule.until_lane != lane.index;
    const bool windowed = !order.window.empty();
    const bool prepares = schedule.periods.size() > 1 ||
                          run.plan->step_patch_begin[lane.index] != run.plan->step_patch_begin[lane.index + 1];
    const bool unfenced = asymmetric_fences;
    // What the next step begins by waiting for is on its way while the step is begun.
    const void* const first_wait =
        batches[0].wait_begin != batches[0].wait_end ? lane.neighbours[waits[0].lane].timeline : nullptr;
    const bool mixed = run.plan->python != nullptr;  // some operations need the GIL
    if (!mixed)
        worker.python.release();
    bool wanted = false;        // the worker was asked to come back to its loop
    bool inside = lane.inside;  // the batch that is next was left between two operations, its waits satisfied
    lane.inside = false;
    for (;; ++lane.step) {
        const std::uint64_t step = lane.step;
        const std::uint64_t user_step = step - offset;
        if (!lane.in_step) {
            // The verdict comes before the limit is read: whoever sees it also sees the limit that was set with it.
            if (judged && !verdict_known(worker, lane, step))
                return Outcome::kBlocked;
            // Against Program::stop: either it sees that this step has begun, or this sees the low limit.
            lane.begun.store(step, std::memory_order_relaxed);
            light_fence();
            while (step - first + 1 >= run.bound.load(std::memory_order_acquire)) [[unlikely]] {
                if (really_over(lane, run, step - first))
                    return Outcome::kRunOver;
            }
            if (windowed && (step & (schedule.window_period - 1)) == 0 && !window_open(worker, lane, step))
                return Outcome::kBlocked;
            if (prepares)
                prepare_step(lane, *run.plan, user_step);
            lane.in_step = true;
            lane.batch = 0;
        }
        for (std::uint32_t s = lane.batch; s < n_batches; ++s) {
            const Batch& batch = batches[s];
            const bool native = batch.kind == Kind::kNative;
            NativeOp* op = natives + batch.begin;
            NativeOp* const last = natives + batch.end;
            std::uint32_t at = batch.begin;
            if (native && mixed)
                worker.python.release();
            if (inside) [[unlikely]] {
                at = lane.position;
                op = natives + at;
                inside = false;
            } else {
                for (std::uint32_t i = batch.wait_begin; i < batch.wait_end; ++i) {
                    if (!satisfied(worker, lane, waits[i].lane, target_of(waits[i], step))) {
                        lane.batch = s;
                        return Outcome::kBlocked;
                    }
                }
            }
            // Read after the waits: a failure upstream raised it before it published.
            if (program.slow.load(std::memory_order_relaxed)) [[unlikely]] {
                lane.batch = s;
                lane.position = at;
                if (const Progress progress = run_batch_slowly(worker, lane, batch); progress != Progress::kDone)
                    return progress == Progress::kBlocked ? Outcome::kBlocked : Outcome::kYielded;
                wanted = worker.attention();
            } else if (native) {
                for (; op != last; ++op) {
                    op->call.step = user_step;
                    if constexpr (Rings)
                        op->call.arrays =
                            op->tables + lane.phase[op->period_class] * static_cast<std::uint32_t>(op->call.n_arrays);
                    [[maybe_unused]] std::int64_t start = 0;
                    if constexpr (Traced)
                        start = monotonic_ns();
                    const std::int32_t code = op->function(&op->call);
                    if constexpr (Traced)
                        record(worker, lane, static_cast<std::uint32_t>(op - natives), start,
                               code == 0 ? Status::kOk : Status::kFailed);
                    if ((static_cast<std::uint32_t>(code) | attention.load(std::memory_order_relaxed)) != 0)
                        [[unlikely]] {
                        wanted = true;
                        lane.batch = s;
                        lane.position = static_cast<std::uint32_t>(op - natives) + 1;
                        if (code != 0) {
                            program.fail(run, order.ops[lane.position - 1], step, code, nullptr);
                            if (run_batch_slowly(worker, lane, batch) != Progress::kDone)
                                return Outcome::kYielded;
                            break;
                        }
                        if (lane.position < batch.end) {
                            lane.inside = true;
                            return Outcome::kYielded;
                        }
                    }
                }
            } else if (Traced || !has_nothing_to_do(batch.kind, run, step, first)) {
                lane.batch = s;
                lane.position = at;
                if (const Progress progress = run_other_batch(worker, lane, batch); progress != Progress::kDone)
                    return progress == Progress::kBlocked ? Outcome::kBlocked : Outcome::kYielded;
                wanted = worker.attention();
            }
            if (batch.publishes)
                publish(lane.timeline, step * per_step + batch.end, unfenced);
            if (wanted) [[unlikely]] {
                wanted = false;
                if (worker.attention()) {
                    lane.batch = s + 1;
                    if (lane.batch == n_batches) {
                        lane.in_step = false;
                        ++lane.step;
                    }
                    return Outcome::kYielded;
                }
            }
        }
        if (first_wait != nullptr)
            __builtin_prefetch(first_wait);
        lane.in_step = false;
        if ((worker.budget -= static_cast<std::int64_t>(per_step)) < 0 && worker.turn_over()) [[unlikely]] {
            ++lane.step;
            return Outcome::kYielded;
        }
    }
}

}  // namespace

Outcome run_lane(Worker& worker, Lane& lane) {
    for (;;) {
        if (!lane.entered) {
            if (!enter_next_run(worker, lane))
                return Outcome::kBlocked;
        }
        const Run& run = *lane.run;
        worker.take_mode(run.floating_point);
        const bool rings = run.plan->rings;
        const bool traced = run.trace != nullptr;
        const Outcome outcome =
            rings ? (traced ? run_steps<true, true>(worker, lane) : run_steps<true, false>(worker, lane))
                  : (traced ? run_steps<false, true>(worker, lane) : run_steps<false, false>(worker, lane));
        if (outcome != Outcome::kRunOver)
            return outcome;
        if (!leave_run(worker, lane))
            return Outcome::kBlocked;
        if (worker.visited() != nullptr && worker.visited()->done.load(std::memory_order_relaxed)) [[unlikely]] {
            lane.block(lane.program->frontier, lane.run->index + 1);  // what comes next is others'
            return Outcome::kBlocked;
        }
    }
}

}  // namespace ostinato
