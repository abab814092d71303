// Operations that the loop does not call itself: others than plain native ones, and all after a failure.
#include "devices/device_ops.h"
#include "lanes/lane_loop.h"
#include "program/program.h"
#include "python/ops.h"

namespace ostinato {

void record(Worker& worker, Lane& lane, std::uint32_t position, std::int64_t start, Status status) {
    TraceBuffers::Lane& buffer = lane.run->trace->lanes[lane.index];
    if (buffer.records.size() == buffer.records.capacity()) {
        ++buffer.dropped;
        return;
    }
    buffer.records.push_back(
        {lane.order->ops[position], worker.slot.index, lane.run->user_step(lane.step), start, monotonic_ns(), status});
}

std::int32_t run_operation(Worker& worker, Lane& lane, Kind kind, std::uint32_t position, ExceptionHandle& failure) {
    Run& run = *lane.run;
    const std::uint64_t user_step = run.user_step(lane.step);
    const std::int64_t start = run.trace ? monotonic_ns() : 0;
    std::int32_t code = 0;
    if (kind == Kind::kPython) {
        call_python(worker, lane, position, position + 1, user_step, failure);
        if (failure)
            code = 1;
    } else if (kind != Kind::kNothing) {
        worker.python.release();
        NativeOp& op = run.plan->native_op(lane.order->first + position, user_step, lane.phase.data());
        op.call.step = user_step;
        code = op.function(&op.call);
    }
    if (run.trace)
        record(worker, lane, position, start, code == 0 || code == kLastStep ? Status::kOk : Status::kFailed);
    return code;
}

namespace {

ExternalContext context_of(Worker& worker, Lane& lane, std::uint32_t position) {
    const std::uint32_t number = lane.program->schedule->external_of[lane.order->ops[position]];
    return {worker, lane, *lane.run, *lane.program->signals[number]};
}

const ExternalOp& external(const Lane& lane, std::uint32_t position) {
    return *lane.run->plan->external[lane.program->schedule->external_of[lane.order->ops[position]]];
}

}  // namespace

Progress stand_before(Lane& lane, std::uint32_t position, Progress why) {
    lane.position = position;
    lane.inside = true;
    return why;
}

namespace {

void record_skip(Worker& worker, Lane& lane, std::uint32_t position, Status status) {
    if (lane.run->trace)
        record(worker, lane, position, monotonic_ns(), status);
}

// Advances the external operation at `position` and draws the consequences. Whether it is still to be waited for.
// `poisoned`: what comes before it has failed, and it waits all the same.
bool external_waits(Worker& worker, Lane& lane, std::uint32_t position, bool poisoned = false) {
    Run& run = *lane.run;
    const std::uint32_t op = lane.order->ops[position];
    ExternalContext context = context_of(worker, lane, position);
    context.skipped = poisoned;
    const ExternalOp& external_op = external(lane, position);
    if (run.trace && (context.signal.since == 0 || external_op.begins_late()))
        context.signal.since = monotonic_ns();
    worker.python.release();
    ExternalOp::Outcome outcome = external_op.advance(context);
    if (outcome.result == ExternalOp::Result::kBlocked)
        return true;
    Status status = poisoned ? Status::kPoisoned : Status::kOk;
    if (outcome.result == ExternalOp::Result::kFailed) {
        lane.program->fail(run, op, lane.step, outcome.exception ? 0 : outcome.code, std::move(outcome.exception),
                           outcome.failed);
        status = Status::kFailed;
    } else if (outcome.poisoned_by) {
        lane.program->poison(run, op, lane.step, outcome.poisoned_by);
        status = Status::kPoisoned;
    } else if (outcome.result == ExternalOp::Result::kPoisoned) {
        lane.program->poison(run, op, lane.step, nullptr);
        status = Status::kPoisoned;
    } else if (outcome.result == ExternalOp::Result::kSkipped) {
        run.cut_at(lane.step);
        status = Status::kCancelled;
    }
    if (run.trace)
        record(worker, lane, position, context.signal.since, status);
    context.signal.since = 0;
    return false;
}

}  // namespace

Progress run_other_batch(Worker& worker, Lane& lane, const Batch& batch) {
    Program& program = *lane.program;
    Run& run = *lane.run;
    if (batch.kind == Kind::kDevice)
        return run_device_batch(worker, lane, batch);
    ExceptionHandle failure;
    if (batch.kind == Kind::kPython && !run.trace) {
        const std::uint64_t user_step = run.user_step(lane.step);
        const std::uint32_t reached = call_python(worker, lane, lane.position, batch.end, user_step, failure);
        if (failure) {
            program.fail(run, lane.order->ops[reached - 1], lane.step, 0, std::move(failure));
            lane.position = reached;
            return run_batch_slowly(worker, lane, batch);
        }
        return reached < batch.end ? stand_before(lane, reached, Progress::kYielded) : Progress::kDone;
    }
    for (std::uint32_t at = lane.position; at < batch.end; ++at) {
        if (is_external(batch.kind)) {
            if (external_waits(worker, lane, at))
                return stand_before(lane, at, Progress::kBlocked);
            if (program.slow.load(std::memory_order_relaxed)) {  // it failed, or is poisoned
                lane.position = at + 1;
                return run_batch_slowly(worker, lane, batch);
            }
        } else {
            const std::int32_t code = run_operation(worker, lane, batch.kind, at, failure);
            if (batch.kind == Kind::kUntil && code == kLastStep) {
                program.stop_at(run, lane.step);
            } else if (code != 0) {
                program.fail(run, lane.order->ops[at], lane.step, failure ? 0 : code, std::move(failure));
                lane.position = at + 1;
                return run_batch_slowly(worker, lane, batch);
            }
        }
        if (worker.attention() && at + 1 < batch.end)
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

Progress run_batch_slowly(Worker& worker, Lane& lane, const Batch& batch) {
    Program& program = *lane.program;
    // A lane that does not come after the failure has nothing but this to make the history visible to it.
    (void)program.slow.load(std::memory_order_acquire);
    Run& run = *lane.run;
    const bool first = lane.step == run.first.load(std::memory_order_relaxed);
    for (std::uint32_t at = lane.position; at < batch.end; ++at) {
        const std::uint32_t op = lane.order->ops[at];
        const bool outside = is_external(batch.kind);
        const bool firm = outside && external(lane, at).firm();
        const bool waits = outside && context_of(worker, lane, at).signal.pending != nullptr;
        const bool poisoned = !waits && is_poisoned(lane, op, first);
        program.history.mark(op, lane.step, poisoned);
        if (poisoned || (!waits && !firm && run.aborted.load(std::memory_order_relaxed))) {
            if (!poisoned)
                run.cut_at(lane.step);
            else if (!run.poisoned.load(std::memory_order_relaxed))
                program.note_skipped(run);
            if (firm) {
                if (external_waits(worker, lane, at, true))
                    return stand_before(lane, at, Progress::kBlocked);
                continue;
            }
            if (batch.kind == Kind::kDevice)
                (void)issue(worker, lane, at, false);
            if (outside) {
                const ExternalContext context = context_of(worker, lane, at);
                external(lane, at).skip(context);
                context.signal.since = 0;
            }
            record_skip(worker, lane, at, poisoned ? Status::kPoisoned : Status::kCancelled);
        } else if (outside) {
            if (external_waits(worker, lane, at))
                return stand_before(lane, at, Progress::kBlocked);
        } else if (batch.kind == Kind::kDevice) {
            (void)issue(worker, lane, at, true);
        } else {
            ExceptionHandle failure;
            const std::int32_t code = run_operation(worker, lane, batch.kind, at, failure);
            if (batch.kind == Kind::kUntil && code == kLastStep)
                program.stop_at(run, lane.step);
            else if (code != 0)
                program.fail(run, op, lane.step, failure ? 0 : code, std::move(failure));
        }
        if (worker.attention() && at + 1 < batch.end)
            return stand_before(lane, at + 1, Progress::kYielded);
    }
    return Progress::kDone;
}

}  // namespace ostinato
