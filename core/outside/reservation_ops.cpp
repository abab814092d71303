#include "outside/reservation_ops.h"

#include "lanes/lane.h"
#include "program/program.h"

namespace ostinato {

ExternalOp::Outcome AcquireOp::advance(ExternalContext context) const {
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

void AcquireOp::skip(ExternalContext context) const {
    context.lane.program->holdings[holding_].skipped.fetch_add(1, std::memory_order_relaxed);
}

std::string AcquireOp::waits_for(const Run&, std::uint64_t) const {
    return "a reservation with " + std::to_string(reservation_->holders()) + " holders, and " +
           std::to_string(reservation_->waiting()) + " requests waiting";
}

namespace {

// Takes one of `count`, if there is one.
bool take_one(std::atomic<std::uint32_t>& count) {
    std::uint32_t known = count.load(std::memory_order_relaxed);
    while (known != 0 && !count.compare_exchange_weak(known, known - 1, std::memory_order_relaxed)) {
    }
    return known != 0;
}

}  // namespace

ExternalOp::Outcome ReleaseOp::advance(ExternalContext context) const {
    Holding& holding = context.lane.program->holdings[holding_];
    if (take_one(holding.skipped))  // program order: it belongs to the acquire that was left out
        return {Result::kDone};
    if (!take_one(holding.held))
        return {.result = Result::kFailed, .code = kNotHeld};
    (void)reservation_->release();  // somebody outside may have released it: then it is no more ours to give back
    return {Result::kDone};
}

void ReleaseOp::skip(ExternalContext context) const { (void)advance(context); }

}  // namespace ostinato
