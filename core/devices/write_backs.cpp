// The end of a run on devices: what they hold and host arrays do not is copied back. All lanes have left the run, and
// the next one waits for its end, so that streams and flags are the last lane's alone.
#include "devices/device_ops.h"
#include "program/program.h"
#include "python/device.h"

namespace ostinato {

namespace {

void fail(Worker& worker, Lane& lane, std::uint32_t op, std::uint32_t stream, const Told& told) {
    const Stream& on = *lane.run->plan->device->streams[stream];
    lane.program->fail(*lane.run, op, lane.step - 1, 0, device_error(worker, on, told));
}

}  // namespace

bool write_back(Worker& worker, Lane& lane) {
    DevicePlan& devices = *lane.run->plan->device;
    if (devices.write_backs.empty())
        return false;
    std::vector<std::uint32_t> last(devices.streams.size());  // by stream: one more than the operation that wrote
    worker.python.release();
    for (const WriteBack& entry : devices.write_backs) {
        const std::uint32_t writer = devices.dirty[entry.flag].exchange(0, std::memory_order_relaxed);
        if (writer == 0)
            continue;
        Stream& stream = *devices.streams[entry.stream];
        if (const std::int32_t code = stream.device->copy(stream.handle, entry.transfer); code != 0)
            fail(worker, lane, writer - 1, entry.stream, {code});
        stream.copies.add(1);
        stream.bytes.add(static_cast<std::uint64_t>(entry.transfer.bytes));
        if (lane.run->trace)
            lane.run->trace->written_back += static_cast<std::uint64_t>(entry.transfer.bytes);
        last[entry.stream] = writer;
    }
    for (std::uint32_t i = 0; i < last.size(); ++i) {
        if (last[i] == 0)
            continue;
        Stream& stream = *devices.streams[i];
        auto callback = std::make_unique<DeviceCallback>();
        callback->op = last[i] - 1;
        if (const std::int32_t code = stream.device->record(stream.handle, callback->event); code != 0) {
            fail(worker, lane, callback->op, i, wait_here(stream, *lane.program->in_flight_queues[i], code));
            continue;
        }
        devices.writing_back.emplace_back(i, std::move(callback));
        devices.writing_back.back().second->arm(*stream.device, lane.program->in_flight_queues[i]);
    }
    return !devices.writing_back.empty();
}

void tell_untold(Worker& worker, Lane& lane) {
    for (std::uint32_t i = 0; i < lane.program->in_flight_queues.size(); ++i) {
        InFlightQueue& in_flight_queue = *lane.program->in_flight_queues[i];
        std::vector<InFlightQueue::Failed> failed;
        {
            const std::lock_guard<std::mutex> lock(in_flight_queue.mutex);
            failed.swap(in_flight_queue.failed);
        }
        const Stream& on = *lane.run->plan->device->streams[i];
        for (const InFlightQueue::Failed& entry : failed) {
            if (!entry.told)
                lane.program->fail(*lane.run, entry.op, entry.step, 0, device_error(worker, on, {entry.code}));
        }
    }
}

bool written_back(Worker& worker, Lane& lane) {
    DevicePlan& devices = *lane.run->plan->device;
    worker.python.release();
    for (const auto& [stream, callback] : devices.writing_back) {
        Signal& in_flight_queue = *lane.program->in_flight_queues[stream];
        if (!in_flight_queue.timeline.reached(in_flight_queue.armed)) {
            lane.block(in_flight_queue.timeline, in_flight_queue.armed);
            return false;
        }
    }
    for (const auto& [stream, callback] : devices.writing_back) {
        if (callback->code != 0)
            fail(worker, lane, callback->op, stream, {callback->code});
    }
    devices.writing_back.clear();
    return true;
}

}  // namespace ostinato
