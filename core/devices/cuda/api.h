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

struct Api {
    // Opens a driver. Null: there is none if `broken` is false, else it cannot be used, and `why` says so.
    static std::shared_ptr<const Api> load(const std::string& library, bool& broken, std::string& why);

    // "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory".
    std::string words(Result code) const;

    Result (*init)(unsigned flags) = nullptr;
    Result (*error_name)(Result code, const char** name) = nullptr;
    Result (*error_string)(Result code, const char** text) = nullptr;
    Result (*driver_version)(int* version) = nullptr;

    Result (*device_count)(int* count) = nullptr;
    Result (*device_get)(Number* device, int ordinal) = nullptr;
    Result (*device_name)(char* name, int length, Number device) = nullptr;
    Result (*device_uuid)(Uuid* uuid, Number device) = nullptr;     // of the GPU, or null
    Result (*device_uuid_v2)(Uuid* uuid, Number device) = nullptr;  // of its MIG instance, if it is one
    Result (*primary_retain)(Context* context, Number device) = nullptr;

    Result (*context_get)(Context* context) = nullptr;
    Result (*context_set)(Context context) = nullptr;
    Result (*context_push)(Context context) = nullptr;
    Result (*context_pop)(Context* context) = nullptr;
    Result (*context_synchronize)() = nullptr;

    Result (*allocate)(Pointer* pointer, std::size_t bytes) = nullptr;
    Result (*free)(Pointer pointer) = nullptr;
    Result (*memory_info)(std::size_t* free, std::size_t* total) = nullptr;
    Result (*host_register)(void* host, std::size_t bytes, unsigned flags) = nullptr;
    Result (*host_unregister)(void* host) = nullptr;
    Result (*pointer_attribute)(void* value, int attribute, Pointer pointer) = nullptr;

    Result (*copy)(Pointer target, Pointer source, std::size_t bytes, Stream stream) = nullptr;
    Result (*copy_2d)(const Copy2D* copy, Stream stream) = nullptr;
    Result (*copy_3d)(const Copy3D* copy, Stream stream) = nullptr;
    Result (*fill_8)(Pointer target, unsigned char value, std::size_t count, Stream stream) = nullptr;
    Result (*fill_16)(Pointer target, unsigned short value, std::size_t count, Stream stream) = nullptr;
    Result (*fill_32)(Pointer target, unsigned value, std::size_t count, Stream stream) = nullptr;
    Result (*fill_2d_8)(Pointer target, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height,
                        Stream stream) = nullptr;
    Result (*fill_2d_16)(Pointer target, std::size_t pitch, unsigned short value, std::size_t width, std::size_t height,
                         Stream stream) = nullptr;
    Result (*fill_2d_32)(Pointer target, std::size_t pitch, unsigned value, std::size_t width, std::size_t height,
                         Stream stream) = nullptr;

    Result (*stream_create)(Stream* stream, unsigned flags) = nullptr;
    Result (*stream_destroy)(Stream stream) = nullptr;
    Result (*stream_synchronize)(Stream stream) = nullptr;
    Result (*stream_wait)(Stream stream, Event event, unsigned flags) = nullptr;
    Result (*event_create)(Event* event, unsigned flags) = nullptr;
    Result (*event_record)(Event event, Stream stream) = nullptr;
    Result (*event_query)(Event event) = nullptr;
    Result (*event_synchronize)(Event event) = nullptr;
    Result (*event_destroy)(Event event) = nullptr;

    Result (*capture_mode)(int* mode) = nullptr;  // swaps the calling thread's
    Result (*capture_begin)(Stream stream, int mode) = nullptr;
    Result (*capture_end)(Stream stream, Graph* graph) = nullptr;
    Result (*graph_nodes)(Graph graph, GraphNode* nodes, std::size_t* count) = nullptr;
    Result (*graph_instantiate)(GraphExec* exec, Graph graph, unsigned long long flags) = nullptr;
    Result (*graph_update)(GraphExec exec, Graph graph, UpdateInfo* info) = nullptr;  // null before CUDA 12
    Result (*graph_launch)(GraphExec exec, Stream stream) = nullptr;
    Result (*graph_destroy)(Graph graph) = nullptr;
    Result (*exec_destroy)(GraphExec exec) = nullptr;
};

}  // namespace ostinato::cuda
