#include "outside/conditions.h"

#include "lanes/lane.h"
#include "program/program.h"

namespace ostinato {

ExternalOp::Outcome PreconditionOp::advance(ExternalContext context) const {
    Run& run = context.run;
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

std::string PreconditionOp::waits_for(const Run&, std::uint64_t) const {
    return "precondition number " + std::to_string(index_) + " of the run";
}

ExternalOp::Outcome PostconditionOp::advance(ExternalContext context) const {
    // A bound only sinks, and not below the step that this lane is in: if this is the last step now, it stays so.
    // Where that is not known yet, since until() has not been looked at, the end of the run tells.
    const std::uint64_t steps = context.lane.step - context.run.first.load(std::memory_order_relaxed) + 1;
    if (context.run.bound.load(std::memory_order_acquire) == steps + 1)
        context.lane.program->reach_post(context.run, index_, context.lane.step, false);
    return {Result::kDone};
}

void PostconditionOp::skip(ExternalContext context) const {
    context.lane.program->reach_post(context.run, index_, context.lane.step, true);
}

std::string PostconditionOp::waits_for(const Run&, std::uint64_t) const { return "nothing"; }

}  // namespace ostinato
