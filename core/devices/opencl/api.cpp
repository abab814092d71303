#include "devices/opencl/api.h"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <stdexcept>

namespace ostinato::opencl {

namespace {

struct Named {
    Int code;
    const char* name;
};

constexpr Named kNames[] = {
    {-1, "CL_DEVICE_NOT_FOUND"},
    {-2, "CL_DEVICE_NOT_AVAILABLE"},
    {-3, "CL_COMPILER_NOT_AVAILABLE"},
    {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {-5, "CL_OUT_OF_RESOURCES"},
    {-6, "CL_OUT_OF_HOST_MEMORY"},
    {-7, "CL_PROFILING_INFO_NOT_AVAILABLE"},
    {-8, "CL_MEM_COPY_OVERLAP"},
    {-11, "CL_BUILD_PROGRAM_FAILURE"},
    {-12, "CL_MAP_FAILURE"},
    {-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET"},
    {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
    {-30, "CL_INVALID_VALUE"},
    {-33, "CL_INVALID_DEVICE"},
    {-34, "CL_INVALID_CONTEXT"},
    {-35, "CL_INVALID_QUEUE_PROPERTIES"},
    {-36, "CL_INVALID_COMMAND_QUEUE"},
    {-37, "CL_INVALID_HOST_PTR"},
    {-38, "CL_INVALID_MEM_OBJECT"},
    {-44, "CL_INVALID_PROGRAM"},
    {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
    {-46, "CL_INVALID_KERNEL_NAME"},
    {-48, "CL_INVALID_KERNEL"},
    {-49, "CL_INVALID_ARG_INDEX"},
    {-50, "CL_INVALID_ARG_VALUE"},
    {-51, "CL_INVALID_ARG_SIZE"},
    {-52, "CL_INVALID_KERNEL_ARGS"},
    {-53, "CL_INVALID_WORK_DIMENSION"},
    {-54, "CL_INVALID_WORK_GROUP_SIZE"},
    {-55, "CL_INVALID_WORK_ITEM_SIZE"},
    {-56, "CL_INVALID_GLOBAL_OFFSET"},
    {-57, "CL_INVALID_EVENT_WAIT_LIST"},
    {-58, "CL_INVALID_EVENT"},
    {-59, "CL_INVALID_OPERATION"},
    {-61, "CL_INVALID_BUFFER_SIZE"},
    {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
    {-9999, "illegal read or write of a buffer"},  // NVIDIA's driver
};

template <typename Function>
void find(void* library, const char* name, Function*& entry) {
    entry = reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

const Api& Api::of(const std::string& library) {
    static std::mutex mutex;
    static auto& loaded = *new std::map<std::string, Api>;
    const std::lock_guard lock(mutex);
    if (const auto found = loaded.find(library); found != loaded.end())
        return found->second;
    // A look-up in a library also searches those that it is linked with.
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr)
        throw std::runtime_error("cannot load " + library);
    Api api;
#define OSTINATO_FIND(name, result, parameters) \
    find(handle, "cl" #name, api.name);         \
    if (api.name == nullptr)                    \
        throw std::runtime_error("the OpenCL of " + library + " lacks cl" #name);
#define OSTINATO_FIND_LATER(name, result, parameters) find(handle, "cl" #name, api.name);
    OSTINATO_OPENCL_ENTRIES(OSTINATO_FIND)
    OSTINATO_OPENCL_LATER_ENTRIES(OSTINATO_FIND_LATER)
#undef OSTINATO_FIND
#undef OSTINATO_FIND_LATER
    return loaded.emplace(library, api).first->second;
}

std::string name_of(Int code) {
    for (const Named& named : kNames)
        if (named.code == code)
            return named.name;
    return "OpenCL error " + std::to_string(code);
}

}  // namespace ostinato::opencl
