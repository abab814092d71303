#include "devices/opencl/sequence.h"

namespace ostinato::opencl {

Int Launch::enqueue(const Api& api, Queue queue, Event* event) const {
    return api.EnqueueNDRangeKernel(queue, kernel.get(), dimensions, has_offset ? offset.data() : nullptr,
                                    global.data(), has_local ? local.data() : nullptr, 0, nullptr, event);
}

Int CopyBytes::enqueue(const Api& api, Queue queue, Event* event) const {
    if (!source)
        return api.EnqueueWriteBuffer(queue, target.get(), kFalse, target_offset, bytes, host, 0, nullptr, event);
    if (!target)
        return api.EnqueueReadBuffer(queue, source.get(), kFalse, source_offset, bytes, host, 0, nullptr, event);
    return api.EnqueueCopyBuffer(queue, source.get(), target.get(), source_offset, target_offset, bytes, 0, nullptr,
                                 event);
}

Int CopyRectangle::enqueue(const Api& api, Queue queue, Event* event) const {
    if (!source)
        return api.EnqueueWriteBufferRect(queue, target.get(), kFalse, target_origin.data(), source_origin.data(),
                                          region.data(), target_row, target_slice, source_row, source_slice, host, 0,
                                          nullptr, event);
    if (!target)
        return api.EnqueueReadBufferRect(queue, source.get(), kFalse, source_origin.data(), target_origin.data(),
                                         region.data(), source_row, source_slice, target_row, target_slice, host, 0,
                                         nullptr, event);
    return api.EnqueueCopyBufferRect(queue, source.get(), target.get(), source_origin.data(), target_origin.data(),
                                     region.data(), source_row, source_slice, target_row, target_slice, 0, nullptr,
                                     event);
}

Int FillBytes::enqueue(const Api& api, Queue queue, Event* event) const {
    return api.EnqueueFillBuffer(queue, target.get(), pattern.data(), pattern.size(), offset, bytes, 0, nullptr, event);
}

Int CopyShared::enqueue(const Api& api, Queue queue, Event* event) const {
    return api.EnqueueSVMMemcpy(queue, kFalse, target, source, bytes, 0, nullptr, event);
}

Int FillShared::enqueue(const Api& api, Queue queue, Event* event) const {
    return api.EnqueueSVMMemFill(queue, target, pattern.data(), pattern.size(), bytes, 0, nullptr, event);
}

std::int32_t Commands::launch(StreamHandle stream) {
    queue_ = reinterpret_cast<Queue>(stream);
    last_.reset();
    Event event = nullptr;
    for (const Command& command : commands_) {
        // Drivers make an event for each command, but a marker is one command more.
        Event* const wanted = &command == &commands_.back() ? &event : nullptr;
        const Int code = std::visit([&](const auto& each) { return each.enqueue(api_, queue_, wanted); }, command);
        if (code != kSuccess)
            return code;
    }
    if (event != nullptr)
        last_ = {api_, event};
    return kSuccess;
}

bool Commands::end(std::unique_ptr<DeviceEvent>& recorded) {
    // Other queues and callbacks may wait for it from now on: OpenCL need not begin what was not flushed.
    if (!last_ || api_.Flush(queue_) != kSuccess)
        return false;
    if (recorded == nullptr)
        recorded = std::make_unique<OpenCLEvent>();
    static_cast<OpenCLEvent&>(*recorded).event = std::move(last_);
    return true;
}

}  // namespace ostinato::opencl
