#include "lane_loop.h"

#include "program.h"
#include "python_ops.h"
#include "relax.h"

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

void record(Server& server, Lane& lane, std::uint32_t position, std::int64_t start, Status status) {
    TraceBuffers::Lane& buffer = lane.run->trace->lanes[lane.index];
    if (buffer.records.size() == buffer.records.capacity()) {
        ++buffer.dropped;
        return;
    }
    buffer.records.push_back(
        {lane.order->ops[position], server.seat.index, lane.run->user_step(lane.step), start, monotonic_ns(), status});
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

std::int32_t run_operation(Server& server, Lane& lane, Kind kind, std::uint32_t position, ExceptionHandle& failure) {
    Run& run = *lane.run;
    const std::uint64_t user_step = run.user_step(lane.step);
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
        record(server, lane, position, start, code == 0 || code == kLastStep ? Status::kOk : Status::kFailed);
    return code;
}

namespace {

Place place_of(Server& server, Lane& lane, std::uint32_t position) {
    const std::uint32_t number = lane.program->schedule->external_of[lane.order->ops[position]];
    return {server, lane, *lane.run, *lane.program->signals[number], position};
}

const ExternalOp& external(const Lane& lane, std::uint32_t position) {
    return *lane.run->plan->external[lane.program->schedule->external_of[lane.order->ops[position]]];
}

// The operation at `position` waits for something outside: the lane will go on with it.
Progress stand_before(Lane& lane, std::uint32_t position, Progress why) {
    lane.position = position;
    lane.inside = true;
    return why;
}

void record_skip(Server& server, Lane& lane, std::uint32_t position, Status status) {
    if (lane.run->trace)
        record(server, lane, position, monotonic_ns(), status);
}

// Advances the external operation at `position` and draws the consequences. Whether it is still to be waited for.
bool external_waits(Server& server, Lane& lane, std::uint32_t position) {
    Run& run = *lane.run;
    const std::uint32_t op = lane.order->ops[position];
    const Place place = place_of(server, lane, position);
    if (run.trace && place.signal.since == 0)
        place.signal.since = monotonic_ns();
    server.python.release();
    ExternalOp::Outcome outcome = external(lane, position).advance(place);
    if (outcome.result == ExternalOp::Result::kBlocked)
        return true;
    Status status = Status::kOk;
    if (outcome.result == ExternalOp::Result::kFailed) {
        lane.program->fail(run, op, lane.step, outcome.exception ? 0 : outcome.code, std::move(outcome.exception));
        status = Status::kFailed;
    } else if (outcome.poisoned_by) {
        lane.program->poison(run, op, lane.step, outcome.poisoned_by);
        status = Status::kPoisoned;
    } else if (outcome.result == ExternalOp::Result::kSkipped) {
        status = Status::kCancelled;
    }
    if (run.trace)
        record(server, lane, position, place.signal.since, status);
    place.signal.since = 0;
    return false;
}

}  // namespace

Progress run_other_stretch(Server& server, Lane& lane, const Stretch& stretch) {
    Program& program = *lane.program;
    Run& run = *lane.run;
    ExceptionHandle failure;
    if (stretch.kind == Kind::kPython && !run.trace) {
        const std::uint64_t user_step = run.user_step(lane.step);
        const std::uint32_t reached = call_python(server, lane, lane.position, stretch.end, user_step, failure);
        if (failure) {
            program.fail(run, lane.order->ops[reached - 1], lane.step, 0, std::move(failure));
            lane.position = reached;
            return run_stretch_slowly(server, lane, stretch);
        }
        return reached < stretch.end ? stand_before(lane, reached, Progress::kYielded) : Progress::kDone;
    }
    for (std::uint32_t at = lane.position; at < stretch.end; ++at) {
        if (is_external(stretch.kind)) {
            if (external_waits(server, lane, at))
                return stand_before(lane, at, Progress::kBlocked);
            if (program.slow.load(std::memory_order_relaxed)) {  // it failed, or is poisoned
                lane.position = at + 1;
                return run_stretch_slowly(server, lane, stretch);
            }
        } else {
            const std::int32_t code = run_operation(server, lane, stretch.kind, at, failure);
            if (stretch.kind == Kind::kUntil && code == kLastStep) {
                program.stop_at(run, lane.step);
            } else if (code != 0) {
                program.fail(run, lane.order->ops[at], lane.step, failure ? 0 : code, std::move(failure));
                lane.position = at + 1;
                return run_stretch_slowly(server, lane, stretch);
            }
        }
        if (server.attention() && at + 1 < stretch.end)
            return stand_before(lane, at + 1, Progress::kYielded);
    }
    return Progress::kDone;
}

namespace {

// Whether something that the operation comes after has failed or was skipped; `first`: this is the run's first step.
bool is_poisoned(const Lane& lane, std::uint32_t op, bool first) {
    const Program& program = *lane.program;
    const Schedule& schedule = *program.schedule;
    bool root = true;
    for (std::uint64_t i = schedule.pred_begin[op]; i < schedule.pred_begin[op + 1]; ++i) {
        const std::uint64_t before = lane.step - schedule.pred_distance[i];
        if (before >= lane.clean_from && program.history.test(schedule.pred_op[i], before))
            return true;
        root = root && schedule.pred_distance[i] != 0;
    }
    return root && first && lane.run->start_poisoned.load(std::memory_order_relaxed);
}

}  // namespace

Progress run_stretch_slowly(Server& server, Lane& lane, const Stretch& stretch) {
    Program& program = *lane.program;
    // A lane that does not come after the failure has nothing but this to make the history visible to it.
    (void)program.slow.load(std::memory_order_acquire);
    Run& run = *lane.run;
    const bool first = lane.step == run.first.load(std::memory_order_relaxed);
    for (std::uint32_t at = lane.position; at < stretch.end; ++at) {
        const std::uint32_t op = lane.order->ops[at];
        const bool outside = is_external(stretch.kind);
        const bool waits = outside && place_of(server, lane, at).signal.pending != nullptr;
        const bool poisoned = !waits && is_poisoned(lane, op, first);
        program.history.mark(op, lane.step, poisoned);
        if (poisoned || (!waits && run.aborted.load(std::memory_order_relaxed))) {
            if (poisoned)
                run.poisoned.store(true, std::memory_order_relaxed);
            if (outside)
                external(lane, at).skip(place_of(server, lane, at));
            record_skip(server, lane, at, poisoned ? Status::kPoisoned : Status::kCancelled);
        } else if (outside) {
            if (external_waits(server, lane, at))
                return stand_before(lane, at, Progress::kBlocked);
        } else {
            ExceptionHandle failure;
            const std::int32_t code = run_operation(server, lane, stretch.kind, at, failure);
            if (stretch.kind == Kind::kUntil && code == kLastStep)
                program.stop_at(run, lane.step);
            else if (code != 0)
                program.fail(run, op, lane.step, failure ? 0 : code, std::move(failure));
        }
        if (server.attention() && at + 1 < stretch.end)
            return stand_before(lane, at + 1, Progress::kYielded);
    }
    return Progress::kDone;
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
    if (next->after && !program.started.reached(wanted) && server.await(lane, program.started, wanted) < wanted)
        return false;
    if (next->fenced && program.starts_clean(*next))
        lane.clean_from = lane.step;
    std::shared_ptr<Run> left = std::move(lane.run);
    lane.run = next;
    if (left->lanes_behind.fetch_sub(1, std::memory_order_acq_rel) == 1)
        left->next.reset();
    Run& run = *lane.run;
    run.first.store(lane.step, std::memory_order_relaxed);
    run.offset.store(run.user_first == kContinued ? program.schedule->first_step : lane.step - run.user_first,
                     std::memory_order_relaxed);
    lane.run_index.store(run.index, std::memory_order_release);
    lane.priority.store(run.priority, std::memory_order_relaxed);
    lane.entered = true;
    lane.in_step = false;
    if (run.after && run.after->poisoned())
        program.poison_start(run);
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
