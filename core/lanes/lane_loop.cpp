#include "lanes/lane_loop.h"

#include "park/relax.h"
#include "program/program.h"
#include "python/ops.h"

namespace ostinato {

namespace {

// The value of timeline `wait.lane` that `wait` asks for in `step`.
std::uint64_t target_of(const Wait& wait, std::uint64_t step) {
    return step * wait.stride + static_cast<std::uint64_t>(wait.offset);
}

// Whether lane `other` has come to `target`; if not, even after polling, `lane` is blocked. Polls briefly in place, so
// that little lies between the arrival of a result and what is done with it; then the server takes over.
[[gnu::always_inline]] inline bool satisfied(Server& server, Lane& lane, std::uint32_t other, std::uint64_t target) {
    Lane::Neighbour& neighbour = lane.neighbours[other];
    if (neighbour.seen >= target)
        return true;
    const Timeline& timeline = *neighbour.timeline;
    std::uint64_t value = timeline.value.load(std::memory_order_acquire);
    if (value < target) {
        if (!server.python.holds()) {
            for (int i = server.patience; i > 0 && value < target; --i) {
                relax();  // every look takes the line from its writer: looking less often lets it get more done
                value = timeline.value.load(std::memory_order_acquire);
            }
        }
        if (value < target) {
            value = server.await(lane, lane.program->lanes[other]->timeline, target);
            if (value < target)
                return false;
        }
    }
    neighbour.seen = value;
    return true;
}

// Whether it is known that no step of the run before `step` was its last. If not, the lane is blocked. The verdict is
// given in the steps that the user counts as every - 1, 2 * every - 1, ...
bool verdict_known(Server& server, Lane& lane, std::uint64_t step) {
    const Program& program = *lane.program;
    const Schedule& schedule = *program.schedule;
    const Run& run = *lane.run;
    const std::uint64_t judged = run.user_step(step) / schedule.until_every * schedule.until_every;  // those below
    if (judged <= run.user_step(run.first.load(std::memory_order_relaxed)))
        return true;  // none has been due in this run
    const auto ops = static_cast<std::uint64_t>(program.lanes[schedule.until_lane]->order->ops.size());
    const std::uint64_t last = judged - 1 + run.offset.load(std::memory_order_relaxed);
    return satisfied(server, lane, schedule.until_lane, last * ops + schedule.until_position + 1);
}

// The bound that was read forbids the step: whether it still does once no stopper is deciding.
bool really_over(const Lane& lane, const Run& run, std::uint64_t steps) {
    if (run.bound.load(std::memory_order_acquire) == kDeciding)
        const std::lock_guard<std::mutex> decided(lane.program->mutex);
    const std::uint64_t bound = run.bound.load(std::memory_order_acquire);
    return bound != kDeciding && steps + 1 >= bound;
}

bool window_open(Server& server, Lane& lane, std::uint64_t step) {
    for (const Wait& wait : lane.order->window) {
        if (!satisfied(server, lane, wait.lane, target_of(wait, step)))
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
[[gnu::noinline]] Outcome run_steps(Server& server, Lane& lane) {
    Program& program = *lane.program;
    const LaneOrder& order = *lane.order;
    Run& run = *lane.run;
    NativeOp* const natives = run.plan->native.data() + order.slot;
    const Stretch* const stretches = order.stretches.data();
    const Wait* const waits = order.waits.data();
    const std::uint64_t per_step = order.ops.size();
    const auto n_stretches = static_cast<std::uint32_t>(order.stretches.size());
    const std::atomic<std::uint32_t>& attention = server.seat.attention;
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
        stretches[0].wait_begin != stretches[0].wait_end ? lane.neighbours[waits[0].lane].timeline : nullptr;
    const bool mixed = run.plan->python != nullptr;  // some operations need the GIL
    if (!mixed)
        server.python.release();
    bool wanted = false;        // the server was asked to come back to its loop
    bool inside = lane.inside;  // the stretch that is next was left between two operations, its waits satisfied
    lane.inside = false;
    for (;; ++lane.step) {
        const std::uint64_t step = lane.step;
        const std::uint64_t user_step = step - offset;
        if (!lane.in_step) {
            // The verdict comes before the limit is read: whoever sees it also sees the limit that was set with it.
            if (judged && !verdict_known(server, lane, step))
                return Outcome::kBlocked;
            // Against Program::stop: either it sees that this step has begun, or this sees the low limit.
            lane.begun.store(step, std::memory_order_relaxed);
            light_fence();
            while (step - first + 1 >= run.bound.load(std::memory_order_acquire)) [[unlikely]] {
                if (really_over(lane, run, step - first))
                    return Outcome::kRunOver;
            }
            if (windowed && (step & (schedule.window_period - 1)) == 0 && !window_open(server, lane, step))
                return Outcome::kBlocked;
            if (prepares)
                prepare_step(lane, *run.plan, user_step);
            lane.in_step = true;
            lane.stretch = 0;
        }
        for (std::uint32_t s = lane.stretch; s < n_stretches; ++s) {
            const Stretch& stretch = stretches[s];
            const bool native = stretch.kind == Kind::kNative;
            NativeOp* op = natives + stretch.begin;
            NativeOp* const last = natives + stretch.end;
            std::uint32_t at = stretch.begin;
            if (native && mixed)
                server.python.release();
            if (inside) [[unlikely]] {
                at = lane.position;
                op = natives + at;
                inside = false;
            } else {
                for (std::uint32_t i = stretch.wait_begin; i < stretch.wait_end; ++i) {
                    if (!satisfied(server, lane, waits[i].lane, target_of(waits[i], step))) {
                        lane.stretch = s;
                        return Outcome::kBlocked;
                    }
                }
            }
            // Read after the waits: a failure upstream raised it before it published.
            if (program.slow.load(std::memory_order_relaxed)) [[unlikely]] {
                lane.stretch = s;
                lane.position = at;
                if (const Progress progress = run_stretch_slowly(server, lane, stretch); progress != Progress::kDone)
                    return progress == Progress::kBlocked ? Outcome::kBlocked : Outcome::kYielded;
                wanted = server.attention();
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
                        record(server, lane, static_cast<std::uint32_t>(op - natives), start,
                               code == 0 ? Status::kOk : Status::kFailed);
                    if ((static_cast<std::uint32_t>(code) | attention.load(std::memory_order_relaxed)) != 0)
                        [[unlikely]] {
                        wanted = true;
                        lane.stretch = s;
                        lane.position = static_cast<std::uint32_t>(op - natives) + 1;
                        if (code != 0) {
                            program.fail(run, order.ops[lane.position - 1], step, code, nullptr);
                            if (run_stretch_slowly(server, lane, stretch) != Progress::kDone)
                                return Outcome::kYielded;
                            break;
                        }
                        if (lane.position < stretch.end) {
                            lane.inside = true;
                            return Outcome::kYielded;
                        }
                    }
                }
            } else if (Traced || !has_nothing_to_do(stretch.kind, run, step, first)) {
                lane.stretch = s;
                lane.position = at;
                if (const Progress progress = run_other_stretch(server, lane, stretch); progress != Progress::kDone)
                    return progress == Progress::kBlocked ? Outcome::kBlocked : Outcome::kYielded;
                wanted = server.attention();
            }
            if (stretch.publishes)
                publish(lane.timeline, step * per_step + stretch.end, unfenced);
            if (wanted) [[unlikely]] {
                wanted = false;
                if (server.attention()) {
                    lane.stretch = s + 1;
                    if (lane.stretch == n_stretches) {
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
        if ((server.budget -= static_cast<std::int64_t>(per_step)) < 0 && server.turn_over()) [[unlikely]] {
            ++lane.step;
            return Outcome::kYielded;
        }
    }
}

}  // namespace

Outcome run_lane(Server& server, Lane& lane) {
    for (;;) {
        if (!lane.entered) {
            if (!enter_next_run(server, lane))
                return Outcome::kBlocked;
        }
        const Run& run = *lane.run;
        server.take_mode(run.floating_point);
        const bool rings = run.plan->rings;
        const bool traced = run.trace != nullptr;
        const Outcome outcome =
            rings ? (traced ? run_steps<true, true>(server, lane) : run_steps<true, false>(server, lane))
                  : (traced ? run_steps<false, true>(server, lane) : run_steps<false, false>(server, lane));
        if (outcome != Outcome::kRunOver)
            return outcome;
        if (!leave_run(server, lane))
            return Outcome::kBlocked;
    }
}

}  // namespace ostinato
