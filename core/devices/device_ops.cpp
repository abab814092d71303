#include "devices/device_ops.h"

#include <algorithm>
#include <utility>

#include "program/program.h"
#include "python/device.h"
#include "python/ops.h"

namespace ostinato {

namespace {

void mark(DevicePlan& devices, const FlagTable& table, std::uint32_t phase, std::uint32_t writer) {
    if (table.begin.empty())
        return;
    const std::size_t at = table.begin.size() == 2 ? 0 : phase;
    for (std::uint32_t i = table.begin[at]; i < table.begin[at + 1]; ++i)
        devices.dirty[table.flags[i]].store(writer, std::memory_order_relaxed);
}

template <class T>
const T& of_phase(const std::vector<T>& plans, std::uint32_t phase) {
    return plans[plans.size() == 1 ? 0 : phase];
}

// The operation has been issued. What it writes is newer on the device than elsewhere, or no more.
void mark(DevicePlan& devices, const Lane& lane, const DeviceOp& op) {
    const std::uint32_t phase = lane.phase[op.period_class];
    mark(devices, op.sets, phase, op.op + 1);
    mark(devices, op.clears, phase, 0);
    Stream& stream = *devices.streams[op.stream];
    if (op.body == DeviceOp::Body::kCopy) {
        stream.copies.add(1);
        stream.bytes.add(static_cast<std::uint64_t>(of_phase(op.transfers, phase).bytes));
    } else if (op.body != DeviceOp::Body::kNothing) {
        stream.calls.add(1);
    }
}

std::int32_t move_on(const Lane& lane, const DeviceOp& op, StreamHandle stream) {
    const std::uint32_t phase = lane.phase[op.period_class];
    return op.body == DeviceOp::Body::kCopy ? op.device->copy(stream, of_phase(op.transfers, phase))
                                            : op.device->fill(stream, of_phase(op.patterns, phase));
}

// All of them, also when one has failed: what comes next on the stream relies on it.
Told wait_for_events(const DevicePlan& devices, const Lane& lane, const DeviceOp& op) {
    Told told;
    for (const DeviceOp::EventWait& wait : op.waits) {
        const DeviceOp& other = devices.ops[wait.device_op];
        const DeviceOp::Mark* const mark = other.mark_of(lane.step - wait.distance);
        if (mark == nullptr)
            continue;  // nothing was issued so long ago, or it was waited for
        if (const std::int32_t code = op.device->wait(op.handle, *mark->event); code != 0)
            told.add(wait_here(*devices.streams[other.stream], *lane.program->in_flight_queues[other.stream], code));
    }
    return told;
}

// `sequence`: what was launched last.
Told record_event(const Lane& lane, DeviceOp& op, Sequence* sequence = nullptr) {
    DeviceOp::Mark& mark = op.marks[lane.step & (op.marks.size() - 1)];
    InFlightQueue& in_flight_queue = *lane.program->in_flight_queues[op.stream];
    if (sequence == nullptr || !sequence->end(mark.event)) {
        if (const std::int32_t code = op.device->record(op.handle, mark.event); code != 0)
            return wait_here(*lane.run->plan->device->streams[op.stream], in_flight_queue, code);
    }
    mark.step = lane.step;
    mark.callbacks = in_flight_queue.armed;
    return {};
}

// Has the device say when it is done with what the operation has issued.
void trace(Lane& lane, const DeviceOp& op, std::int64_t issued, Status status) {
    DevicePlan& devices = *lane.run->plan->device;
    TraceBuffers::Lane& buffer = lane.run->trace->lanes[lane.index];
    const std::int64_t now = monotonic_ns();
    std::size_t at = SIZE_MAX;
    if (buffer.records.size() == buffer.records.capacity()) {
        ++buffer.dropped;
    } else {
        at = buffer.records.size();
        buffer.records.push_back(
            {op.op, devices.streams[op.stream]->processor, lane.run->user_step(lane.step), now, now, status, issued});
    }
    auto callback = std::make_unique<DeviceCallback>();
    if (op.device->record(op.handle, callback->event) != 0) {  // if that is due to its work, others are told so
        (void)op.device->finish(op.handle);
        if (at != SIZE_MAX)
            buffer.records[at].end = monotonic_ns();
        return;
    }
    callback->op = op.op;
    callback->step = lane.step;
    callback->traced = true;
    devices.traced[op.stream].push_back({std::move(callback), at});
    devices.traced[op.stream].back().callback->arm(*op.device, lane.program->in_flight_queues[op.stream]);
}

// The records are complete, now that the device has said all ends.
void complete_records(Lane& lane, std::vector<DevicePlan::Traced>& traced) {
    std::vector<TraceRecord>& records = lane.run->trace->lanes[lane.index].records;
    std::int64_t before = 0;
    for (const DevicePlan::Traced& entry : traced) {
        if (entry.record != SIZE_MAX) {
            TraceRecord& record = records[entry.record];
            record.end = entry.callback->at;
            record.start = std::min(std::max(record.start, before), record.end);
            if (entry.callback->code != 0)
                record.status = Status::kFailed;
        }
        before = entry.callback->at;
    }
    traced.clear();
}

bool fail(Worker& worker, Lane& lane, const DeviceOp& op, const Told& told) {
    const Stream& stream = *lane.run->plan->device->streams[op.stream];
    lane.program->fail(*lane.run, op.op, lane.step, 0, device_error(worker, stream, told));
    return false;
}

// What the segment issues, to be used again; null where it cannot be.
std::unique_ptr<Sequence> capture(Worker& worker, Lane& lane, const Segment& segment) {
    constexpr std::int32_t kRaised = -1;
    DevicePlan& devices = *lane.run->plan->device;
    const std::uint32_t* const index = devices.index.data() + lane.order->first;
    const DeviceOp& first = devices.ops[index[segment.begin]];
    worker.python.release();
    std::uint32_t failed = kNoOperation;
    std::string why;
    const auto enqueue = [&](std::uint32_t part, StreamHandle recording) -> std::int32_t {
        const std::uint32_t at = segment.begin + part;
        const DeviceOp& op = devices.ops[index[at]];
        std::int32_t code = 0;
        if (op.body == DeviceOp::Body::kPython) {
            code = call_recording(worker, lane, at, recording, why) ? 0 : kRaised;
            worker.python.release();
        } else {
            code = move_on(lane, op, recording);
        }
        if (code != 0)
            failed = op.op;
        return code;
    };
    std::int32_t code = 0;
    std::unique_ptr<Sequence> sequence = first.device->capture(first.handle, {segment.after, enqueue}, code);
    if (code != 0)
        sequence.reset();  // what is wrong shows when the operations are issued one by one
    const auto number = static_cast<std::size_t>(&segment - devices.segments.data());
    if (sequence)
        devices.captures->captured(number);
    else if (code == 0 || (code == kRaised && failed != kNoOperation))
        devices.captures->refused(number, std::move(why), failed);
    else
        devices.captures->refused(number, first.device->diagnose(code).message, failed);
    return sequence;
}

Sequence* sequence_of(Worker& worker, Lane& lane, Segment& segment) {
    const std::uint64_t user_step = lane.run->user_step(lane.step);
    Segment::Capture& kept = segment.captures[user_step % segment.captures.size()];
    if (kept.version != segment.version) [[unlikely]] {
        if (!std::exchange(kept.called, true))
            return nullptr;  // bodies compile and allocate when they are first called, which no capture allows
        worker.python.release();
        kept.sequence.reset();  // before: its resources may serve for the next
        kept.sequence = capture(worker, lane, segment);
        kept.version = segment.version;
    }
    return kept.sequence.get();
}

// Issues a segment as one. Returns the position after what was issued.
std::uint32_t launch(Worker& worker, Lane& lane, const Segment& segment, Sequence& sequence, bool& good) {
    DevicePlan& devices = *lane.run->plan->device;
    const std::uint32_t* const index = devices.index.data() + lane.order->first;
    DeviceOp& first = devices.ops[index[segment.begin]];
    DeviceOp& last = devices.ops[index[segment.end - 1]];
    worker.python.release();
    Told told = wait_for_events(devices, lane, first);
    if (told.code == 0)
        told.add({sequence.launch(first.handle)});
    if (told.code != 0) {   // the others are issued one by one, unless the first has poisoned them
        if (first.records)  // what was enqueued before the failure is waited for, too
            told.add(record_event(lane, first));
        good = fail(worker, lane, first, told);
        return segment.begin + 1;
    }
    devices.streams[first.stream]->launches.add(1);
    for (std::uint32_t at = segment.begin; at < segment.end; ++at)
        mark(devices, lane, devices.ops[index[at]]);
    if (last.records)
        told = record_event(lane, last, &sequence);
    good = told.code == 0 || fail(worker, lane, last, told);
    return segment.end;
}

}  // namespace

Told wait_here(Stream& stream, InFlightQueue& in_flight_queue, std::int32_t code) {
    const std::int32_t ended = stream.device->finish(stream.handle);
    if (ended == 0)
        return {code};
    in_flight_queue.device_failed->store(true, std::memory_order_relaxed);
    return {code, !stream.device->diagnose(ended).usable};  // a device that is lost does no more work
}

void DeviceCallback::called(void* with, std::int32_t code) {
    DeviceCallback& callback = *static_cast<DeviceCallback*>(with);
    const std::shared_ptr<InFlightQueue> in_flight_queue = std::move(callback.in_flight_queue);
    callback.code = code;
    callback.at = monotonic_ns();
    if (code != 0)
        in_flight_queue->device_failed->store(true, std::memory_order_relaxed);
    const std::lock_guard<std::mutex> lock(in_flight_queue->mutex);
    if (code != 0 && callback.traced)
        in_flight_queue->failed.push_back({callback.number, callback.step, callback.op, code});
    publish(in_flight_queue->timeline,
            in_flight_queue->timeline.value.load(std::memory_order_relaxed) + 1);  // the callback may be gone now
}

void DeviceCallback::arm(Device& device, const std::shared_ptr<InFlightQueue>& its_queue) {
    in_flight_queue = its_queue;
    number = ++in_flight_queue->armed;
    device.notify(*event, called, this);
}

bool issue(Worker& worker, Lane& lane, std::uint32_t position, bool runs) {
    Run& run = *lane.run;
    DevicePlan& devices = *run.plan->device;
    DeviceOp& op = devices.ops[devices.index[lane.order->first + position]];
    const std::uint64_t user_step = run.user_step(lane.step);
    const std::int64_t issued = run.trace ? monotonic_ns() : 0;
    Told told;
    std::int32_t own_code = 0;  // a native body's
    ExceptionHandle failure;
    if (op.body != DeviceOp::Body::kPython || !op.waits.empty())
        worker.python.release();
    if (!op.waits.empty())
        told = wait_for_events(devices, lane, op);
    const bool active =
        runs && told.code == 0 && op.activity.active(lane.step - run.first.load(std::memory_order_relaxed), user_step);
    if (active) {
        switch (op.body) {
            case DeviceOp::Body::kNothing:
                break;
            case DeviceOp::Body::kCopy:
            case DeviceOp::Body::kFill:
                told.code = move_on(lane, op, op.handle);
                break;
            case DeviceOp::Body::kPython:
                call_issuing(worker, lane, position, user_step, failure);
                break;
            case DeviceOp::Body::kNative: {
                NativeOp& native = run.plan->native_op(lane.order->first + position, user_step, lane.phase.data());
                native.call.step = user_step;
                own_code = native.function(&native.call);
                break;
            }
        }
    }
    if (active && told.code == 0 && own_code == 0 && !failure)
        mark(devices, lane, op);
    if (run.trace && active && op.body != DeviceOp::Body::kNothing) {
        worker.python.release();
        trace(lane, op, issued, told.code == 0 && own_code == 0 && !failure ? Status::kOk : Status::kFailed);
    }
    if (op.records) {  // also when the body failed: something may be under way
        worker.python.release();
        told.add(record_event(lane, op));
    }
    const bool failed = failure || own_code != 0;
    if (failed)
        lane.program->fail(run, op.op, lane.step, own_code, std::move(failure));
    if (told.code != 0 && (!failed || !told.ended))
        fail(worker, lane, op, told);
    return !failed && told.code == 0;
}

Progress run_device_batch(Worker& worker, Lane& lane, const Batch& batch) {
    const Run& run = *lane.run;
    DevicePlan& devices = *run.plan->device;
    const std::uint32_t* const segment_at = devices.segment_at.data() + lane.order->first;
    for (std::uint32_t at = lane.position; at < batch.end;) {
        Sequence* sequence = nullptr;
        if (segment_at[at] != kNoSegment && !run.trace)  // in traced runs each has times of its own
            sequence = sequence_of(worker, lane, devices.segments[segment_at[at]]);
        bool good = false;
        if (sequence != nullptr)
            at = launch(worker, lane, devices.segments[segment_at[at]], *sequence, good);
        else
            good = issue(worker, lane, at++, true);
        if (!good) {
            lane.position = at;
            return run_batch_slowly(worker, lane, batch);
        }
        if (worker.attention() && at < batch.end)
            return stand_before(lane, at, Progress::kYielded);
    }
    return Progress::kDone;
}

bool device_settled(Worker& worker, Lane& lane) {
    Program& program = *lane.program;
    Run& run = *lane.run;
    DevicePlan& devices = *run.plan->device;
    worker.python.release();
    if (lane.step != run.first.load(std::memory_order_relaxed) && !fences_settled(worker, lane))
        return false;
    const std::int32_t stream = devices.stream_of_lane[lane.index];
    if (stream < 0 || devices.traced[static_cast<std::size_t>(stream)].empty())
        return true;
    Signal& in_flight_queue = *program.in_flight_queues[static_cast<std::size_t>(stream)];
    if (!in_flight_queue.timeline.reached(in_flight_queue.armed)) {
        lane.block(in_flight_queue.timeline, in_flight_queue.armed);
        return false;
    }
    complete_records(lane, devices.traced[static_cast<std::size_t>(stream)]);
    return true;
}

}  // namespace ostinato
