#include "outside/barrier_ops.h"

#include "lanes/lane.h"
#include "python/external.h"

namespace ostinato {

const std::shared_ptr<Barrier>& BarrierPhase::of(const Run& run) const {
    return param < 0 ? barrier : run.outside->barriers[static_cast<std::size_t>(param)].barrier;
}

std::uint64_t BarrierPhase::in(const Run& run, std::uint64_t step) const {
    if (param < 0)
        return base + run.user_step(step);
    return attendance(run)->base + step - run.first.load(std::memory_order_relaxed);
}

Attendance* BarrierPhase::attendance(const Run& run) const {
    return param < 0 ? nullptr : run.outside->barriers[static_cast<std::size_t>(param)].attendance.get();
}

std::uint64_t ArrivalOp::count_in(const Run& run) const {
    return count_param_ < 0 ? count_ : run.values[static_cast<std::size_t>(count_param_)];
}

void ArrivalOp::attend(const Run& run) const {
    if (Attendance* const attendance = phase_.attendance(run); attendance != nullptr)
        attendance->count += count_in(run);
}

void PhaseWaitOp::attend(const Run& run) const {
    if (Attendance* const attendance = phase_.attendance(run); attendance != nullptr)
        attendance->waits = true;
}

ExternalOp::Outcome ArrivalOp::advance(ExternalContext context) const {
    const Run& run = context.run;
    const std::uint64_t count = count_in(run);
    const std::uint64_t phase = phase_.in(run, context.lane.step);
    Barrier& barrier = *phase_.of(run);
    if (value_ != nullptr || value_param_ >= 0) {
        ExceptionHandle raised;
        const bool fits =
            arrive_with(context, barrier, phase, count, phase_.attendance(run), value_.get(), value_param_, raised);
        if (raised)
            return {.result = Result::kFailed, .exception = std::move(raised)};
        return fits ? Outcome{Result::kDone} : Outcome{.result = Result::kFailed, .code = kExcessArrivals};
    }
    if (!barrier.arrive(phase, count, phase_.attendance(run)))
        return {.result = Result::kFailed, .code = kExcessArrivals};
    return {Result::kDone};
}

ExternalOp::Outcome PhaseWaitOp::advance(ExternalContext context) const {
    Barrier& barrier = *phase_.of(context.run);
    const std::uint64_t phase = phase_.in(context.run, context.lane.step);
    if (barrier.complete(phase)) {
        context.signal.pending.reset();
        return {Result::kDone};
    }
    std::shared_ptr<Event>& pending = context.signal.pending;
    if (pending == nullptr)
        pending = barrier.event(phase);
    if (!context.happened(pending))
        return {Result::kBlocked};
    pending.reset();
    return {barrier.complete(phase) ? Result::kDone : Result::kSkipped};
}

std::string PhaseWaitOp::waits_for(const Run& run, std::uint64_t step) const {
    Barrier& barrier = *phase_.of(run);
    const std::uint64_t phase = phase_.in(run, step);
    return "phase " + std::to_string(phase) + " of a barrier of " + std::to_string(barrier.arrivals()) +
           " arrivals: its phase is " + std::to_string(barrier.phase()) + ", of which " +
           std::to_string(barrier.left(barrier.phase())) + " are left";
}

}  // namespace ostinato
