#include <optional>
#include <utility>

#include "devices/device_ops.h"
#include "program/program.h"
#include "python/device.h"

namespace ostinato {

namespace {

// A wait that took so long, perhaps with a sleep and a wake in it, was not over while one would have polled. To poll
// for that would only keep a core from a device that may need it.
constexpr std::int64_t kLongWaitNs = 60'000;

// The device has done what the event stood for. It may be late to leave here: what it touches is held.
void completed(void* with, std::int32_t code) {
    Signal& signal = *static_cast<Signal*>(with);
    const std::shared_ptr<Signal> held = std::move(signal.held);
    signal.code = code;
    if (code != 0)
        signal.failed->store(true, std::memory_order_relaxed);
    signal.reach(signal.armed);
}

// In traced runs each operation has a callback of its own, and that may be all that is told of a failure: the first one
// of the step that came before `mark`.
std::optional<InFlightQueue::Failed> failed_before(InFlightQueue& in_flight_queue, const DeviceOp::Mark& mark) {
    const std::lock_guard<std::mutex> lock(in_flight_queue.mutex);
    for (InFlightQueue::Failed& entry : in_flight_queue.failed) {
        if (entry.step == mark.step && entry.callback <= mark.callbacks) {
            entry.told = true;
            return entry;
        }
    }
    return std::nullopt;
}

}  // namespace

ExternalOp::Outcome FenceOp::wait(ExternalContext context, std::uint64_t step) const {
    const DevicePlan& devices = *context.run.plan->device;
    const DeviceOp& op = devices.ops[device_op_];
    Signal& signal = context.signal;
    const std::uint64_t value = step + 1;
    const DeviceOp::Mark* const mark = op.mark_of(step);
    if (mark == nullptr)
        return {Result::kDone};  // it could not be recorded: that was told, and what it stands for waited for
    if (signal.armed != value) {
        signal.armed = value;  // firm: an abort does not look at it
        signal.held = signal.shared_from_this();
        signal.failed = context.lane.program->in_flight_queues[op.stream]->device_failed.get();
        op.device->notify(*mark->event, completed, &signal);
    }
    if (!signal.timeline.reached(value)) {
        if (signal.blocked_since == 0)
            signal.blocked_since = monotonic_ns();
        context.lane.block(signal.timeline, value, signal.takes_long);
        return {Result::kBlocked};
    }
    if (signal.blocked_since != 0)
        signal.takes_long = monotonic_ns() - std::exchange(signal.blocked_since, 0) > kLongWaitNs;
    InFlightQueue& in_flight_queue = *context.lane.program->in_flight_queues[op.stream];
    if (context.run.trace && !in_flight_queue.timeline.reached(mark->callbacks)) {
        context.lane.block(in_flight_queue.timeline, mark->callbacks);
        return {Result::kBlocked};
    }
    std::int32_t code = std::exchange(signal.code, 0);
    std::uint32_t failed = op.op;
    if (context.run.trace) {
        if (const auto found = failed_before(in_flight_queue, *mark)) {
            code = found->code;
            failed = found->op;
        }
    }
    if (code != 0)
        return {.result = Result::kFailed,
                .exception = device_error(context.worker, *devices.streams[op.stream], {code}),
                .failed = failed};
    return {in_flight_queue.device_failed->load(std::memory_order_relaxed) ? Result::kPoisoned : Result::kDone};
}

ExternalOp::Outcome FenceOp::advance(ExternalContext context) const {
    if (lazy_) {
        const std::uint64_t every = context.lane.program->schedule->window_period / 2;
        if ((context.lane.step + 1) % every != 0)
            return {Result::kDone};
    }
    return wait(context, context.lane.step);
}

std::string FenceOp::waits_for(const Plan& plan, const Run&, std::uint64_t) const {
    const DevicePlan& devices = *plan.device;
    return devices.streams[devices.ops[device_op_].stream]->name + " to finish";
}

bool fences_settled(Worker& worker, Lane& lane) {
    Program& program = *lane.program;
    Run& run = *lane.run;
    for (const std::uint32_t number : run.plan->device->lazy[lane.index]) {
        const auto& fence = static_cast<const FenceOp&>(*run.plan->external[number]);
        ExternalOp::Outcome outcome = fence.wait({worker, lane, run, *program.signals[number]}, lane.step - 1);
        if (outcome.result == ExternalOp::Result::kBlocked)
            return false;
        if (outcome.result == ExternalOp::Result::kFailed)
            program.fail(run, program.schedule->externals[number], lane.step - 1, 0, std::move(outcome.exception),
                         outcome.failed);
    }
    return true;
}

}  // namespace ostinato
