// Preconditions and postconditions as operations.
#pragma once

#include "outside/external.h"

namespace ostinato {

// Waits, in a run's first step, for the event given for precondition number `index`.
class PreconditionOp final : public ExternalOp {
public:
    explicit PreconditionOp(std::uint32_t index) : index_(index) {}
    Outcome advance(ExternalContext context) const override;
    std::string waits_for(const Run& run, std::uint64_t step) const override;

private:
    std::uint32_t index_;
};

// In a run's last step, tells that what comes before it is done.
class PostconditionOp final : public ExternalOp {
public:
    explicit PostconditionOp(std::uint32_t index) : index_(index) {}
    Outcome advance(ExternalContext context) const override;
    void skip(ExternalContext context) const override;
    std::string waits_for(const Run& run, std::uint64_t step) const override;

private:
    std::uint32_t index_;
};

// What is neither: stands for an operation on something outside, where that is to be left alone.
class NothingOp final : public ExternalOp {
public:
    Outcome advance(ExternalContext) const override { return {Result::kDone}; }
    std::string waits_for(const Run&, std::uint64_t) const override { return "nothing"; }
};

}  // namespace ostinato
