#include "devices/opencl/device.h"

#include "devices/opencl/recording.h"

namespace ostinato {

using namespace opencl;

namespace {

Queue queue_of(StreamHandle stream) { return reinterpret_cast<Queue>(stream); }

bool running(const Api& api, Event event) {
    Int status = kSuccess;
    return api.GetEventInfo(event, kEventExecutionStatus, sizeof(status), &status, nullptr) == kSuccess &&
           status > kComplete;
}

}  // namespace

OpenCLDevice::OpenCLDevice(const std::string& library, std::uint64_t context, std::uint64_t device)
    : api_(Api::of(library)), context_(reinterpret_cast<Context>(context)), device_(reinterpret_cast<DeviceId>(device)),
      transfers_(api_, context_, device_), watcher_(std::make_unique<Watcher>(api_)) {
    api_.RetainContext(context_);
}

OpenCLDevice::~OpenCLDevice() {
    if (made_.forked())
        static_cast<void>(watcher_.release());  // its thread is the parent's
    closed_.clear();
    api_.ReleaseContext(context_);
}

std::int32_t OpenCLDevice::open(StreamHandle& stream) {
    Int code = kSuccess;
    const Queue queue = api_.CreateCommandQueue(context_, device_, 0, &code);
    if (code != kSuccess)
        return code;
    stream = reinterpret_cast<StreamHandle>(queue);
    const std::lock_guard lock(mutex_);
    release_those_done();
    open_.insert(queue);
    return kSuccess;
}

void OpenCLDevice::close(StreamHandle stream) {
    const Queue queue = queue_of(stream);
    Event event = nullptr;
    const Int code = api_.EnqueueMarkerWithWaitList(queue, 0, nullptr, &event);
    api_.Flush(queue);
    const std::lock_guard lock(mutex_);
    release_those_done();
    open_.erase(queue);
    OwnedQueue owned{api_, queue};
    if (code == kSuccess)
        closed_.push_back({std::move(owned), {api_, event}});
}

void OpenCLDevice::release_those_done() {
    std::erase_if(closed_, [this](const Closed& closed) { return !running(api_, closed.end.get()); });
}

std::int32_t OpenCLDevice::finish() {
    std::vector<Queue> queues;
    {
        const std::lock_guard lock(mutex_);
        queues.assign(open_.begin(), open_.end());
        for (const Closed& closed : closed_)
            queues.push_back(closed.queue.get());
        for (const Queue queue : queues)
            api_.RetainCommandQueue(queue);
    }
    Int first = kSuccess;
    for (const Queue queue : queues) {
        const Int code = api_.Finish(queue);
        first = first != kSuccess ? first : code;
        api_.ReleaseCommandQueue(queue);
    }
    return first;
}

std::int32_t OpenCLDevice::finish(StreamHandle stream) { return api_.Finish(queue_of(stream)); }

std::int32_t OpenCLDevice::copy(StreamHandle stream, const Transfer& transfer) {
    return transfers_.copy(queue_of(stream), transfer);
}

std::int32_t OpenCLDevice::fill(StreamHandle stream, const Pattern& pattern) {
    return transfers_.fill(queue_of(stream), pattern);
}

std::int32_t OpenCLDevice::record(StreamHandle stream, std::unique_ptr<DeviceEvent>& recorded) {
    Event event = nullptr;
    Int code = api_.EnqueueMarkerWithWaitList(queue_of(stream), 0, nullptr, &event);
    if (code != kSuccess)
        return code;
    if (recorded == nullptr)
        recorded = std::make_unique<OpenCLEvent>();
    static_cast<OpenCLEvent&>(*recorded).event = {api_, event};
    // Other queues and callbacks may wait for it from now on: OpenCL need not begin what was not flushed.
    return api_.Flush(queue_of(stream));
}

std::int32_t OpenCLDevice::wait(StreamHandle stream, const DeviceEvent& recorded) {
    const Event event = static_cast<const OpenCLEvent&>(recorded).event.get();
    return api_.EnqueueBarrierWithWaitList(queue_of(stream), 1, &event, nullptr);
}

void OpenCLDevice::notify(const DeviceEvent& recorded, Done done, void* with) {
    const Event event = static_cast<const OpenCLEvent&>(recorded).event.get();
    if (running(api_, event) && watcher_->watch(event, done, with))
        return;
    // It has ended; or the driver cannot say when it does, and this waits for it.
    const Int code = api_.WaitForEvents(1, &event);
    Int status = kSuccess;
    api_.GetEventInfo(event, kEventExecutionStatus, sizeof(status), &status, nullptr);
    if (status < 0)
        wait_for_queue_of(api_, event);
    done(with, status < 0 ? status : code);
}

std::unique_ptr<Sequence> OpenCLDevice::capture(StreamHandle stream, const Parts& parts, std::int32_t& code) {
    code = kSuccess;
    std::call_once(probed_, [this] { records_ = can_record(api_, context_, device_); });
    if (!records_)
        return nullptr;
    const auto enqueue = [&parts](StreamHandle recording) { return parts.in_order(recording); };
    return record_sequence(api_, context_, queue_of(stream), enqueue, code);
}

// Whether it takes work: a device that is lost refuses it.
bool OpenCLDevice::works() const {
    Int code = kSuccess;
    const OwnedQueue queue{api_, api_.CreateCommandQueue(context_, device_, 0, &code)};
    return code == kSuccess && api_.EnqueueMarkerWithWaitList(queue.get(), 0, nullptr, nullptr) == kSuccess;
}

Device::Diagnosis OpenCLDevice::diagnose(std::int32_t code) const {
    if (code == kSuccess)
        return {"no error", true};
    if (const std::string refused = refusal(code); !refused.empty())
        return {refused, true};
    return {name_of(code), code != kDeviceNotAvailable && works()};
}

}  // namespace ostinato
