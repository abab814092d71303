// Whether what core/devices/cuda/api.h declares is what CUDA's own headers do. Compiled by a test where they are there.
#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstddef>
#include <type_traits>

#include "devices/cuda/api.h"

namespace ours = ostinato::cuda;
using ours::Api;

// The same way to pass it: pointers as pointers, numbers as numbers of the same size.
template <typename A, typename B>
constexpr bool alike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
                       std::is_floating_point_v<A> == std::is_floating_point_v<B>;

template <typename A, typename B>
struct Same : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
struct Same<R (*)(A...), S (*)(B...)> {
    template <typename = void>
    static constexpr bool arguments() {
        if constexpr (sizeof...(A) == sizeof...(B))
            return (alike<A, B> && ...);
        return false;
    }
    static constexpr bool value = alike<R, S> && arguments();
};

#define FUNCTION(ours_is, theirs_is) static_assert(Same<decltype(Api::ours_is), theirs_is>::value, #ours_is)
FUNCTION(init, PFN_cuInit_v2000);
FUNCTION(error_name, PFN_cuGetErrorName_v6000);
FUNCTION(error_string, PFN_cuGetErrorString_v6000);
FUNCTION(driver_version, PFN_cuDriverGetVersion_v2020);
FUNCTION(device_count, PFN_cuDeviceGetCount_v2000);
FUNCTION(device_get, PFN_cuDeviceGet_v2000);
FUNCTION(device_name, PFN_cuDeviceGetName_v2000);
FUNCTION(device_uuid, PFN_cuDeviceGetUuid_v9020);
FUNCTION(device_uuid_v2, PFN_cuDeviceGetUuid_v11040);
FUNCTION(primary_retain, PFN_cuDevicePrimaryCtxRetain_v7000);
FUNCTION(context_get, PFN_cuCtxGetCurrent_v4000);
FUNCTION(context_set, PFN_cuCtxSetCurrent_v4000);
FUNCTION(context_push, PFN_cuCtxPushCurrent_v4000);
FUNCTION(context_pop, PFN_cuCtxPopCurrent_v4000);
FUNCTION(context_synchronize, PFN_cuCtxSynchronize_v2000);
FUNCTION(allocate, PFN_cuMemAlloc_v3020);
FUNCTION(free, PFN_cuMemFree_v3020);
FUNCTION(memory_info, PFN_cuMemGetInfo_v3020);
FUNCTION(host_register, PFN_cuMemHostRegister_v6050);
FUNCTION(host_unregister, PFN_cuMemHostUnregister_v4000);
FUNCTION(pointer_attribute, PFN_cuPointerGetAttribute_v4000);
FUNCTION(copy, PFN_cuMemcpyAsync_v4000);
FUNCTION(copy_2d, PFN_cuMemcpy2DAsync_v3020);
FUNCTION(copy_3d, PFN_cuMemcpy3DAsync_v3020);
FUNCTION(fill_8, PFN_cuMemsetD8Async_v3020);
FUNCTION(fill_16, PFN_cuMemsetD16Async_v3020);
FUNCTION(fill_32, PFN_cuMemsetD32Async_v3020);
FUNCTION(fill_2d_8, PFN_cuMemsetD2D8Async_v3020);
FUNCTION(fill_2d_16, PFN_cuMemsetD2D16Async_v3020);
FUNCTION(fill_2d_32, PFN_cuMemsetD2D32Async_v3020);
FUNCTION(stream_create, PFN_cuStreamCreate_v2000);
FUNCTION(stream_destroy, PFN_cuStreamDestroy_v4000);
FUNCTION(stream_synchronize, PFN_cuStreamSynchronize_v2000);
FUNCTION(stream_wait, PFN_cuStreamWaitEvent_v3020);
FUNCTION(event_create, PFN_cuEventCreate_v2000);
FUNCTION(event_record, PFN_cuEventRecord_v2000);
FUNCTION(event_query, PFN_cuEventQuery_v2000);
FUNCTION(event_synchronize, PFN_cuEventSynchronize_v2000);
FUNCTION(event_destroy, PFN_cuEventDestroy_v4000);
FUNCTION(capture_mode, PFN_cuThreadExchangeStreamCaptureMode_v10010);
FUNCTION(capture_begin, PFN_cuStreamBeginCapture_v10010);
FUNCTION(capture_end, PFN_cuStreamEndCapture_v10000);
FUNCTION(graph_nodes, PFN_cuGraphGetNodes_v10000);
FUNCTION(graph_instantiate, PFN_cuGraphInstantiateWithFlags_v11040);
FUNCTION(graph_update, PFN_cuGraphExecUpdate_v12000);
FUNCTION(graph_launch, PFN_cuGraphLaunch_v10000);
FUNCTION(graph_destroy, PFN_cuGraphDestroy_v10000);
FUNCTION(exec_destroy, PFN_cuGraphExecDestroy_v10000);

#define MEMBER(ours_is, ours_has, theirs_is, theirs_has)                            \
    static_assert(offsetof(ours_is, ours_has) == offsetof(theirs_is, theirs_has) && \
                      sizeof(ours_is::ours_has) == sizeof(theirs_is::theirs_has),   \
                  #theirs_has)
#define COPY_MEMBERS(ours_is, theirs_is)                      \
    static_assert(sizeof(ours_is) == sizeof(theirs_is));      \
    MEMBER(ours_is, source_x, theirs_is, srcXInBytes);        \
    MEMBER(ours_is, source_y, theirs_is, srcY);               \
    MEMBER(ours_is, source_memory, theirs_is, srcMemoryType); \
    MEMBER(ours_is, source_host, theirs_is, srcHost);         \
    MEMBER(ours_is, source_device, theirs_is, srcDevice);     \
    MEMBER(ours_is, source_array, theirs_is, srcArray);       \
    MEMBER(ours_is, source_pitch, theirs_is, srcPitch);       \
    MEMBER(ours_is, target_x, theirs_is, dstXInBytes);        \
    MEMBER(ours_is, target_y, theirs_is, dstY);               \
    MEMBER(ours_is, target_memory, theirs_is, dstMemoryType); \
    MEMBER(ours_is, target_host, theirs_is, dstHost);         \
    MEMBER(ours_is, target_device, theirs_is, dstDevice);     \
    MEMBER(ours_is, target_array, theirs_is, dstArray);       \
    MEMBER(ours_is, target_pitch, theirs_is, dstPitch);       \
    MEMBER(ours_is, width, theirs_is, WidthInBytes);          \
    MEMBER(ours_is, height, theirs_is, Height)
COPY_MEMBERS(ours::Copy2D, CUDA_MEMCPY2D_v2);
COPY_MEMBERS(ours::Copy3D, CUDA_MEMCPY3D_v2);
MEMBER(ours::Copy3D, source_z, CUDA_MEMCPY3D_v2, srcZ);
MEMBER(ours::Copy3D, source_lod, CUDA_MEMCPY3D_v2, srcLOD);
MEMBER(ours::Copy3D, reserved0, CUDA_MEMCPY3D_v2, reserved0);
MEMBER(ours::Copy3D, source_height, CUDA_MEMCPY3D_v2, srcHeight);
MEMBER(ours::Copy3D, target_z, CUDA_MEMCPY3D_v2, dstZ);
MEMBER(ours::Copy3D, target_lod, CUDA_MEMCPY3D_v2, dstLOD);
MEMBER(ours::Copy3D, reserved1, CUDA_MEMCPY3D_v2, reserved1);
MEMBER(ours::Copy3D, target_height, CUDA_MEMCPY3D_v2, dstHeight);
MEMBER(ours::Copy3D, depth, CUDA_MEMCPY3D_v2, Depth);
static_assert(sizeof(ours::UpdateInfo) == sizeof(CUgraphExecUpdateResultInfo_v1));
MEMBER(ours::UpdateInfo, error_from, CUgraphExecUpdateResultInfo_v1, errorFromNode);
static_assert(sizeof(ours::Uuid) == sizeof(CUuuid));

#define CODE(ours_is, theirs_is) static_assert(ours::ours_is == static_cast<decltype(ours::ours_is)>(theirs_is))
CODE(kSuccess, CUDA_SUCCESS);
CODE(kInvalidValue, CUDA_ERROR_INVALID_VALUE);
CODE(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
CODE(kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
CODE(kNoDevice, CUDA_ERROR_NO_DEVICE);
CODE(kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
CODE(kOperatingSystem, CUDA_ERROR_OPERATING_SYSTEM);
CODE(kNotFound, CUDA_ERROR_NOT_FOUND);
CODE(kNotReady, CUDA_ERROR_NOT_READY);
CODE(kAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
CODE(kCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
CODE(kCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
CODE(kCaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
CODE(kExecUpdateFailure, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
CODE(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
CODE(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
CODE(kRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE);
CODE(kMemoryHost, CU_MEMORYTYPE_HOST);
CODE(kMemoryDevice, CU_MEMORYTYPE_DEVICE);
CODE(kCaptureGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL);
CODE(kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
CODE(kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
CODE(kPointerOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
CODE(kPointerRangeStart, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
CODE(kPointerRangeSize, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
