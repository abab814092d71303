// What programs do with things outside of them, as operations: preconditions, postconditions, barriers, reservations.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "lanes/lane.h"
#include "outside/barrier.h"
#include "outside/external.h"
#include "outside/reservation.h"
#include "program/program.h"
#include "python/external.h"

namespace ostinato {

// Stands for an operation on something outside, where that is to be left alone.
class NothingOp : public ExternalOp {
public:
    Outcome advance(ExternalContext) const override { return {Result::kDone}; }
    std::string waits_for(const Plan&, const Run&, std::uint64_t) const override { return "nothing"; }
};

// Waits, in a run's first step, for the event given for precondition number `index`.
class PreconditionOp final : public ExternalOp {
public:
    explicit PreconditionOp(std::uint32_t index) : index_(index) {}
    Outcome advance(ExternalContext context) const override {
        const Run& run = context.run;
        const std::shared_ptr<Event>& event = run.outside == nullptr ? nullptr : run.outside->preconditions[index_];
        if (event == nullptr || context.lane.step != run.first.load(std::memory_order_relaxed))
            return {Result::kDone};
        if (!context.happened(event))
            return {Result::kBlocked};
        if (!event->done())
            return {Result::kSkipped};
        if (event->poisoned())
            return {.result = Result::kSkipped, .poisoned_by = event};
        return {Result::kDone};
    }
    std::string waits_for(const Plan&, const Run&, std::uint64_t) const override {
        return "precondition number " + std::to_string(index_) + " of the run";
    }

private:
    std::uint32_t index_;
};

// In a run's last step, tells that what comes before it is done.
class PostconditionOp final : public NothingOp {
public:
    explicit PostconditionOp(std::uint32_t index) : index_(index) {}
    Outcome advance(ExternalContext context) const override {
        // A bound only sinks, and not below the step that this lane is in: if this is the last step now, it stays so.
        // Where that is not known yet, since until() has not been looked at, the end of the run tells.
        const std::uint64_t steps = context.lane.step - context.run.first.load(std::memory_order_relaxed) + 1;
        if (context.run.bound.load(std::memory_order_acquire) == steps + 1)
            context.lane.program->reach_post(context.run, index_, context.lane.step, false);
        return {Result::kDone};
    }
    void skip(ExternalContext context) const override {
        context.lane.program->reach_post(context.run, index_, context.lane.step, true);
    }

private:
    std::uint32_t index_;
};

// Which phase of which barrier a step belongs to: that of a fixed barrier, `base` steps after the program's step
// number; or, with `param` not negative, that of the run's barrier number `param`, counted from the run's first step.
struct BarrierPhase {
    std::shared_ptr<Barrier> barrier;
    std::uint64_t base = 0;
    std::int32_t param = -1;

    Barrier& of(const Run& run) const { return param < 0 ? *barrier : *given(run).barrier; }
    std::uint64_t in(const Run& run, std::uint64_t step) const {
        return param < 0 ? base + run.user_step(step)
                         : attendance(run)->base + step - run.first.load(std::memory_order_relaxed);
    }
    // What the run does at a barrier that it was given; null for a fixed one.
    Attendance* attendance(const Run& run) const { return param < 0 ? nullptr : given(run).attendance.get(); }

private:
    const BarrierParam& given(const Run& run) const { return run.outside->barriers[static_cast<std::size_t>(param)]; }
};

class ArrivalOp final : public NothingOp {
public:
    // Where the count, or the value, is a parameter: the number of the run's value, or object; -1 if not.
    ArrivalOp(BarrierPhase phase, std::uint64_t count, std::int32_t count_param, PythonObjectHandle value,
              std::int32_t value_param)
        : phase_(std::move(phase)), count_(count), count_param_(count_param), value_(std::move(value)),
          value_param_(value_param) {}
    Outcome advance(ExternalContext context) const override {
        const std::uint64_t count = count_in(context.run), phase = phase_.in(context.run, context.lane.step);
        Barrier& barrier = phase_.of(context.run);
        Attendance* const attendance = phase_.attendance(context.run);
        ExceptionHandle raised;
        const bool fits =
            value_ != nullptr || value_param_ >= 0
                ? arrive_with_value(context, barrier, phase, count, attendance, value_.get(), value_param_, raised)
                : barrier.arrive(phase, count, attendance);
        if (raised)
            return {.result = Result::kFailed, .exception = std::move(raised)};
        return fits ? Outcome{Result::kDone} : Outcome{.result = Result::kFailed, .code = kExcessArrivals};
    }
    void attend(const Run& run) const override {
        if (Attendance* const attendance = phase_.attendance(run))
            attendance->count += count_in(run);
    }

private:
    std::uint64_t count_in(const Run& run) const {
        return count_param_ < 0 ? count_ : run.values[static_cast<std::size_t>(count_param_)];
    }

    BarrierPhase phase_;
    std::uint64_t count_;
    std::int32_t count_param_;
    PythonObjectHandle value_;
    std::int32_t value_param_;
};

class PhaseWaitOp final : public ExternalOp {
public:
    explicit PhaseWaitOp(BarrierPhase phase) : phase_(std::move(phase)) {}
    Outcome advance(ExternalContext context) const override {
        Barrier& barrier = phase_.of(context.run);
        const std::uint64_t phase = phase_.in(context.run, context.lane.step);
        std::shared_ptr<Event>& pending = context.signal.pending;
        if (!barrier.complete(phase)) {
            if (pending == nullptr)
                pending = barrier.event(phase);
            if (!context.happened(pending))
                return {Result::kBlocked};
        }
        pending.reset();
        return {barrier.complete(phase) ? Result::kDone : Result::kSkipped};
    }
    void attend(const Run& run) const override {
        if (Attendance* const attendance = phase_.attendance(run))
            attendance->waits = true;
    }
    std::string waits_for(const Plan&, const Run& run, std::uint64_t step) const override {
        Barrier& barrier = phase_.of(run);
        return "phase " + std::to_string(phase_.in(run, step)) + " of a barrier, which is in phase " +
               std::to_string(barrier.phase()) +
               " (arrivals missing: " + std::to_string(barrier.left(barrier.phase())) + " of " +
               std::to_string(barrier.arrivals()) + ")";
    }

private:
    BarrierPhase phase_;
};

// All operations of one reservation are in program order, step after step, by the edges of the compiler: lanes that
// requested on a first-come basis could each hold what the other waits for.
class AcquireOp final : public ExternalOp {
public:
    // `holding`: which of the program's holdings counts what it holds of this reservation.
    AcquireOp(std::shared_ptr<Reservation> reservation, std::uint32_t holding, bool exclusive)
        : reservation_(std::move(reservation)), holding_(holding), exclusive_(exclusive) {}
    Outcome advance(ExternalContext context) const override {
        Holding& holding = context.lane.program->holdings[holding_];
        std::shared_ptr<Event>& pending = context.signal.pending;
        if (pending == nullptr)
            pending = reservation_->acquire(exclusive_);
        if (!context.happened(pending))
            return {Result::kBlocked};
        const bool granted = pending->done() || !reservation_->withdraw(pending);
        pending.reset();
        (granted ? holding.held : holding.skipped).fetch_add(1, std::memory_order_relaxed);
        return {granted ? Result::kDone : Result::kSkipped};
    }
    void skip(ExternalContext context) const override {
        context.lane.program->holdings[holding_].skipped.fetch_add(1, std::memory_order_relaxed);
    }
    std::string waits_for(const Plan&, const Run&, std::uint64_t) const override {
        return "a reservation (holders: " + std::to_string(reservation_->holders()) +
               ", requests waiting: " + std::to_string(reservation_->waiting()) + ")";
    }

private:
    std::shared_ptr<Reservation> reservation_;
    std::uint32_t holding_;
    bool exclusive_;
};

class ReleaseOp final : public NothingOp {
public:
    ReleaseOp(std::shared_ptr<Reservation> reservation, std::uint32_t holding)
        : reservation_(std::move(reservation)), holding_(holding) {}
    Outcome advance(ExternalContext context) const override {
        Holding& holding = context.lane.program->holdings[holding_];
        if (take_one(holding.skipped))  // program order: it belongs to the acquire that was left out
            return {Result::kDone};
        if (!take_one(holding.held))
            return {.result = Result::kFailed, .code = kNotHeld};
        (void)reservation_->release();  // other code may have released it: then nothing is left to release
        return {Result::kDone};
    }
    // A reservation that is held is released even if the run failed.
    void skip(ExternalContext context) const override { (void)advance(context); }

private:
    static bool take_one(std::atomic<std::uint32_t>& count) {  // if there is one
        std::uint32_t known = count.load(std::memory_order_relaxed);
        while (known != 0 && !count.compare_exchange_weak(known, known - 1, std::memory_order_relaxed)) {
        }
        return known != 0;
    }

    std::shared_ptr<Reservation> reservation_;
    std::uint32_t holding_;
};

}  // namespace ostinato
