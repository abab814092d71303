// What one would write by hand in C: a loop that enqueues kernels, and clFinish. And the same enqueue as a native task.
// The entry points are those of the loader that pyopencl uses; no header of OpenCL is needed.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#include "ostinato.h"

namespace {

using Enqueue = int32_t (*)(void*, void*, uint32_t, const size_t*, const size_t*, const size_t*, uint32_t, const void*,
                            void*);
using Finish = int32_t (*)(void*);

Enqueue enqueue_kernel = nullptr;
Finish finish = nullptr;

}  // namespace

extern "C" {

// A kernel with its arguments set, and how many work items it has, all in one group.
struct Launch {
    void* kernel;
    size_t size;
};

int32_t opencl_load(const char* library) {
    void* const handle = dlopen(library, RTLD_NOW);
    if (handle == nullptr)
        return 1;
    enqueue_kernel = reinterpret_cast<Enqueue>(dlsym(handle, "clEnqueueNDRangeKernel"));
    finish = reinterpret_cast<Finish>(dlsym(handle, "clFinish"));
    return enqueue_kernel == nullptr || finish == nullptr;
}

int32_t opencl_loop(void* queue, const Launch* launches, int64_t count, int64_t steps) {
    for (int64_t step = 0; step < steps; ++step) {
        for (int64_t i = 0; i < count; ++i) {
            const size_t size = launches[i].size;
            if (const int32_t code =
                    enqueue_kernel(queue, launches[i].kernel, 1, nullptr, &size, &size, 0, nullptr, nullptr))
                return code;
        }
    }
    return finish(queue);
}

int32_t opencl_task(const ost_call* call) {
    const auto* launch = static_cast<const Launch*>(call->user);
    void* const queue = reinterpret_cast<void*>(call->scalars[0].i64);
    return enqueue_kernel(queue, launch->kernel, 1, nullptr, &launch->size, &launch->size, 0, nullptr, nullptr);
}

}  // extern "C"
