#include "devices/cuda/api.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>

namespace ostinato::cuda {

namespace {

using Find = Result (*)(const char* name, void** function, int version, std::uint64_t flags, int* status);

constexpr std::uint64_t kLegacyStream = 1;  // as without --default-stream per-thread

// Finds functions: by the name and the version of CUDA in which their form came, or, before CUDA 12, by their symbols.
class Finder {
public:
    explicit Finder(void* library)
        : library_(library), find_(reinterpret_cast<Find>(dlsym(library, "cuGetProcAddress_v2"))) {}

    template <typename Function>
    void operator()(Function& function, const char* name, int version, const char* symbol = nullptr) {
        optional(function, name, version, symbol);
        if (function == nullptr && missing_.empty())
            missing_ = symbol != nullptr ? symbol : name;
    }

    template <typename Function>
    void optional(Function& function, const char* name, int version, const char* symbol = nullptr) {
        void* found = nullptr;
        int status = 0;
        if (find_ == nullptr || find_(name, &found, version, kLegacyStream, &status) != kSuccess || status != 0)
            found = nullptr;
        if (found == nullptr)
            found = dlsym(library_, symbol != nullptr ? symbol : name);
        function = reinterpret_cast<Function>(found);
    }

    const std::string& missing() const { return missing_; }

private:
    void* library_;
    Find find_;
    std::string missing_;
};

std::string find_all(void* library, Api& api) {
    Finder find(library);
    find(api.init, "cuInit", 2000);
    find(api.error_name, "cuGetErrorName", 6000);
    find(api.error_string, "cuGetErrorString", 6000);
    find(api.driver_version, "cuDriverGetVersion", 2020);
    find(api.device_count, "cuDeviceGetCount", 2000);
    find(api.device_get, "cuDeviceGet", 2000);
    find(api.device_name, "cuDeviceGetName", 2000);
    find.optional(api.device_uuid, "cuDeviceGetUuid", 9020);
    find(api.device_uuid_v2, "cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2");
    find(api.primary_retain, "cuDevicePrimaryCtxRetain", 7000);
    find(api.context_get, "cuCtxGetCurrent", 4000);
    find(api.context_set, "cuCtxSetCurrent", 4000);
    find(api.context_push, "cuCtxPushCurrent", 4000, "cuCtxPushCurrent_v2");
    find(api.context_pop, "cuCtxPopCurrent", 4000, "cuCtxPopCurrent_v2");
    find(api.context_synchronize, "cuCtxSynchronize", 2000);
    find(api.allocate, "cuMemAlloc", 3020, "cuMemAlloc_v2");
    find(api.free, "cuMemFree", 3020, "cuMemFree_v2");
    find(api.memory_info, "cuMemGetInfo", 3020, "cuMemGetInfo_v2");
    find(api.host_register, "cuMemHostRegister", 6050, "cuMemHostRegister_v2");
    find(api.host_unregister, "cuMemHostUnregister", 4000);
    find(api.pointer_attribute, "cuPointerGetAttribute", 4000);
    find(api.copy, "cuMemcpyAsync", 4000);
    find(api.copy_2d, "cuMemcpy2DAsync", 3020, "cuMemcpy2DAsync_v2");
    find(api.copy_3d, "cuMemcpy3DAsync", 3020, "cuMemcpy3DAsync_v2");
    find(api.fill_8, "cuMemsetD8Async", 3020);
    find(api.fill_16, "cuMemsetD16Async", 3020);
    find(api.fill_32, "cuMemsetD32Async", 3020);
    find(api.fill_2d_8, "cuMemsetD2D8Async", 3020);
    find(api.fill_2d_16, "cuMemsetD2D16Async", 3020);
    find(api.fill_2d_32, "cuMemsetD2D32Async", 3020);
    find(api.stream_create, "cuStreamCreate", 2000);
    find(api.stream_destroy, "cuStreamDestroy", 4000, "cuStreamDestroy_v2");
    find(api.stream_synchronize, "cuStreamSynchronize", 2000);
    find(api.stream_wait, "cuStreamWaitEvent", 3020);
    find(api.event_create, "cuEventCreate", 2000);
    find(api.event_record, "cuEventRecord", 2000);
    find(api.event_query, "cuEventQuery", 2000);
    find(api.event_synchronize, "cuEventSynchronize", 2000);
    find(api.event_destroy, "cuEventDestroy", 4000, "cuEventDestroy_v2");
    find(api.capture_mode, "cuThreadExchangeStreamCaptureMode", 10010);
    find(api.capture_begin, "cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2");
    find(api.capture_end, "cuStreamEndCapture", 10000);
    find(api.graph_nodes, "cuGraphGetNodes", 10000);
    find(api.graph_instantiate, "cuGraphInstantiateWithFlags", 11040);
    find.optional(api.graph_update, "cuGraphExecUpdate", 12000, "cuGraphExecUpdate_v2");
    find(api.graph_launch, "cuGraphLaunch", 10000);
    find(api.graph_destroy, "cuGraphDestroy", 10000);
    find(api.exec_destroy, "cuGraphExecDestroy", 10000);
    return find.missing();
}

}  // namespace

std::shared_ptr<const Api> Api::load(const std::string& library, bool& broken, std::string& why) {
    broken = false;
    // Never closed: its threads, and whoever else uses it, live as long as the process.
    void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
        const char* const error = dlerror();
        why = error != nullptr ? error : "cannot be opened";
        // What was searched for in vain is named as it was given; what was found, by its path.
        const bool given_a_path = library.find('/') != std::string::npos;
        broken = given_a_path ? access(library.c_str(), F_OK) == 0 : why.rfind(library + ": ", 0) != 0;
        return nullptr;
    }
    const auto api = std::make_shared<Api>();
    if (const std::string missing = find_all(opened, *api); !missing.empty()) {
        broken = true;
        why = library + " has no " + missing + "; a driver of CUDA 11.4 or newer is needed";
        return nullptr;
    }
    if (const Result code = api->init(0); code != kSuccess) {
        broken = code != kNoDevice;
        why = "cuInit: " + api->words(code);
        return nullptr;
    }
    return api;
}

std::string Api::words(Result code) const {
    const char* name = nullptr;
    const char* text = nullptr;
    if (error_name(code, &name) != kSuccess || name == nullptr)
        return "CUDA error " + std::to_string(code);
    std::string words = std::string(name) + " (" + std::to_string(code) + ")";
    if (error_string(code, &text) == kSuccess && text != nullptr)
        words += std::string(": ") + text;
    return words;
}

}  // namespace ostinato::cuda
