// Arrivals at barriers and waits for their phases as operations.
#pragma once

#include <memory>

#include "outside/barrier.h"
#include "outside/external.h"

namespace ostinato {

// Which phase of which barrier a step belongs to: that of a fixed barrier, `base` steps after the program's step
// number; or, with `param` not negative, that of the run's barrier number `param`, counted from the run's first step.
struct BarrierPhase {
    std::shared_ptr<Barrier> barrier;
    std::uint64_t base = 0;
    std::int32_t param = -1;

    const std::shared_ptr<Barrier>& of(const Run& run) const;
    std::uint64_t in(const Run& run, std::uint64_t step) const;
    // What the run does at a barrier that it was given; null for a fixed one.
    Attendance* attendance(const Run& run) const;
};

class ArrivalOp final : public ExternalOp {
public:
    // Where the count, or the value, is a parameter: the number of the run's value, or object; -1 if not.
    ArrivalOp(BarrierPhase phase, std::uint64_t count, std::int32_t count_param, PythonObjectHandle value,
              std::int32_t value_param)
        : phase_(std::move(phase)), count_(count), count_param_(count_param), value_(std::move(value)),
          value_param_(value_param) {}
    Outcome advance(ExternalContext context) const override;
    void attend(const Run& run) const override;
    std::string waits_for(const Run&, std::uint64_t) const override { return "nothing"; }

private:
    std::uint64_t count_in(const Run& run) const;

    BarrierPhase phase_;
    std::uint64_t count_;
    std::int32_t count_param_;
    PythonObjectHandle value_;
    std::int32_t value_param_;
};

class PhaseWaitOp final : public ExternalOp {
public:
    explicit PhaseWaitOp(BarrierPhase phase) : phase_(std::move(phase)) {}
    Outcome advance(ExternalContext context) const override;
    void attend(const Run& run) const override;
    std::string waits_for(const Run& run, std::uint64_t step) const override;

private:
    BarrierPhase phase_;
};

}  // namespace ostinato
