// Fences: external operations that are done when the device has done what an operation issued in that step.
#pragma once

#include "outside/external.h"

namespace ostinato {

class FenceOp final : public ExternalOp {
public:
    // `lazy`: nobody in the step comes after it. It waits in some steps only, so that not too much is in flight, and
    // before its lane leaves a run.
    FenceOp(std::uint32_t device_op, bool lazy) : device_op_(device_op), lazy_(lazy) {}
    Outcome advance(ExternalContext context) const override;
    bool firm() const override { return true; }
    std::string waits_for(const Run& run, std::uint64_t step) const override;

    // Waits for the event of `step`, which is the lane's, or the one before when its lane leaves the run.
    Outcome wait(ExternalContext context, std::uint64_t step) const;

private:
    std::uint32_t device_op_;  // which of DevicePlan::ops
    bool lazy_;
};

// Before `lane` leaves its run: whether its lazy fences of the last step are done. If not, the lane is blocked.
bool fences_settled(Worker& worker, Lane& lane);

}  // namespace ostinato
