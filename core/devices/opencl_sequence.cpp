#include "devices/opencl_sequence.h"

namespace ostinato::opencl {

Int Launch::enqueue(const Api& api, Queue queue) const {
    return api.EnqueueNDRangeKernel(queue, kernel.get(), dimensions, has_offset ? offset.data() : nullptr,
                                    global.data(), has_local ? local.data() : nullptr, 0, nullptr, nullptr);
}

Int CopyBytes::enqueue(const Api& api, Queue queue) const {
    if (!source)
        return api.EnqueueWriteBuffer(queue, target.get(), kFalse, target_offset, bytes, host, 0, nullptr, nullptr);
    if (!target)
        return api.EnqueueReadBuffer(queue, source.get(), kFalse, source_offset, bytes, host, 0, nullptr, nullptr);
    return api.EnqueueCopyBuffer(queue, source.get(), target.get(), source_offset, target_offset, bytes, 0, nullptr,
                                 nullptr);
}

Int CopyRectangle::enqueue(const Api& api, Queue queue) const {
    if (!source)
        return api.EnqueueWriteBufferRect(queue, target.get(), kFalse, target_origin.data(), source_origin.data(),
                                          region.data(), target_row, target_slice, source_row, source_slice, host, 0,
                                          nullptr, nullptr);
    if (!target)
        return api.EnqueueReadBufferRect(queue, source.get(), kFalse, source_origin.data(), target_origin.data(),
                                         region.data(), source_row, source_slice, target_row, target_slice, host, 0,
                                         nullptr, nullptr);
    return api.EnqueueCopyBufferRect(queue, source.get(), target.get(), source_origin.data(), target_origin.data(),
                                     region.data(), source_row, source_slice, target_row, target_slice, 0, nullptr,
                                     nullptr);
}

Int FillBytes::enqueue(const Api& api, Queue queue) const {
    return api.EnqueueFillBuffer(queue, target.get(), pattern.data(), pattern.size(), offset, bytes, 0, nullptr,
                                 nullptr);
}

Int CopyShared::enqueue(const Api& api, Queue queue) const {
    return api.EnqueueSVMMemcpy(queue, kFalse, target, source, bytes, 0, nullptr, nullptr);
}

Int FillShared::enqueue(const Api& api, Queue queue) const {
    return api.EnqueueSVMMemFill(queue, target, pattern.data(), pattern.size(), bytes, 0, nullptr, nullptr);
}

std::int32_t Commands::launch(StreamHandle stream) {
    const auto queue = reinterpret_cast<Queue>(stream);
    for (const Command& command : commands_) {
        const Int code = std::visit([&](const auto& each) { return each.enqueue(api_, queue); }, command);
        if (code != kSuccess)
            return code;
    }
    return kSuccess;
}

}  // namespace ostinato::opencl
