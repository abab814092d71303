// What one would write by hand in C with CUDA: launches of an executable graph, launches of kernels, and steps with
// work of the host between. Functions of the driver are found at run time; no header of CUDA is needed.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#include <cmath>

#include "ostinato.h"

namespace {

struct NodeParameters {  // CUDA_KERNEL_NODE_PARAMS_v2
    void* function;
    unsigned grid[3], block[3], shared_bytes;
    void** parameters;
    void** extra;
    void* kernel;
    void* context;
};

struct Driver {
    int (*device_get)(int*, int);
    int (*retain)(void**, int);
    int (*set_context)(void*);
    int (*load)(void**, const void*);
    int (*function)(void**, void*, const char*);
    int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
    int (*graph_create)(void**, unsigned);
    int (*graph_add)(void**, void*, void* const*, size_t, const NodeParameters*);
    int (*instantiate)(void**, void*, unsigned long long);
    int (*graph_launch)(void*, void*);
    int (*copy)(uint64_t, uint64_t, size_t, void*);
    int (*synchronize)(void*);
} driver;

void* context = nullptr;

template <typename Function>
bool find(void* library, Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

}  // namespace

extern "C" {

// A kernel and its arguments; one block.
struct Launch {
    void* function;
    int64_t threads;
    uint64_t out, a, b, c;
    int64_t count, rounds;
};

int32_t cuda_load(int32_t ordinal) {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr || !find(library, driver.device_get, "cuDeviceGet") ||
        !find(library, driver.retain, "cuDevicePrimaryCtxRetain") ||
        !find(library, driver.set_context, "cuCtxSetCurrent") || !find(library, driver.load, "cuModuleLoadData") ||
        !find(library, driver.function, "cuModuleGetFunction") || !find(library, driver.launch, "cuLaunchKernel") ||
        !find(library, driver.graph_create, "cuGraphCreate") ||
        !find(library, driver.graph_add, "cuGraphAddKernelNode_v2") ||
        !find(library, driver.instantiate, "cuGraphInstantiateWithFlags") ||
        !find(library, driver.graph_launch, "cuGraphLaunch") || !find(library, driver.copy, "cuMemcpyAsync") ||
        !find(library, driver.synchronize, "cuStreamSynchronize"))
        return -1;
    int device = 0;
    if (const int code = driver.device_get(&device, ordinal))
        return code;
    if (const int code = driver.retain(&context, device))
        return code;
    return driver.set_context(context);
}

int32_t cuda_function(const char* image, const char* name, void** function) {
    void* module = nullptr;
    if (const int code = driver.load(&module, image))
        return code;
    return driver.function(function, module, name);
}

int32_t cuda_launch(void* stream, Launch* launch) {
    thread_local bool entered = false;
    if (!entered) {
        if (const int code = driver.set_context(context))
            return code;
        entered = true;
    }
    void* parameters[] = {&launch->out, &launch->a, &launch->b, &launch->c, &launch->count, &launch->rounds};
    return driver.launch(launch->function, 1, 1, 1, static_cast<unsigned>(launch->threads), 1, 1, 0, stream, parameters,
                         nullptr);
}

// Node i depends on those of `sources` from ends[i - 1] to ends[i].
int32_t cuda_graph(Launch* launches, int64_t count, const int32_t* sources, const int32_t* ends, void** exec) {
    void* graph = nullptr;
    if (const int code = driver.graph_create(&graph, 0))
        return code;
    void** const nodes = new void*[static_cast<size_t>(count)];
    int code = 0;
    for (int64_t at = 0; code == 0 && at < count; ++at) {
        Launch& launch = launches[at];
        void* parameters[] = {&launch.out, &launch.a, &launch.b, &launch.c, &launch.count, &launch.rounds};
        NodeParameters node{};
        node.function = launch.function;
        node.grid[0] = node.grid[1] = node.grid[2] = node.block[1] = node.block[2] = 1;
        node.block[0] = static_cast<unsigned>(launch.threads);
        node.parameters = parameters;
        void* needs[8];
        size_t needed = 0;
        for (int32_t each = at == 0 ? 0 : ends[at - 1]; each < ends[at]; ++each)
            needs[needed++] = nodes[sources[each]];
        code = driver.graph_add(&nodes[at], graph, needs, needed, &node);
    }
    delete[] nodes;
    return code != 0 ? code : driver.instantiate(exec, graph, 0);
}

int32_t cuda_graph_loop(void* exec, void* stream, int64_t steps) {
    for (int64_t step = 0; step < steps; ++step)
        if (const int code = driver.graph_launch(exec, stream))
            return code;
    return driver.synchronize(stream);
}

int32_t cuda_launch_loop(Launch* launches, int64_t count, void* stream, int64_t steps) {
    for (int64_t step = 0; step < steps; ++step)
        for (int64_t at = 0; at < count; ++at)
            if (const int code = cuda_launch(stream, &launches[at]))
                return code;
    return driver.synchronize(stream);
}

int32_t cuda_task(const ost_call* call) {
    return cuda_launch(reinterpret_cast<void*>(call->scalars[0].i64), static_cast<Launch*>(call->user));
}

// Work of the host: so many rounds over an array.
void cuda_host_work(float* out, const float* in, int64_t count, int64_t rounds) {
    for (int64_t at = 0; at < count; ++at) {
        float value = in[at];
        for (int64_t round = 0; round < rounds; ++round)
            value = std::fma(value, 0.5F, 0.5F);
        out[at] = value;
    }
}

int32_t cuda_host_task(const ost_call* call) {
    cuda_host_work(static_cast<float*>(call->arrays[1].data), static_cast<const float*>(call->arrays[0].data),
                   call->arrays[0].shape[0], *static_cast<const int64_t*>(call->user));
    return 0;
}

// Each step: the host makes `input`, the device works on it, and the host on what comes out.
int32_t cuda_mixed_loop(void* exec, void* stream, float* state, float* input, float* output, uint64_t on_device_in,
                        uint64_t on_device_out, int64_t count, int64_t rounds, int64_t steps) {
    const auto bytes = static_cast<size_t>(count) * sizeof(float);
    for (int64_t step = 0; step < steps; ++step) {
        cuda_host_work(input, state, count, rounds);
        int code = driver.copy(on_device_in, reinterpret_cast<uint64_t>(input), bytes, stream);
        if (code == 0)
            code = driver.graph_launch(exec, stream);
        if (code == 0)
            code = driver.copy(reinterpret_cast<uint64_t>(output), on_device_out, bytes, stream);
        if (code == 0)
            code = driver.synchronize(stream);
        if (code != 0)
            return code;
        cuda_host_work(output, output, count, rounds);
    }
    return 0;
}

}  // extern "C"
