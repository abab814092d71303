#include "devices/opencl/recording.h"

#include <array>
#include <utility>

namespace ostinato::opencl {

namespace {

// Where the entry points for queues stand in the table of the KHR_icd extension.
enum Entry : Int {
    kRetainCommandQueue = 10,
    kReleaseCommandQueue = 11,
    kGetCommandQueueInfo = 12,
    kFlush = 46,
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

Recording& self(Queue queue) { return *reinterpret_cast<Recording*>(queue); }

Sizes sizes(const std::size_t* from, Uint count) {
    Sizes found{0, 0, 0};
    for (Uint i = 0; from != nullptr && i < count && i < found.size(); ++i)
        found[i] = from[i];
    return found;
}

Int retain(Queue queue) {
    self(queue).retain();
    return kSuccess;
}

Int release(Queue queue) {
    self(queue).release();
    return kSuccess;
}

Int info(Queue queue, Uint what, std::size_t size, void* value, std::size_t* length) {
    return self(queue).info(what, size, value, length);
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
    const Kernel clone = it.api().CloneKernel(kernel, &code);
    if (clone == nullptr)
        return code;
    return it.add(Launch{{it.api(), clone},
                         dimensions,
                         offset != nullptr,
                         local != nullptr,
                         sizes(offset, dimensions),
                         sizes(global, dimensions),
                         sizes(local, dimensions)},
                  event);
}

Int read(Queue queue, Memory memory, Uint blocking, std::size_t offset, std::size_t bytes, void* host, Uint count,
         const Event* events, Event* event) {
    Recording& it = self(queue);
    if (blocking != kFalse)
        return it.refuse(kEnqueueReadBuffer);
    if (const Int code = it.after(count, events); code != kSuccess)
        return code;
    return it.add(CopyBytes{it.share(memory), {}, static_cast<char*>(host), offset, 0, bytes}, event);
}

Int write(Queue queue, Memory memory, Uint blocking, std::size_t offset, std::size_t bytes, const void* host,
          Uint count, const Event* events, Event* event) {
    Recording& it = self(queue);
    if (blocking != kFalse)
        return it.refuse(kEnqueueWriteBuffer);
    if (const Int code = it.after(count, events); code != kSuccess)
        return code;
    char* const from = static_cast<char*>(const_cast<void*>(host));
    return it.add(CopyBytes{{}, it.share(memory), from, 0, offset, bytes}, event);
}

Int copy(Queue queue, Memory source, Memory target, std::size_t source_offset, std::size_t target_offset,
         std::size_t bytes, Uint count, const Event* events, Event* event) {
    Recording& it = self(queue);
    if (const Int code = it.after(count, events); code != kSuccess)
        return code;
    return it.add(CopyBytes{it.share(source), it.share(target), nullptr, source_offset, target_offset, bytes}, event);
}

Int read_rectangle(Queue queue, Memory memory, Uint blocking, const std::size_t* memory_origin,
                   const std::size_t* host_origin, const std::size_t* region, std::size_t memory_row,
                   std::size_t memory_slice, std::size_t host_row, std::size_t host_slice, void* host, Uint count,
                   const Event* events, Event* event) {
    Recording& it = self(queue);
    if (blocking != kFalse)
        return it.refuse(kEnqueueReadBufferRect);
    if (const Int code = it.after(count, events); code != kSuccess)
        return code;
    return it.add(CopyRectangle{it.share(memory),
                                {},
                                static_cast<char*>(host),
                                sizes(memory_origin, 3),
                                sizes(host_origin, 3),
                                sizes(region, 3),
                                memory_row,
                                memory_slice,
                                host_row,
                                host_slice},
                  event);
}

Int write_rectangle(Queue queue, Memory memory, Uint blocking, const std::size_t* memory_origin,
                    const std::size_t* host_origin, const std::size_t* region, std::size_t memory_row,
                    std::size_t memory_slice, std::size_t host_row, std::size_t host_slice, const void* host,
                    Uint count, const Event* events, Event* event) {
    Recording& it = self(queue);
    if (blocking != kFalse)
        return it.refuse(kEnqueueWriteBufferRect);
    if (const Int code = it.after(count, events); code != kSuccess)
        return code;
    return it.add(CopyRectangle{{},
                                it.share(memory),
                                static_cast<char*>(const_cast<void*>(host)),
                                sizes(host_origin, 3),
                                sizes(memory_origin, 3),
                                sizes(region, 3),
                                host_row,
                                host_slice,
                                memory_row,
                                memory_slice},
                  event);
}

Int copy_rectangle(Queue queue, Memory source, Memory target, const std::size_t* source_origin,
                   const std::size_t* target_origin, const std::size_t* region, std::size_t source_row,
                   std::size_t source_slice, std::size_t target_row, std::size_t target_slice, Uint count,
                   const Event* events, Event* event) {
    Recording& it = self(queue);
    if (const Int code = it.after(count, events); code != kSuccess)
        return code;
    return it.add(
        CopyRectangle{it.share(source), it.share(target), nullptr, sizes(source_origin, 3), sizes(target_origin, 3),
                      sizes(region, 3), source_row, source_slice, target_row, target_slice},
        event);
}

std::vector<std::uint8_t> bytes_of(const void* pattern, std::size_t size) {
    const auto* begin = static_cast<const std::uint8_t*>(pattern);
    return {begin, begin + size};
}

Int fill(Queue queue, Memory memory, const void* pattern, std::size_t size, std::size_t offset, std::size_t bytes,
         Uint count, const Event* events, Event* event) {
    Recording& it = self(queue);
    if (const Int code = it.after(count, events); code != kSuccess)
        return code;
    return it.add(FillBytes{it.share(memory), bytes_of(pattern, size), offset, bytes}, event);
}

Int copy_shared(Queue queue, Uint blocking, void* target, const void* source, std::size_t bytes, Uint count,
                const Event* events, Event* event) {
    Recording& it = self(queue);
    if (blocking != kFalse)
        return it.refuse(kEnqueueSVMMemcpy);
    if (const Int code = it.after(count, events); code != kSuccess)
        return code;
    return it.add(CopyShared{target, source, bytes}, event);
}

Int fill_shared(Queue queue, void* target, const void* pattern, std::size_t size, std::size_t bytes, Uint count,
                const Event* events, Event* event) {
    Recording& it = self(queue);
    if (const Int code = it.after(count, events); code != kSuccess)
        return code;
    return it.add(FillShared{target, bytes_of(pattern, size), bytes}, event);
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
    put(kEnqueueReadBufferRect, read_rectangle);
    put(kEnqueueWriteBufferRect, write_rectangle);
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

}  // namespace

Recording::Recording(const Api& api, Context context, Queue queue)
    : table_(table()), other_table_(table()), api_(api), stands_for_(queue) {
    Int code = kSuccess;
    done_ = {api, api.CreateUserEvent(context, &code)};
    if (done_)
        api.SetUserEventStatus(done_.get(), kComplete);
    api.RetainCommandQueue(queue);
}

Recording::~Recording() { api_.ReleaseCommandQueue(stands_for_); }

void Recording::retain() { owners_.fetch_add(1, std::memory_order_relaxed); }

void Recording::release() {
    if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1)
        delete this;
}

std::vector<Command> Recording::end(Int& refused) {
    recording_ = false;
    refused = refused_;
    return std::move(commands_);
}

Int Recording::info(Uint what, std::size_t size, void* value, std::size_t* length) const {
    return api_.GetCommandQueueInfo(stands_for_, what, size, value, length);
}

Int Recording::after(Uint count, const Event* events) {
    if (!recording_)
        return kInvalidOperation;
    for (Uint i = 0; i < count; ++i) {
        Int status = kSuccess;
        const Int code = api_.GetEventInfo(events[i], kEventExecutionStatus, sizeof(status), &status, nullptr);
        if (code != kSuccess)
            return code;
        if (status != kComplete)
            return status < 0 ? kFailedWait : refuse(kEntries);
    }
    return kSuccess;
}

Int Recording::add(Command command, Event* event) {
    commands_.push_back(std::move(command));
    return give(event);
}

Int Recording::give(Event* event) {
    if (event == nullptr)
        return kSuccess;
    if (!done_)
        return kOutOfResources;
    api_.RetainEvent(done_.get());
    *event = done_.get();
    return kSuccess;
}

Int Recording::refuse(Int index) {
    if (refused_ == kSuccess)
        refused_ = kFirstRefusal - index;
    return kInvalidOperation;
}

OwnedMemory Recording::share(Memory memory) const {
    api_.RetainMemObject(memory);
    return {api_, memory};
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
