// The part of CUDA's driver API that we use, declared here, so that building needs nothing of CUDA, and found at run
// time. tests/unit/devices/cuda/declarations.cpp compares it with CUDA's own header where there is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ostinato::cuda {

using Result = int;                  // CUresult
using Number = int;                  // CUdevice
using Pointer = unsigned long long;  // CUdeviceptr
using Context = struct ContextOfCuda*;
using Stream = struct StreamOfCuda*;
using Event = struct EventOfCuda*;
using Graph = struct GraphOfCuda*;
using GraphNode = struct GraphNodeOfCuda*;
using GraphExec = struct GraphExecOfCuda*;
using Array = struct ArrayOfCuda*;

constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100,
                 kInvalidContext = 201, kOperatingSystem = 304, kNotFound = 500, kNotReady = 600,
                 kAlreadyRegistered = 712, kCaptureUnsupported = 900, kCaptureInvalidated = 901,
                 kCaptureWrongThread = 908, kExecUpdateFailure = 910;

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kRegisterPortable = 1;
constexpr unsigned kMemoryHost = 1, kMemoryDevice = 2;                               // CUmemorytype
constexpr int kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2;      // CUstreamCaptureMode
constexpr int kPointerOrdinal = 9, kPointerRangeStart = 11, kPointerRangeSize = 12;  // CUpointer_attribute

struct Uuid {
    unsigned char bytes[16];
};

struct Copy2D {  // CUDA_MEMCPY2D_v2
    std::size_t source_x, source_y;
    unsigned source_memory;
    const void* source_host;
    Pointer source_device;
    Array source_array;
    std::size_t source_pitch;
    std::size_t target_x, target_y;
    unsigned target_memory;
    void* target_host;
    Pointer target_device;
    Array target_array;
    std::size_t target_pitch;
    std::size_t width, height;
};

struct Copy3D {  // CUDA_MEMCPY3D_v2
    std::size_t source_x, source_y, source_z, source_lod;
    unsigned source_memory;
    const void* source_host;
    Pointer source_device;
    Array source_array;
    void* reserved0;
    std::size_t source_pitch, source_height;
    std::size_t target_x, target_y, target_z, target_lod;
    unsigned target_memory;
    void* target_host;
    Pointer target_device;
    Array target_array;
    void* reserved1;
    std::size_t target_pitch, target_height;
    std::size_t width, height, depth;
};

struct UpdateInfo {  // CUgraphExecUpdateResultInfo_v1
    int result;
    GraphNode error_node, error_from;
};

// The entry in `Api`, the driver's name for it, what its symbol has more than that, the version of CUDA in which its
// form came, and the parameters. Of the UUIDs, the first is the GPU's, the second that of its MIG instance, if it is
// one; capture_mode swaps the calling thread's.
#define OSTINATO_CUDA_ENTRIES(X)                                                                                       \
    X(init, "cuInit", "", 2000, (unsigned flags))                                                                      \
    X(error_name, "cuGetErrorName", "", 6000, (Result code, const char** name))                                        \
    X(error_string, "cuGetErrorString", "", 6000, (Result code, const char** text))                                    \
    X(driver_version, "cuDriverGetVersion", "", 2020, (int* version))                                                  \
    X(device_count, "cuDeviceGetCount", "", 2000, (int* count))                                                        \
    X(device_get, "cuDeviceGet", "", 2000, (Number * device, int ordinal))                                             \
    X(device_name, "cuDeviceGetName", "", 2000, (char* name, int length, Number device))                               \
    X(device_uuid_v2, "cuDeviceGetUuid", "_v2", 11040, (Uuid * uuid, Number device))                                   \
    X(primary_retain, "cuDevicePrimaryCtxRetain", "", 7000, (Context * context, Number device))                        \
    X(context_get, "cuCtxGetCurrent", "", 4000, (Context * context))                                                   \
    X(context_set, "cuCtxSetCurrent", "", 4000, (Context context))                                                     \
    X(context_push, "cuCtxPushCurrent", "_v2", 4000, (Context context))                                                \
    X(context_pop, "cuCtxPopCurrent", "_v2", 4000, (Context * context))                                                \
    X(context_synchronize, "cuCtxSynchronize", "", 2000, ())                                                           \
    X(allocate, "cuMemAlloc", "_v2", 3020, (Pointer * pointer, std::size_t bytes))                                     \
    X(free, "cuMemFree", "_v2", 3020, (Pointer pointer))                                                               \
    X(memory_info, "cuMemGetInfo", "_v2", 3020, (std::size_t* free, std::size_t* total))                               \
    X(host_register, "cuMemHostRegister", "_v2", 6050, (void* host, std::size_t bytes, unsigned flags))                \
    X(host_unregister, "cuMemHostUnregister", "", 4000, (void* host))                                                  \
    X(pointer_attribute, "cuPointerGetAttribute", "", 4000, (void* value, int attribute, Pointer pointer))             \
    X(copy, "cuMemcpyAsync", "", 4000, (Pointer target, Pointer source, std::size_t bytes, Stream stream))             \
    X(copy_2d, "cuMemcpy2DAsync", "_v2", 3020, (const Copy2D* copy, Stream stream))                                    \
    X(copy_3d, "cuMemcpy3DAsync", "_v2", 3020, (const Copy3D* copy, Stream stream))                                    \
    X(fill_8, "cuMemsetD8Async", "", 3020, (Pointer target, unsigned char value, std::size_t count, Stream stream))    \
    X(fill_16, "cuMemsetD16Async", "", 3020, (Pointer target, unsigned short value, std::size_t count, Stream stream)) \
    X(fill_32, "cuMemsetD32Async", "", 3020, (Pointer target, unsigned value, std::size_t count, Stream stream))       \
    X(fill_2d_8, "cuMemsetD2D8Async", "", 3020,                                                                        \
      (Pointer target, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height, Stream stream))  \
    X(fill_2d_16, "cuMemsetD2D16Async", "", 3020,                                                                      \
      (Pointer target, std::size_t pitch, unsigned short value, std::size_t width, std::size_t height, Stream stream)) \
    X(fill_2d_32, "cuMemsetD2D32Async", "", 3020,                                                                      \
      (Pointer target, std::size_t pitch, unsigned value, std::size_t width, std::size_t height, Stream stream))       \
    X(stream_create, "cuStreamCreate", "", 2000, (Stream * stream, unsigned flags))                                    \
    X(stream_destroy, "cuStreamDestroy", "_v2", 4000, (Stream stream))                                                 \
    X(stream_synchronize, "cuStreamSynchronize", "", 2000, (Stream stream))                                            \
    X(stream_wait, "cuStreamWaitEvent", "", 3020, (Stream stream, Event event, unsigned flags))                        \
    X(event_create, "cuEventCreate", "", 2000, (Event * event, unsigned flags))                                        \
    X(event_record, "cuEventRecord", "", 2000, (Event event, Stream stream))                                           \
    X(event_query, "cuEventQuery", "", 2000, (Event event))                                                            \
    X(event_synchronize, "cuEventSynchronize", "", 2000, (Event event))                                                \
    X(event_destroy, "cuEventDestroy", "_v2", 4000, (Event event))                                                     \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", "", 10010, (int* mode))                                       \
    X(capture_begin, "cuStreamBeginCapture", "_v2", 10010, (Stream stream, int mode))                                  \
    X(capture_end, "cuStreamEndCapture", "", 10000, (Stream stream, Graph * graph))                                    \
    X(graph_nodes, "cuGraphGetNodes", "", 10000, (Graph graph, GraphNode * nodes, std::size_t* count))                 \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", "", 11040,                                                     \
      (GraphExec * exec, Graph graph, unsigned long long flags))                                                       \
    X(graph_launch, "cuGraphLaunch", "", 10000, (GraphExec exec, Stream stream))                                       \
    X(graph_destroy, "cuGraphDestroy", "", 10000, (Graph graph))                                                       \
    X(exec_destroy, "cuGraphExecDestroy", "", 10000, (GraphExec exec))

// Null where the driver does not have them.
#define OSTINATO_CUDA_OPTIONAL_ENTRIES(X)                                     \
    X(device_uuid, "cuDeviceGetUuid", "", 9020, (Uuid * uuid, Number device)) \
    X(graph_update, "cuGraphExecUpdate", "_v2", 12000, (GraphExec exec, Graph graph, UpdateInfo * info))

struct Api {
    // Opens a driver. Null: there is none if `broken` is false, else it cannot be used, and `why` says so.
    static std::shared_ptr<const Api> load(const std::string& library, bool& broken, std::string& why);

    // "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory".
    std::string words(Result code) const;

#define OSTINATO_DECLARE(entry, name, suffix, version, parameters) Result(*entry) parameters = nullptr;
    OSTINATO_CUDA_ENTRIES(OSTINATO_DECLARE)
    OSTINATO_CUDA_OPTIONAL_ENTRIES(OSTINATO_DECLARE)
#undef OSTINATO_DECLARE
};

}  // namespace ostinato::cuda
