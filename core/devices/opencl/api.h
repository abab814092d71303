// What we need of OpenCL's C interface, declared by ourselves: it is fixed since OpenCL 1.2, and a user who has no
// OpenCL needs no headers of it either. The entry points are those of the loader that the process uses already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ostinato::opencl {

using Int = std::int32_t;
using Uint = std::uint32_t;
using Bits = std::uint64_t;

// Handles. Each points to a table of entry points first: how the loader finds the driver that an object is of.
struct ContextObject;
struct DeviceObject;
struct QueueObject;
struct MemoryObject;
struct ProgramObject;
struct KernelObject;
struct EventObject;
using Context = ContextObject*;
using DeviceId = DeviceObject*;
using Queue = QueueObject*;
using Memory = MemoryObject*;
using Program = ProgramObject*;
using Kernel = KernelObject*;
using Event = EventObject*;
using EventCallback = void (*)(Event event, Int status, void* with);

inline constexpr Int kSuccess = 0, kDeviceNotAvailable = -2, kMemoryAllocationFailed = -4, kOutOfResources = -5,
                     kOutOfHostMemory = -6, kFailedWait = -14, kInvalidOperation = -59;
inline constexpr Int kComplete = 0;  // the status of an event; above: not yet, below: failed
inline constexpr Uint kFalse = 0, kTrue = 1;
inline constexpr Bits kMemoryReadWrite = 1;
inline constexpr Uint kDeviceVersion = 0x102F, kDevicePlatform = 0x1031, kPlatformExtensions = 0x0904,
                      kEventExecutionStatus = 0x11D3, kEventCommandQueue = 0x11D0;

// name, result, parameters. All are of OpenCL 1.2.
#define OSTINATO_OPENCL_ENTRIES(X)                                                                                   \
    X(GetPlatformInfo, Int, (void*, Uint, std::size_t, void*, std::size_t*))                                         \
    X(GetDeviceInfo, Int, (DeviceId, Uint, std::size_t, void*, std::size_t*))                                        \
    X(RetainContext, Int, (Context))                                                                                 \
    X(ReleaseContext, Int, (Context))                                                                                \
    X(CreateCommandQueue, Queue, (Context, DeviceId, Bits, Int*))                                                    \
    X(RetainCommandQueue, Int, (Queue))                                                                              \
    X(ReleaseCommandQueue, Int, (Queue))                                                                             \
    X(GetCommandQueueInfo, Int, (Queue, Uint, std::size_t, void*, std::size_t*))                                     \
    X(Flush, Int, (Queue))                                                                                           \
    X(Finish, Int, (Queue))                                                                                          \
    X(CreateBuffer, Memory, (Context, Bits, std::size_t, void*, Int*))                                               \
    X(RetainMemObject, Int, (Memory))                                                                                \
    X(ReleaseMemObject, Int, (Memory))                                                                               \
    X(CreateProgramWithSource, Program, (Context, Uint, const char**, const std::size_t*, Int*))                     \
    X(BuildProgram, Int, (Program, Uint, const DeviceId*, const char*, void (*)(Program, void*), void*))             \
    X(ReleaseProgram, Int, (Program))                                                                                \
    X(CreateKernel, Kernel, (Program, const char*, Int*))                                                            \
    X(ReleaseKernel, Int, (Kernel))                                                                                  \
    X(SetKernelArg, Int, (Kernel, Uint, std::size_t, const void*))                                                   \
    X(CreateUserEvent, Event, (Context, Int*))                                                                       \
    X(SetUserEventStatus, Int, (Event, Int))                                                                         \
    X(GetEventInfo, Int, (Event, Uint, std::size_t, void*, std::size_t*))                                            \
    X(RetainEvent, Int, (Event))                                                                                     \
    X(ReleaseEvent, Int, (Event))                                                                                    \
    X(SetEventCallback, Int, (Event, Int, EventCallback, void*))                                                     \
    X(WaitForEvents, Int, (Uint, const Event*))                                                                      \
    X(EnqueueReadBuffer, Int, (Queue, Memory, Uint, std::size_t, std::size_t, void*, Uint, const Event*, Event*))    \
    X(EnqueueWriteBuffer, Int,                                                                                       \
      (Queue, Memory, Uint, std::size_t, std::size_t, const void*, Uint, const Event*, Event*))                      \
    X(EnqueueCopyBuffer, Int,                                                                                        \
      (Queue, Memory, Memory, std::size_t, std::size_t, std::size_t, Uint, const Event*, Event*))                    \
    X(EnqueueReadBufferRect, Int,                                                                                    \
      (Queue, Memory, Uint, const std::size_t*, const std::size_t*, const std::size_t*, std::size_t, std::size_t,    \
       std::size_t, std::size_t, void*, Uint, const Event*, Event*))                                                 \
    X(EnqueueWriteBufferRect, Int,                                                                                   \
      (Queue, Memory, Uint, const std::size_t*, const std::size_t*, const std::size_t*, std::size_t, std::size_t,    \
       std::size_t, std::size_t, const void*, Uint, const Event*, Event*))                                           \
    X(EnqueueCopyBufferRect, Int,                                                                                    \
      (Queue, Memory, Memory, const std::size_t*, const std::size_t*, const std::size_t*, std::size_t, std::size_t,  \
       std::size_t, std::size_t, Uint, const Event*, Event*))                                                        \
    X(EnqueueFillBuffer, Int,                                                                                        \
      (Queue, Memory, const void*, std::size_t, std::size_t, std::size_t, Uint, const Event*, Event*))               \
    X(EnqueueNDRangeKernel, Int,                                                                                     \
      (Queue, Kernel, Uint, const std::size_t*, const std::size_t*, const std::size_t*, Uint, const Event*, Event*)) \
    X(EnqueueMarkerWithWaitList, Int, (Queue, Uint, const Event*, Event*))                                           \
    X(EnqueueBarrierWithWaitList, Int, (Queue, Uint, const Event*, Event*))

// Those that came with 2.0 and 2.1.
#define OSTINATO_OPENCL_LATER_ENTRIES(X)                                                                         \
    X(EnqueueSVMMemcpy, Int, (Queue, Uint, void*, const void*, std::size_t, Uint, const Event*, Event*))         \
    X(EnqueueSVMMemFill, Int, (Queue, void*, const void*, std::size_t, std::size_t, Uint, const Event*, Event*)) \
    X(CloneKernel, Kernel, (Kernel, Int*))

struct Api {
#define OSTINATO_DECLARE(name, result, parameters) result(*name) parameters = nullptr;
    OSTINATO_OPENCL_ENTRIES(OSTINATO_DECLARE)
    OSTINATO_OPENCL_LATER_ENTRIES(OSTINATO_DECLARE)
#undef OSTINATO_DECLARE

    // Those that `library`, the path of something loaded that is linked with OpenCL, would call; they stay for the life
    // of the process, as what is loaded does. Throws std::runtime_error where one is missing.
    static const Api& of(const std::string& library);
};

// "CL_OUT_OF_RESOURCES"; for codes that OpenCL does not have, "OpenCL error -1234".
std::string name_of(Int code);

// One of several owners of an object of OpenCL's.
template <typename Object, Int (*Api::*Release)(Object)>
class Owned {
public:
    Owned() = default;
    Owned(const Api& api, Object object) : api_(&api), object_(object) {}
    Owned(Owned&& other) noexcept : api_(other.api_), object_(other.release()) {}
    Owned& operator=(Owned&& other) noexcept {
        if (this != &other) {
            reset();
            api_ = other.api_;
            object_ = other.release();
        }
        return *this;
    }
    ~Owned() { reset(); }

    Object get() const { return object_; }
    explicit operator bool() const { return object_ != nullptr; }
    Object release() {
        Object object = object_;
        object_ = nullptr;
        return object;
    }
    void reset() {
        if (object_ != nullptr)
            (api_->*Release)(object_);
        object_ = nullptr;
    }

private:
    const Api* api_ = nullptr;
    Object object_ = nullptr;
};

using OwnedEvent = Owned<Event, &Api::ReleaseEvent>;
using OwnedKernel = Owned<Kernel, &Api::ReleaseKernel>;
using OwnedMemory = Owned<Memory, &Api::ReleaseMemObject>;
using OwnedQueue = Owned<Queue, &Api::ReleaseCommandQueue>;
using OwnedProgram = Owned<Program, &Api::ReleaseProgram>;

}  // namespace ostinato::opencl
