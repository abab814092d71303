#include "reservation_ops.h"

#include "lane.h"
#include "program.h"

namespace ostinato {

ExternalOp::Outcome AcquireOp::advance(Place place) const {
    Holding& holding = place.lane.program->holdings[holding_];
    std::shared_ptr<Event>& pending = place.signal.pending;
    if (pending == nullptr)
        pending = reservation_->acquire(exclusive_);
    if (!place.happened(pending))
        return {Result::kBlocked};
    const bool granted = pending->done() || !reservation_->withdraw(pending);
    pending.reset();
    ++(granted ? holding.held : holding.skipped);
    return {granted ? Result::kDone : Result::kSkipped};
}

void AcquireOp::skip(Place place) const { ++place.lane.program->holdings[holding_].skipped; }

std::string AcquireOp::waits_for(const Run&, std::uint64_t) const {
    return "a reservation with " + std::to_string(reservation_->holders()) + " holders, and " +
           std::to_string(reservation_->waiting()) + " requests waiting";
}

ExternalOp::Outcome ReleaseOp::advance(Place place) const {
    Holding& holding = place.lane.program->holdings[holding_];
    if (holding.skipped != 0) {  // program order: it belongs to the acquire that was left out
        --holding.skipped;
        return {Result::kDone};
    }
    if (holding.held == 0)
        return {.result = Result::kFailed, .code = kNotHeld};
    --holding.held;
    (void)reservation_->release();  // somebody outside may have released it: then it is no more ours to give back
    return {Result::kDone};
}

void ReleaseOp::skip(Place place) const {
    Holding& holding = place.lane.program->holdings[holding_];
    if (holding.skipped != 0 || holding.held != 0)
        (void)advance(place);
}

}  // namespace ostinato
