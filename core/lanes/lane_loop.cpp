#include "lanes/lane_loop.h"

#include "program/program.h"
#include "python/ops.h"

namespace ostinato {

namespace {

// The value of timeline `wait.lane` that `wait` asks for in `step`.
std::uint64_t target_of(const Wait& wait, std::uint64_t step) {
    return step * wait.stride + static_cast<std::uint64_t>(wait.offset);
}

// Looks at once, where two lanes take turns: a pause is longer than what a result may still need to arrive.
constexpr int kLooksBeforePauses = 24;

// Whether the neighbour has come to `target`. Polls briefly in place, so that little lies between the arrival of a
// result and what is done with it. A thread that holds the GIL has no patience.
[[gnu::always_inline]] inline bool arrives(Lane::Neighbour& neighbour, std::uint64_t target, int patience) {
    if (neighbour.seen >= target)
        return true;
    const std::atomic<std::uint64_t>& timeline = neighbour.timeline->value;
    std::uint64_t value = timeline.load(std::memory_order_acquire);
    for (int i = kLooksBeforePauses; i > 0 && value < target; --i)
        value = timeline.load(std::memory_order_acquire);
    for (int i = patience; i > 0 && value < target; --i) {
        relax();  // every look takes the line from its writer: looking less often lets it get more done
        value = timeline.load(std::memory_order_acquire);
    }
    if (value < target)
        return false;
    neighbour.seen = value;
    return true;
}

// Whether lane `other` has come to `target`; if not, even after polling, `lane` is blocked.
bool satisfied(Worker& worker, Lane& lane, std::uint32_t other, std::uint64_t target) {
    Lane::Neighbour& neighbour = lane.neighbours[other];
    if (arrives(neighbour, target, worker.python.holds() ? 0 : worker.patience))
        return true;
    const std::uint64_t value = worker.await(lane, lane.program->lanes[other]->timeline, target);
    if (value < target)
        return false;
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

// Where a lane stands whose steps were run by run_native_steps.
enum class Left : std::uint8_t {
    kAnywhere,  // the general loop goes on
    kYielded,   // the worker is wanted elsewhere
};

// What run_native_steps needs for a step or a batch. In memory that others may write, as far as the compiler knows: so
// it leaves the registers that outlast a call to what each operation needs.
struct NativeSteps {
    Worker& worker;
    Lane& lane;
    Program& program;
    Run& run;
    Plan& plan;
    const Batch *batches, *last_batch;
    const Wait* waits;
    Lane::Neighbour* neighbours;
    NativeOp *natives, *copies, *last_copy;  // the step's phase, and all phases, with strides of `copy_size`
    std::size_t copy_size;
    std::uint64_t offset, begun_before, per_step, window_mask, special_mask;
    int patience;
    bool hands_out_step;
};

// Stands before `batch` of a step that has begun.
void stand_at(const NativeSteps& steps, std::uint64_t step, const Batch* batch) {
    Lane& lane = steps.lane;
    lane.step = step;
    lane.batch = static_cast<std::uint32_t>(batch - steps.batches);
    lane.in_step = true;
    if (steps.program.schedule->periods.size() > 1)
        prepare_step(lane, steps.plan, step - steps.offset);
}

// Within `batch`, before `op`: the waits are satisfied.
void stand_inside(const NativeSteps& steps, std::uint64_t step, const Batch* batch, const NativeOp* op) {
    stand_at(steps, step, batch);
    steps.lane.position = static_cast<std::uint32_t>(op - steps.natives);
    steps.lane.inside = true;
}

// The operation before `op` has failed, or attention is asked for.
[[gnu::noinline]] Left leave_after(NativeSteps& steps, std::uint64_t step, const Batch* batch, const NativeOp* op,
                                   std::int32_t code) {
    stand_inside(steps, step, batch, op);
    const std::uint32_t position = steps.lane.position;
    if (code != 0)
        steps.program.fail(steps.run, steps.lane.order->ops[position - 1], step, code, nullptr);
    else if (position != batch->end)
        return Left::kYielded;
    return Left::kAnywhere;
}

// What only some steps begin with. False: the window is closed.
[[gnu::noinline]] bool begin_special_step(const NativeSteps& steps, std::uint64_t step) {
    Lane& lane = steps.lane;
    if ((step & steps.window_mask) == 0) {
        publish(lane.timeline, step * steps.per_step, true);  // others look at it through their windows
        for (const Wait& wait : lane.order->window) {
            if (!arrives(steps.neighbours[wait.lane], target_of(wait, step), steps.patience))
                return false;
        }
    }
    if (steps.hands_out_step)
        prepare_step(lane, steps.plan, step - steps.offset);
    return true;
}

// Runs steps of a lane of native operations, from the beginning of one, as long as nothing else happens: no stop,
// failure or attention, and no wait that is not soon satisfied. Then it writes the cursor and leaves the rest to the
// general loop, which does the same with regard to all of that. `Alone`: the program has no other lane, so there is one
// batch, without waits. Where light fences are full ones, the general loop does everything.
template <bool Alone>
[[gnu::noinline]] Left run_native_steps(Worker& worker, Lane& lane) {
    const LaneOrder& order = *lane.order;
    Run& run = *lane.run;
    Plan& plan = *run.plan;
    const std::size_t copy_size = plan.native.size() / plan.phases;
    const std::uint64_t offset = run.offset.load(std::memory_order_relaxed);
    const std::uint64_t window_mask = Alone ? UINT64_MAX : lane.program->schedule->window_period - 1;
    const bool hands_out_step = plan.step_patch_begin[lane.index] != plan.step_patch_begin[lane.index + 1];
    NativeOp* const copies = plan.native.data() + order.first;
    NativeSteps steps{
        .worker = worker,
        .lane = lane,
        .program = *lane.program,
        .run = run,
        .plan = plan,
        .batches = order.batches.data(),
        .last_batch = order.batches.data() + order.batches.size(),
        .waits = order.waits.data(),
        .neighbours = lane.neighbours.data(),
        .natives = copies + (plan.phases == 1 ? 0 : (lane.step - offset) % plan.phases * copy_size),
        .copies = copies,
        .last_copy = copies + plan.native.size(),
        .copy_size = copy_size,
        .offset = offset,
        .begun_before = run.first.load(std::memory_order_relaxed) - 1,
        .per_step = order.ops.size(),
        .window_mask = window_mask,
        .special_mask = hands_out_step ? 0 : window_mask,
        .patience = worker.patience,
        .hands_out_step = hands_out_step,
    };
    const std::atomic<std::uint32_t>& attention = worker.slot.attention;
    for (std::uint64_t step = lane.step;;) {
        // Against Program::stop: either it sees that this step has begun, or this sees the low limit.
        steps.lane.begun.store(step, std::memory_order_relaxed);
        light_fence(true);
        if (step - steps.begun_before >= steps.run.bound.load(std::memory_order_acquire)) [[unlikely]] {
            steps.lane.step = step;
            return Left::kAnywhere;
        }
        if ((step & steps.special_mask) == 0 && !begin_special_step(steps, step)) [[unlikely]] {
            steps.lane.step = step;
            return Left::kAnywhere;
        }
        const Batch* batch = steps.batches;
        do {
            if constexpr (!Alone) {
                for (std::uint32_t i = batch->wait_begin; i != batch->wait_end; ++i) {
                    const Wait& wait = steps.waits[i];
                    if (!arrives(steps.neighbours[wait.lane], target_of(wait, step), steps.patience)) [[unlikely]] {
                        stand_at(steps, step, batch);
                        return Left::kAnywhere;
                    }
                }
            }
            NativeOp* op = steps.natives + batch->begin;
            // Read after the waits: a failure upstream raised it before it published.
            if (steps.program.slow.load(std::memory_order_relaxed)) [[unlikely]] {
                stand_inside(steps, step, batch, op);
                return Left::kAnywhere;
            }
            NativeOp* const last = steps.natives + batch->end;
            const std::uint64_t user_step = step - steps.offset;
            do {
                op->call.step = user_step;
                const std::int32_t code = op->function(&op->call);
                ++op;
                if (code != 0) [[unlikely]]
                    return leave_after(steps, step, batch, op, code);
                if (attention.load(std::memory_order_relaxed) != 0) [[unlikely]]
                    return leave_after(steps, step, batch, op, 0);
            } while (op != last);
            if constexpr (!Alone) {
                if (batch->publishes)
                    publish(steps.lane.timeline, step * steps.per_step + batch->end, true);
            }
            ++batch;
        } while (!Alone && batch != steps.last_batch);
        ++step;
        steps.natives += steps.copy_size;
        if (steps.natives == steps.last_copy)
            steps.natives = steps.copies;
        steps.worker.budget -= static_cast<std::int64_t>(steps.per_step);
        if (steps.worker.budget < 0 && steps.worker.turn_over()) [[unlikely]] {
            if ((step & steps.window_mask) == 0)
                publish(steps.lane.timeline, step * steps.per_step, true);
            steps.lane.step = step;
            return Left::kYielded;
        }
    }
}

// The lane loop proper. `Rings`: arrays are chosen by step. `Traced`: every operation is recorded. Whoever leaves it
// for another function that looks at the lane writes the cursor back first. Four instances, each compiled by itself:
// inlined together they would share registers.
template <bool Rings, bool Traced>
[[gnu::noinline]] Outcome run_steps(Worker& worker, Lane& lane) {
    Program& program = *lane.program;
    const LaneOrder& order = *lane.order;
    Run& run = *lane.run;
    Plan& plan = *run.plan;
    const std::size_t copy_size = plan.native.size() / plan.phases;
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
    const bool prepares =
        schedule.periods.size() > 1 || plan.step_patch_begin[lane.index] != plan.step_patch_begin[lane.index + 1];
    const bool unfenced = asymmetric_fences;
    const bool mixed = plan.python != nullptr;  // some operations need the GIL
    const bool simple = !Rings && !Traced && !mixed && !judged && order.native && unfenced;
    if (!mixed)
        worker.python.release();
    bool wanted = false;        // the worker was asked to come back to its loop
    bool leaves = false;        // it does, when the step has ended
    bool inside = lane.inside;  // the batch that is next was left between two operations, its waits satisfied
    lane.inside = false;
    for (;; ++lane.step) {
        if (simple && !lane.in_step) {
            if ((windowed ? run_native_steps<false>(worker, lane) : run_native_steps<true>(worker, lane)) ==
                Left::kYielded)
                return Outcome::kYielded;
            inside = lane.inside;
            lane.inside = false;
        }
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
                prepare_step(lane, plan, user_step);
            lane.in_step = true;
            lane.batch = 0;
        }
        NativeOp* const natives = plan.native.data() + user_step % plan.phases * copy_size + order.first;
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
                wanted = true;
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
                        plan.turn(*op, lane.phase[op->period_class]);
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
                    leaves = s + 1 == n_batches;
                    if (!leaves) {
                        lane.batch = s + 1;
                        return Outcome::kYielded;
                    }
                }
            }
        }
        // Windows look at it.
        if (windowed && ((step + 1) & (schedule.window_period - 1)) == 0)
            publish(lane.timeline, (step + 1) * per_step, unfenced);
        lane.in_step = false;
        worker.budget -= static_cast<std::int64_t>(per_step);
        if (leaves || (worker.budget < 0 && worker.turn_over())) [[unlikely]] {
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
        const bool rings = run.plan->turns;
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
