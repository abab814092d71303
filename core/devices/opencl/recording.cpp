#include "devices/opencl/recording.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace ostinato::opencl {

namespace {

// Where the entry points for queues stand in the table of the KHR_icd extension.
enum Entry : Int {
    kRetainCommandQueue = 10,
    kReleaseCommandQueue = 11,
    kGetCommandQueueInfo = 12,
    kFlush = 46,
    kFinish = 47,
    kEnqueueReadBuffer = 48,
    kEnqueueWriteBuffer = 49,
    kEnqueueCopyBuffer = 50,
    kEnqueueMapBuffer = 56,
    kEnqueueMapImage = 57,
    kEnqueueNDRangeKernel = 59,
    kEnqueueMarker = 62,
    kEnqueueWaitForEvents = 63,
    kEnqueueBarrier = 64,
    kEnqueueReadBufferRect = 86,
    kEnqueueWriteBufferRect = 87,
    kEnqueueCopyBufferRect = 88,
    kEnqueueFillBuffer = 102,
    kEnqueueMarkerWithWaitList = 105,
    kEnqueueBarrierWithWaitList = 106,
    kEnqueueSVMMemcpy = 129,
    kEnqueueSVMMemFill = 130,
    kEntries = 160,  // more than there are
};

// Those that a queue has and that are not recorded, or only where they do not wait.
constexpr std::pair<Int, const char*> kRefused[] = {
    {13, "clSetCommandQueueProperty"},
    {kFinish, "clFinish"},
    {kEnqueueReadBuffer, "clEnqueueReadBuffer, blocking"},
    {kEnqueueWriteBuffer, "clEnqueueWriteBuffer, blocking"},
    {51, "clEnqueueReadImage"},
    {52, "clEnqueueWriteImage"},
    {53, "clEnqueueCopyImage"},
    {54, "clEnqueueCopyImageToBuffer"},
    {55, "clEnqueueCopyBufferToImage"},
    {kEnqueueMapBuffer, "clEnqueueMapBuffer"},
    {kEnqueueMapImage, "clEnqueueMapImage"},
    {58, "clEnqueueUnmapMemObject"},
    {60, "clEnqueueTask"},
    {61, "clEnqueueNativeKernel"},
    {72, "clEnqueueAcquireGLObjects"},
    {73, "clEnqueueReleaseGLObjects"},
    {kEnqueueReadBufferRect, "clEnqueueReadBufferRect, blocking"},
    {kEnqueueWriteBufferRect, "clEnqueueWriteBufferRect, blocking"},
    {103, "clEnqueueFillImage"},
    {104, "clEnqueueMigrateMemObjects"},
    {120, "clEnqueueAcquireEGLObjectsKHR"},
    {121, "clEnqueueReleaseEGLObjectsKHR"},
    {128, "clEnqueueSVMFree"},
    {kEnqueueSVMMemcpy, "clEnqueueSVMMemcpy, blocking"},
    {131, "clEnqueueSVMMap"},
    {132, "clEnqueueSVMUnmap"},
    {139, "clEnqueueSVMMigrateMem"},
};

// Codes of ours, far from those of OpenCL and its extensions: that at an index, or (at the end) that of a pending
// event.
constexpr Int kFirstRefusal = -20000;

// Calls an entry of the driver again, with the arguments that it was recorded with.
using Command = std::function<Int(const Api& api, Queue queue, Event* event)>;

// Arguments that are kept as they are recorded, as they are passed again.
using Sizes = std::optional<std::array<std::size_t, 3>>;
using Value = std::vector<std::uint8_t>;

Sizes sizes(const std::size_t* from, Uint count = 3) {
    if (from == nullptr)
        return std::nullopt;
    Sizes found{{0, 0, 0}};
    std::copy_n(from, std::min(count, 3U), found->begin());
    return found;
}

Value value_of(const void* pattern, std::size_t size) {
    const auto* begin = static_cast<const std::uint8_t*>(pattern);
    return {begin, begin + size};
}

template <class Argument>
const Argument& pass(const Argument& argument) {
    return argument;
}
template <class Object>
Object* pass(const std::shared_ptr<Object>& object) {
    return object.get();
}
const std::size_t* pass(const Sizes& sizes) { return sizes ? sizes->data() : nullptr; }
const void* pass(const Value& value) { return value.data(); }

template <auto Call, class... Arguments>
Command command(Arguments... arguments) {
    return [... kept = std::move(arguments)](const Api& api, Queue queue, Event* event) {
        return (api.*Call)(queue, pass(kept)..., 0, nullptr, event);
    };
}

// A queue that writes down what is enqueued on it. It stands for another, and says of itself what that says. Whoever
// retains it may use it for longer than it records. As an object of OpenCL's it begins with its table.
class Recording {
public:
    Recording(const Api& its_api, Context context, Queue queue);
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

    Queue queue() { return reinterpret_cast<Queue>(this); }
    // Returns the recorded commands and refuses further ones. `refused` names the first command that could not be
    // recorded.
    std::vector<Command> end(Int& refused) {
        recording_ = false;
        refused = refused_;
        return std::move(commands_);
    }

    // The entries of the table come here.
    Int after(Uint count, const Event* events);  // may a command be recorded that comes after these?
    Int add(Command command, Uint count, const Event* events, Event* event) {
        if (const Int code = after(count, events); code != kSuccess)
            return code;
        commands_.push_back(std::move(command));
        return give(event);
    }
    Int give(Event* event);
    Int refuse(Int index) {
        if (refused_ == kSuccess)
            refused_ = kFirstRefusal - index;
        return kInvalidOperation;
    }
    std::shared_ptr<MemoryObject> share(Memory memory) const {
        api.RetainMemObject(memory);
        return {memory, api.ReleaseMemObject};
    }
    void retain() { owners_.fetch_add(1, std::memory_order_relaxed); }
    void release() {
        if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

private:
    ~Recording() { api.ReleaseCommandQueue(stands_for); }

    const void* const* table_;
    const void* const* other_table_;  // where loaders look if the table is marked as of the second kind; ours is not
    std::atomic<int> owners_ = 1;
    OwnedEvent done_;  // given to who asks for an event: all that a recording could wait for has happened
    bool recording_ = true;
    Int refused_ = kSuccess;
    std::vector<Command> commands_;

public:
    const Api& api;
    const Queue stands_for;
};

Int Recording::after(Uint count, const Event* events) {
    if (!recording_)
        return kInvalidOperation;
    for (Uint i = 0; i < count; ++i) {
        Int status = kSuccess;
        const Int code = api.GetEventInfo(events[i], kEventExecutionStatus, sizeof(status), &status, nullptr);
        if (code != kSuccess)
            return code;
        if (status != kComplete)
            return status < 0 ? kFailedWait : refuse(kEntries);
    }
    return kSuccess;
}

Int Recording::give(Event* event) {
    if (event == nullptr)
        return kSuccess;
    if (!done_)
        return kOutOfResources;
    api.RetainEvent(done_.get());
    *event = done_.get();
    return kSuccess;
}

// The entries of the table.

Recording& self(Queue queue) { return *reinterpret_cast<Recording*>(queue); }

Int retain(Queue queue) {
    self(queue).retain();
    return kSuccess;
}

Int release(Queue queue) {
    self(queue).release();
    return kSuccess;
}

Int info(Queue queue, Uint what, std::size_t size, void* value, std::size_t* length) {
    return self(queue).api.GetCommandQueueInfo(self(queue).stands_for, what, size, value, length);
}

Int nothing(Queue) { return kSuccess; }

template <Int index>
Int refuse(Queue queue) {
    return self(queue).refuse(index);
}

void* map_buffer(Queue queue, Memory, Uint, Bits, std::size_t, std::size_t, Uint, const Event*, Event*, Int* code) {
    const Int refused = self(queue).refuse(kEnqueueMapBuffer);
    if (code != nullptr)
        *code = refused;
    return nullptr;
}

void* map_image(Queue queue, Memory, Uint, Bits, const std::size_t*, const std::size_t*, std::size_t*, std::size_t*,
                Uint, const Event*, Event*, Int* code) {
    const Int refused = self(queue).refuse(kEnqueueMapImage);
    if (code != nullptr)
        *code = refused;
    return nullptr;
}

Int launch(Queue queue, Kernel kernel, Uint dimensions, const std::size_t* offset, const std::size_t* global,
           const std::size_t* local, Uint count, const Event* events, Event* event) {
    Recording& it = self(queue);
    Int code = it.after(count, events);
    if (code != kSuccess)
        return code;
    const Kernel clone = it.api.CloneKernel(kernel, &code);  // whose arguments stay
    if (clone == nullptr)
        return code;
    return it.add(command<&Api::EnqueueNDRangeKernel>(std::shared_ptr<KernelObject>(clone, it.api.ReleaseKernel),
                                                      dimensions, sizes(offset, dimensions), sizes(global, dimensions),
                                                      sizes(local, dimensions)),
                  0, nullptr, event);
}

Int read(Queue queue, Memory memory, Uint blocking, std::size_t offset, std::size_t bytes, void* host, Uint count,
         const Event* events, Event* event) {
    Recording& it = self(queue);
    if (blocking != kFalse)
        return it.refuse(kEnqueueReadBuffer);
    return it.add(command<&Api::EnqueueReadBuffer>(it.share(memory), kFalse, offset, bytes, host), count, events,
                  event);
}

Int write(Queue queue, Memory memory, Uint blocking, std::size_t offset, std::size_t bytes, const void* host,
          Uint count, const Event* events, Event* event) {
    Recording& it = self(queue);
    if (blocking != kFalse)
        return it.refuse(kEnqueueWriteBuffer);
    return it.add(command<&Api::EnqueueWriteBuffer>(it.share(memory), kFalse, offset, bytes, host), count, events,
                  event);
}

Int copy(Queue queue, Memory source, Memory target, std::size_t source_offset, std::size_t target_offset,
         std::size_t bytes, Uint count, const Event* events, Event* event) {
    Recording& it = self(queue);
    return it.add(
        command<&Api::EnqueueCopyBuffer>(it.share(source), it.share(target), source_offset, target_offset, bytes),
        count, events, event);
}

// Reads and writes, which differ in what they may do with the memory of the host only.
template <auto Call, Int index, class Host>
Int move_rectangle(Queue queue, Memory memory, Uint blocking, const std::size_t* memory_origin,
                   const std::size_t* host_origin, const std::size_t* region, std::size_t memory_row,
                   std::size_t memory_slice, std::size_t host_row, std::size_t host_slice, Host host, Uint count,
                   const Event* events, Event* event) {
    Recording& it = self(queue);
    if (blocking != kFalse)
        return it.refuse(index);
    return it.add(command<Call>(it.share(memory), kFalse, sizes(memory_origin), sizes(host_origin), sizes(region),
                                memory_row, memory_slice, host_row, host_slice, host),
                  count, events, event);
}

Int copy_rectangle(Queue queue, Memory source, Memory target, const std::size_t* source_origin,
                   const std::size_t* target_origin, const std::size_t* region, std::size_t source_row,
                   std::size_t source_slice, std::size_t target_row, std::size_t target_slice, Uint count,
                   const Event* events, Event* event) {
    Recording& it = self(queue);
    return it.add(command<&Api::EnqueueCopyBufferRect>(it.share(source), it.share(target), sizes(source_origin),
                                                       sizes(target_origin), sizes(region), source_row, source_slice,
                                                       target_row, target_slice),
                  count, events, event);
}

Int fill(Queue queue, Memory memory, const void* pattern, std::size_t size, std::size_t offset, std::size_t bytes,
         Uint count, const Event* events, Event* event) {
    Recording& it = self(queue);
    return it.add(command<&Api::EnqueueFillBuffer>(it.share(memory), value_of(pattern, size), size, offset, bytes),
                  count, events, event);
}

Int copy_shared(Queue queue, Uint blocking, void* target, const void* source, std::size_t bytes, Uint count,
                const Event* events, Event* event) {
    if (blocking != kFalse)
        return self(queue).refuse(kEnqueueSVMMemcpy);
    return self(queue).add(command<&Api::EnqueueSVMMemcpy>(kFalse, target, source, bytes), count, events, event);
}

Int fill_shared(Queue queue, void* target, const void* pattern, std::size_t size, std::size_t bytes, Uint count,
                const Event* events, Event* event) {
    return self(queue).add(command<&Api::EnqueueSVMMemFill>(target, value_of(pattern, size), size, bytes), count,
                           events, event);
}

// Nothing to record: the queue that it is replayed on is in order anyway.
Int order(Queue queue, Uint count, const Event* events, Event* event) {
    const Int code = self(queue).after(count, events);
    return code != kSuccess ? code : self(queue).give(event);
}

Int marker(Queue queue, Event* event) { return order(queue, 0, nullptr, event); }
Int wait_for_events(Queue queue, Uint count, const Event* events) { return order(queue, count, events, nullptr); }

template <std::size_t... index>
void refuse_all(std::array<const void*, kEntries>& table, std::index_sequence<index...>) {
    ((table[static_cast<std::size_t>(kRefused[index].first)] =
          reinterpret_cast<const void*>(refuse<kRefused[index].first>)),
     ...);
}

std::array<const void*, kEntries> make_table() {
    std::array<const void*, kEntries> table{};
    const auto put = [&](Entry index, auto* entry) {
        table[static_cast<std::size_t>(index)] = reinterpret_cast<const void*>(entry);
    };
    refuse_all(table, std::make_index_sequence<std::size(kRefused)>());
    put(kRetainCommandQueue, retain);
    put(kReleaseCommandQueue, release);
    put(kGetCommandQueueInfo, info);
    put(kFlush, nothing);
    put(kEnqueueReadBuffer, read);
    put(kEnqueueWriteBuffer, write);
    put(kEnqueueCopyBuffer, copy);
    put(kEnqueueMapBuffer, map_buffer);
    put(kEnqueueMapImage, map_image);
    put(kEnqueueNDRangeKernel, launch);
    put(kEnqueueMarker, marker);
    put(kEnqueueWaitForEvents, wait_for_events);
    put(kEnqueueBarrier, nothing);
    put(kEnqueueReadBufferRect, move_rectangle<&Api::EnqueueReadBufferRect, kEnqueueReadBufferRect, void*>);
    put(kEnqueueWriteBufferRect, move_rectangle<&Api::EnqueueWriteBufferRect, kEnqueueWriteBufferRect, const void*>);
    put(kEnqueueCopyBufferRect, copy_rectangle);
    put(kEnqueueFillBuffer, fill);
    put(kEnqueueMarkerWithWaitList, order);
    put(kEnqueueBarrierWithWaitList, order);
    put(kEnqueueSVMMemcpy, copy_shared);
    put(kEnqueueSVMMemFill, fill_shared);
    return table;
}

const void* const* table() {
    static const auto table = make_table();
    return table.data();
}

Recording::Recording(const Api& its_api, Context context, Queue queue)
    : table_(table()), other_table_(table()), api(its_api), stands_for(queue) {
    Int code = kSuccess;
    done_ = {api, api.CreateUserEvent(context, &code)};
    if (done_)
        api.SetUserEventStatus(done_.get(), kComplete);
    api.RetainCommandQueue(queue);
}

class Commands : public Sequence {
public:
    Commands(const Api& api, std::vector<Command> commands) : api_(api), commands_(std::move(commands)) {}

    std::int32_t launch(StreamHandle stream) override {
        queue_ = reinterpret_cast<Queue>(stream);
        last_.reset();
        Event event = nullptr;
        for (const Command& command : commands_) {
            // Drivers make an event for each command, but a marker is one command more.
            const Int code = command(api_, queue_, &command == &commands_.back() ? &event : nullptr);
            if (code != kSuccess)
                return code;
        }
        if (event != nullptr)
            last_ = {api_, event};
        return kSuccess;
    }

    bool end(std::unique_ptr<DeviceEvent>& recorded) override {
        // Other queues and callbacks may wait for it from now on: OpenCL need not begin what was not flushed.
        if (!last_ || api_.Flush(queue_) != kSuccess)
            return false;
        if (recorded == nullptr)
            recorded = std::make_unique<OpenCLEvent>();
        static_cast<OpenCLEvent&>(*recorded).event = std::move(last_);
        return true;
    }

    std::size_t size() const { return commands_.size(); }

private:
    const Api& api_;
    std::vector<Command> commands_;
    Queue queue_ = nullptr;  // of the last launch
    OwnedEvent last_;        // its last command's
};

template <class Object>
std::string text(Int (*info)(Object, Uint, std::size_t, void*, std::size_t*), Object of, Uint what) {
    std::size_t length = 0;
    if (info(of, what, 0, nullptr, &length) != kSuccess || length == 0)
        return {};
    std::string found(length, '\0');
    info(of, what, length, found.data(), nullptr);
    return found.substr(0, length - 1);
}

// Whether there is a loader between us and the driver, which looks in the tables of objects, and clCloneKernel. The
// latter came with OpenCL 2.1; older drivers' tables end before it.
bool has_tables(const Api& api, DeviceId device, Queue queue) {
    int major = 0, minor = 0;
    if (std::sscanf(text(api.GetDeviceInfo, device, kDeviceVersion).c_str(), "OpenCL %d.%d", &major, &minor) != 2 ||
        major * 10 + minor < 21 || api.CloneKernel == nullptr)
        return false;
    void* platform = nullptr;
    if (api.GetDeviceInfo(device, kDevicePlatform, sizeof(platform), &platform, nullptr) != kSuccess ||
        text(api.GetPlatformInfo, platform, kPlatformExtensions).find("cl_khr_icd") == std::string::npos)
        return false;
    const void* const* table = *reinterpret_cast<const void* const* const*>(queue);
    return table != nullptr && table[kFinish] != reinterpret_cast<const void*>(api.Finish);
}

}  // namespace

std::unique_ptr<Sequence> record_sequence(const Api& api, Context context, Queue queue, const Device::Enqueue& enqueue,
                                          Int& code) {
    auto* const recording = new Recording(api, context, queue);
    code = enqueue(reinterpret_cast<StreamHandle>(recording->queue()));
    Int refused = kSuccess;
    std::vector<Command> commands = recording->end(refused);
    recording->release();
    if (refused != kSuccess)
        code = refused;
    return code == kSuccess ? std::make_unique<Commands>(api, std::move(commands)) : nullptr;
}

bool can_record(const Api& api, Context context, DeviceId device) {
    Int code = kSuccess;
    const OwnedQueue bench{api, api.CreateCommandQueue(context, device, 0, &code)};
    if (!bench || !has_tables(api, device, bench.get()))
        return false;
    const char* source = "__kernel void store(__global int *at, int value) { at[0] = value; }";
    const OwnedProgram program{api, api.CreateProgramWithSource(context, 1, &source, nullptr, &code)};
    if (!program || api.BuildProgram(program.get(), 1, &device, nullptr, nullptr, nullptr) != kSuccess)
        return false;
    const OwnedKernel kernel{api, api.CreateKernel(program.get(), "store", &code)};
    const OwnedMemory memory{api, api.CreateBuffer(context, kMemoryReadWrite, sizeof(Int), nullptr, &code)};
    if (!kernel || !memory)
        return false;
    const Memory at = memory.get();
    const auto give = [&](Int value) {
        return api.SetKernelArg(kernel.get(), 0, sizeof(at), &at) == kSuccess &&
               api.SetKernelArg(kernel.get(), 1, sizeof(value), &value) == kSuccess;
    };
    // A replay uses the arguments that were recorded, even if the kernel gets others later.
    constexpr Int recorded = 1, later = 2, before = 3;
    constexpr std::size_t one = 1;
    const auto sequence = record_sequence(
        api, context, bench.get(),
        [&](StreamHandle recording) {
            const auto queue = reinterpret_cast<Queue>(recording);
            if (!give(recorded))
                return kInvalidOperation;
            return api.EnqueueNDRangeKernel(queue, kernel.get(), 1, nullptr, &one, nullptr, 0, nullptr, nullptr);
        },
        code);
    Int found = 0;
    return sequence != nullptr && static_cast<const Commands&>(*sequence).size() == 1 && give(later) &&
           api.EnqueueFillBuffer(bench.get(), at, &before, sizeof(before), 0, sizeof(before), 0, nullptr, nullptr) ==
               kSuccess &&
           sequence->launch(reinterpret_cast<StreamHandle>(bench.get())) == kSuccess &&
           api.EnqueueReadBuffer(bench.get(), at, kTrue, 0, sizeof(found), &found, 0, nullptr, nullptr) == kSuccess &&
           found == recorded;
}

std::string refusal(Int code) {
    if (code == kFirstRefusal - kEntries)
        return "a launch_only task's work cannot come after an event that has not happened when the task is captured";
    for (const auto& [index, name] : kRefused)
        if (code == kFirstRefusal - index)
            return std::string(
                       "a launch_only task may only enqueue kernels, copies and fills, and wait for nothing; "
                       "it called ") +
                   name;
    return {};
}

}  // namespace ostinato::opencl
