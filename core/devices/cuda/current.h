// What the parts of CUDA's implementation share.
#pragma once

#include <cstdint>

#include "devices/cuda/device.h"

namespace ostinato {

namespace cuda {

inline Stream stream_of(StreamHandle handle) { return reinterpret_cast<Stream>(handle); }
inline StreamHandle handle_of(Stream stream) { return reinterpret_cast<StreamHandle>(stream); }

}  // namespace cuda

// Makes the device's context the calling thread's for a scope.
class CudaDevice::Current {
public:
    explicit Current(CudaDevice& device) : api_(*device.api_) {
        cuda::Context context = nullptr;
        if ((code = device.enter(context)) != cuda::kSuccess)
            return;
        cuda::Context before = nullptr;
        code = api_.context_get(&before);
        if (code != cuda::kSuccess || before == context)
            return;
        if (before == nullptr) {
            code = api_.context_set(context);
        } else {
            code = api_.context_push(context);
            pushed_ = code == cuda::kSuccess;
        }
    }
    ~Current() {
        cuda::Context context = nullptr;
        if (pushed_)
            api_.context_pop(&context);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

    std::int32_t code = cuda::kSuccess;  // else nothing may be called

private:
    const cuda::Api& api_;
    bool pushed_ = false;
};

}  // namespace ostinato
