#include "lane_loop.h"

#include "program.h"
#include "python_ops.h"
#include "relax.h"

namespace ostinato {

namespace {

// How many steps ahead of `step` the until operation's verdict must be known: the last step at or before step - 1 in
// which it is read. Verdicts are read in user steps every - 1, 2 * every - 1, ...
std::uint64_t verdict_needed(const Schedule& schedule, std::uint64_t step) {
    const std::uint64_t user_step = step - schedule.first_step;
    const std::uint64_t read = user_step / schedule.until_every * schedule.until_every;  // steps below this are judged
    return schedule.first_step + read - 1;
}

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

// Whether it is known that the step before `step` was not the run's last. If not, the lane is blocked.
bool verdict_known(Server& server, Lane& lane, std::uint64_t step) {
    const Program& program = *lane.program;
    const Schedule& schedule = *program.schedule;
    if (step == schedule.first_step)
        return true;
    const std::uint64_t judged = verdict_needed(schedule, step);
    if (judged + 1 == schedule.first_step)
        return true;  // none has been due
    const auto ops = static_cast<std::uint64_t>(program.lanes[schedule.until_lane]->order->ops.size());
    return satisfied(server, lane, schedule.until_lane, judged * ops + schedule.until_position + 1);
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

void record(Server& server, Lane& lane, std::uint32_t position, std::uint64_t user_step, std::int64_t start) {
    TraceBuffers::Lane& buffer = lane.run->trace->lanes[lane.index];
    if (buffer.records.size() == buffer.records.capacity()) {
        ++buffer.dropped;
        return;
    }
    buffer.records.push_back({lane.order->ops[position], server.seat.index, user_step, start, monotonic_ns()});
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
        const std::uint64_t user_step = step - schedule.first_step;
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
                if (!run_stretch_slowly(server, lane, stretch))
                    return Outcome::kYielded;
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
                        record(server, lane, static_cast<std::uint32_t>(op - natives), user_step, start);
                    if ((static_cast<std::uint32_t>(code) | attention.load(std::memory_order_relaxed)) != 0)
                        [[unlikely]] {
                        wanted = true;
                        lane.stretch = s;
                        lane.position = static_cast<std::uint32_t>(op - natives) + 1;
                        if (code != 0) {
                            program.fail(run, order.ops[lane.position - 1], step, code, nullptr);
                            if (!run_stretch_slowly(server, lane, stretch))
                                return Outcome::kYielded;
                            break;
                        }
                        if (lane.position < stretch.end) {
                            lane.inside = true;
                            return Outcome::kYielded;
                        }
                    }
                }
            } else {
                lane.stretch = s;
                lane.position = at;
                if (!run_other_stretch(server, lane, stretch))
                    return Outcome::kYielded;
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

std::int32_t run_operation(Server& server, Lane& lane, Kind kind, std::uint32_t position, ExceptionHandle& failure) {
    Run& run = *lane.run;
    const std::uint64_t user_step = lane.program->user_step(lane.step);
    const std::int64_t start = run.trace ? monotonic_ns() : 0;
    std::int32_t code = 0;
    if (kind == Kind::kPython) {
        call_python(server, lane, position, position + 1, user_step, failure);
        if (failure)
            code = 1;
    } else if (kind != Kind::kNothing) {
        server.python.release();
        NativeOp& op = run.plan->native[lane.order->slot + position];
        op.call.step = user_step;
        op.call.arrays = op.tables + lane.phase[op.period_class] * static_cast<std::uint32_t>(op.call.n_arrays);
        code = op.function(&op.call);
    }
    if (run.trace)
        record(server, lane, position, user_step, start);
    return code;
}

bool run_other_stretch(Server& server, Lane& lane, const Stretch& stretch) {
    Program& program = *lane.program;
    Run& run = *lane.run;
    ExceptionHandle failure;
    if (stretch.kind == Kind::kPython && !run.trace) {
        const std::uint64_t user_step = program.user_step(lane.step);
        const std::uint32_t reached = call_python(server, lane, lane.position, stretch.end, user_step, failure);
        if (failure) {
            program.fail(run, lane.order->ops[reached - 1], lane.step, 0, std::move(failure));
            lane.position = reached;
            return run_stretch_slowly(server, lane, stretch);
        }
        if (reached < stretch.end) {
            lane.position = reached;
            lane.inside = true;
            return false;
        }
        return true;
    }
    for (std::uint32_t at = lane.position; at < stretch.end; ++at) {
        const std::int32_t code = run_operation(server, lane, stretch.kind, at, failure);
        if (stretch.kind == Kind::kUntil && code == kLastStep) {
            program.stop_at(run, lane.step);
        } else if (code != 0) {
            program.fail(run, lane.order->ops[at], lane.step, failure ? 0 : code, std::move(failure));
            lane.position = at + 1;
            return run_stretch_slowly(server, lane, stretch);
        }
        if (server.attention() && at + 1 < stretch.end) {
            lane.position = at + 1;
            lane.inside = true;
            return false;
        }
    }
    return true;
}

bool run_stretch_slowly(Server& server, Lane& lane, const Stretch& stretch) {
    Program& program = *lane.program;
    // A lane that does not come after the failure has nothing but this to make the history visible to it.
    (void)program.slow.load(std::memory_order_acquire);
    const Schedule& schedule = *program.schedule;
    Run& run = *lane.run;
    for (std::uint32_t at = lane.position; at < stretch.end; ++at) {
        const std::uint32_t op = lane.order->ops[at];
        bool poisoned = false;
        for (std::uint64_t i = schedule.pred_begin[op]; i < schedule.pred_begin[op + 1] && !poisoned; ++i) {
            const std::uint64_t before = lane.step - schedule.pred_distance[i];
            poisoned = before >= lane.clean_from && program.history.test(schedule.pred_op[i], before);
        }
        program.history.mark(op, lane.step, poisoned);
        if (poisoned) {
            run.poisoned.store(true, std::memory_order_relaxed);
        } else if (!run.aborted.load(std::memory_order_relaxed)) {
            ExceptionHandle failure;
            const std::int32_t code = run_operation(server, lane, stretch.kind, at, failure);
            if (stretch.kind == Kind::kUntil && code == kLastStep)
                program.stop_at(run, lane.step);
            else if (code != 0)
                program.fail(run, op, lane.step, failure ? 0 : code, std::move(failure));
        }
        if (server.attention() && at + 1 < stretch.end) {
            lane.position = at + 1;
            lane.inside = true;
            return false;
        }
    }
    return true;
}

bool enter_next_run(Server& server, Lane& lane) {
    Program& program = *lane.program;
    const std::uint64_t wanted = lane.run->index + 1;
    if (program.frontier.value.load(std::memory_order_acquire) < wanted) {
        lane.block(program.frontier, wanted);
        return false;
    }
    // Set before the frontier was published; cleared only after every lane has moved on.
    const std::shared_ptr<Run>& next = lane.run->next;
    if (next->fenced && !program.completed.reached(wanted - 1) &&
        server.await(lane, program.completed, wanted - 1) < wanted - 1)
        return false;
    if (next->fenced && program.starts_clean(*next))
        lane.clean_from = lane.step;
    std::shared_ptr<Run> left = std::move(lane.run);
    lane.run = next;
    if (left->lanes_behind.fetch_sub(1, std::memory_order_acq_rel) == 1)
        left->next.reset();
    Run& run = *lane.run;
    run.first.store(lane.step, std::memory_order_relaxed);
    lane.run_index.store(run.index, std::memory_order_release);
    lane.priority.store(run.priority, std::memory_order_relaxed);
    lane.entered = true;
    lane.in_step = false;
    Plan& plan = *run.plan;
    for (std::uint32_t i = plan.scalar_patch_begin[lane.index]; i < plan.scalar_patch_begin[lane.index + 1]; ++i) {
        const ScalarPatch& patch = plan.scalar_patches[i];
        plan.scalars[patch.scalar].i64 = static_cast<std::int64_t>(run.values[patch.value]);
    }
    if (plan.python)
        apply_python_parameters(server, lane);
    return true;
}

void leave_run(Lane& lane) {
    lane.entered = false;
    const std::shared_ptr<Run> run = lane.run;
    publish(lane.timeline, lane.step * lane.order->ops.size());
    if (run->lanes_left.fetch_sub(1, std::memory_order_acq_rel) == 1)
        lane.program->finish(*run);
}

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
        leave_run(lane);
    }
}

}  // namespace ostinato
