#include "completions.h"

#include <utility>

#include "device_ops.h"
#include "program.h"
#include "python_device.h"

namespace ostinato {

namespace {

// The device has done what the token stood for. It may be late to leave here: what it touches is held.
void completed(void* with, std::int32_t code) {
    Signal& signal = *static_cast<Signal*>(with);
    const std::shared_ptr<Signal> held = std::move(signal.held);
    signal.code = code;
    signal.reach(signal.armed);
}

}  // namespace

ExternalOp::Outcome CompletionOp::wait(Place place, std::uint64_t step) const {
    const DevicePlan& devices = *place.run.plan->device;
    const DeviceOp& op = devices.ops[device_op_];
    Signal& signal = place.signal;
    const std::uint64_t value = step + 1;
    if (signal.armed != value) {
        const Token* const token = op.token_of(step);
        if (token == nullptr)
            return {Result::kDone};  // it could not be recorded, which was told
        signal.armed = value;        // firm: an abort does not look at it
        signal.held = signal.shared_from_this();
        op.device->notify(*token, completed, &signal);
    }
    if (!signal.timeline.reached(value)) {
        place.lane.block(signal.timeline, value);
        return {Result::kBlocked};
    }
    if (const std::int32_t code = std::exchange(signal.code, 0); code != 0)
        return {.result = Result::kFailed,
                .exception = device_error(place.server, *devices.streams[op.stream], code),
                .failed = op.op};
    return {Result::kDone};
}

ExternalOp::Outcome CompletionOp::advance(Place place) const {
    if (lazy_) {
        const std::uint64_t every = place.lane.program->schedule->window_period / 2;
        if ((place.lane.step + 1) % every != 0)
            return {Result::kDone};
    }
    return wait(place, place.lane.step);
}

std::string CompletionOp::waits_for(const Run& run, std::uint64_t) const {
    const DevicePlan& devices = *run.plan->device;
    return devices.streams[devices.ops[device_op_].stream]->name + " to finish";
}

bool completions_settled(Server& server, Lane& lane) {
    Program& program = *lane.program;
    Run& run = *lane.run;
    for (const std::uint32_t number : run.plan->device->lazy[lane.index]) {
        const auto& completion = static_cast<const CompletionOp&>(*run.plan->external[number]);
        ExternalOp::Outcome outcome = completion.wait({server, lane, run, *program.signals[number]}, lane.step - 1);
        if (outcome.result == ExternalOp::Result::kBlocked)
            return false;
        if (outcome.result == ExternalOp::Result::kFailed)
            program.fail(run, program.schedule->externals[number], lane.step - 1, 0, std::move(outcome.exception),
                         outcome.failed);
    }
    return true;
}

}  // namespace ostinato
