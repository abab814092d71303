// Streams, events, copies and fills.
#include <algorithm>
#include <cstring>

#include "fake.h"

namespace fake {

namespace {

struct Streams {
    std::mutex mutex;
    std::vector<std::shared_ptr<FakeStream>> open;
};

Streams& streams() {
    static Streams& made = *new Streams;
    return made;
}

void serve(const std::shared_ptr<FakeStream>& stream) {
    std::unique_lock<std::mutex> lock(stream->mutex);
    for (;;) {
        stream->changed.wait(lock, [&] { return !stream->work.empty() || stream->closing; });
        if (stream->work.empty())
            return;
        Work work = std::move(stream->work.front());
        stream->work.pop_front();
        stream->idle = false;
        lock.unlock();
        if (stream->context->failure() == 0)
            work();
        work = nullptr;
        lock.lock();
        stream->idle = stream->work.empty();
        stream->changed.notify_all();
    }
}

std::shared_ptr<FakeEvent> event_of(Event event) { return reinterpret_cast<Handle<FakeEvent>*>(event)->held; }

// A stream waits for an event of a capture, and takes part in that from now on.
Result join(const std::shared_ptr<FakeStream>& stream, FakeEvent& event) {
    const std::shared_ptr<FakeCapture>& capture = event.captured.capture;
    auto& all = captures().all;
    if (std::find(all.begin(), all.end(), capture) == all.end())
        return 907;  // CAPTURED_EVENT: it has ended
    if (stream->captured.capture == nullptr) {
        stream->captured.capture = capture;
        capture->streams.push_back(stream);
    } else if (stream->captured.capture != capture) {
        capture->valid = stream->captured.capture->valid = false;
        return 902;  // STREAM_CAPTURE_MERGE
    }
    stream->captured.ends.insert(event.captured.ends.begin(), event.captured.ends.end());
    ++stream->turn;
    stream->joined = false;
    if (event.of != stream.get() && event.turn == event.of->turn)
        event.of->joined = true;
    return kSuccess;
}

// One side of a copy in rows.
struct Rows {
    char* data;
    std::size_t pitch, slice;
    bool on_device;
    std::uint64_t address, bytes;  // from the first byte to behind the last
};

Result rows_of(Rows& rows, unsigned kind, const void* host, Pointer device, std::size_t pitch, std::size_t slice,
               std::size_t width, std::size_t height, std::size_t depth) {
    rows.pitch = pitch;
    rows.slice = slice;
    rows.address = kind == kMemoryDevice ? device : reinterpret_cast<std::uint64_t>(host);
    rows.bytes = (depth - 1) * slice + (height - 1) * pitch + width;
    if ((kind != kMemoryDevice && kind != kMemoryHost) || pitch < width)
        return kInvalidValue;
    rows.data = static_cast<char*>(reached(rows.address, rows.bytes, rows.on_device));
    return rows.data != nullptr && rows.on_device == (kind == kMemoryDevice) ? kSuccess : kInvalidValue;
}

void move(const Rows& target, const Rows& source, std::size_t width, std::size_t height, std::size_t depth) {
    for (std::size_t plane = 0; plane < depth; ++plane)
        for (std::size_t row = 0; row < height; ++row)
            std::memmove(target.data + plane * target.slice + row * target.pitch,
                         source.data + plane * source.slice + row * source.pitch, width);
}

// As the driver does it: of host memory that is not page-locked the call itself takes a copy, or waits until it is one.
Result copy(FakeStream& stream, const Rows& target, const Rows& source, std::size_t width, std::size_t height,
            std::size_t depth) {
    if (!target.on_device && !source.on_device)
        return kInvalidValue;
    const Rows& host = source.on_device ? target : source;
    const Locked locked = host.on_device ? Locked::kAll : page_locked(host.address, host.bytes);
    if (locked == Locked::kSome)
        return kInvalidValue;
    if (!capturing(stream) && locked == Locked::kNone && target.on_device) {
        const auto taken = std::make_shared<std::vector<char>>(source.data, source.data + source.bytes);
        return submit(stream, "copy", [=] {
            Rows from = source;
            from.data = taken->data();
            move(target, from, width, height, depth);
        });
    }
    const Result code = submit(stream, "copy", [=] { move(target, source, width, height, depth); });
    if (code == kSuccess && !capturing(stream) && locked == Locked::kNone)
        drain(stream);
    return code;
}

template <typename Value>
Result fill(Stream handle, Pointer target, std::size_t pitch, Value value, std::size_t width, std::size_t height) {
    Result code = kSuccess;
    const auto stream = stream_of(handle, code);
    if (code != kSuccess)
        return code;
    bool on_device = false;
    char* const data = static_cast<char*>(reached(target, (height - 1) * pitch + width * sizeof(Value), on_device));
    if (data == nullptr || !on_device || target % sizeof(Value) != 0 || pitch % sizeof(Value) != 0 || width == 0 ||
        height == 0 || (height > 1 && pitch < width * sizeof(Value)))
        return kInvalidValue;
    return submit(*stream, height > 1 ? "fill 2d" : "fill", [=] {
        for (std::size_t row = 0; row < height; ++row)
            for (std::size_t at = 0; at < width; ++at)
                std::memcpy(data + row * pitch + at * sizeof(Value), &value, sizeof(Value));
    });
}

}  // namespace

std::shared_ptr<FakeStream> stream_of(Stream stream, Result& code) {
    static Handle<FakeStream>& standard = *new Handle<FakeStream>;
    auto* handle = reinterpret_cast<Handle<FakeStream>*>(stream);
    if (reinterpret_cast<std::uintptr_t>(stream) <= 2) {  // the default streams: one, of the first device to use it
        const std::lock_guard<std::mutex> lock(streams().mutex);
        handle = &standard;
        if (handle->held == nullptr) {
            handle->held = std::make_shared<FakeStream>();
            handle->held->context = current();
            streams().open.push_back(handle->held);
            std::thread(serve, handle->held).detach();
        }
    }
    if (handle->held == nullptr)
        code = 400;
    else if (handle->held->context != current())
        code = kInvalidContext;
    return handle->held;
}

void enqueue(FakeStream& stream, Work work) {
    const std::lock_guard<std::mutex> lock(stream.mutex);
    stream.work.push_back(std::move(work));
    stream.idle = false;
    stream.changed.notify_all();
}

bool capturing(const FakeStream& stream) {
    const std::lock_guard<std::mutex> lock(captures().mutex);
    return stream.captured.capture != nullptr;
}

void end(FakeCapture& capture) {
    for (const auto& stream : capture.streams)
        stream->captured = {};
    capture.streams.clear();
    auto& all = captures().all;
    all.erase(std::remove_if(all.begin(), all.end(), [&](const auto& each) { return each.get() == &capture; }),
              all.end());
}

Result submit(FakeStream& stream, const std::string& kind, Work work) {
    if (!capturing(stream)) {
        enqueue(stream, std::move(work));
        return kSuccess;
    }
    const std::lock_guard<std::mutex> lock(captures().mutex);
    if (!stream.captured.capture->valid)
        return kCaptureInvalidated;
    std::vector<Node>& nodes = stream.captured.capture->graph->nodes;
    nodes.push_back({kind, std::move(work), stream.captured.ends});
    stream.captured.ends = {nodes.size() - 1};
    ++stream.turn;
    stream.joined = false;
    return kSuccess;
}

void drain(FakeStream& stream) {
    std::unique_lock<std::mutex> lock(stream.mutex);
    stream.changed.wait(lock, [&] { return stream.idle && stream.work.empty(); });
}

void drain(const FakeContext* context) {
    std::vector<std::shared_ptr<FakeStream>> all;
    {
        const std::lock_guard<std::mutex> lock(streams().mutex);
        all = streams().open;
    }
    for (const auto& stream : all)
        if (stream->context == context)
            drain(*stream);
}

}  // namespace fake

using namespace fake;

FAKE_CUDA Result cuStreamCreate(Stream* stream, unsigned flags) {
    ENTER(kContext);
    if (flags != kStreamNonBlocking)
        return kInvalidValue;  // ours are
    const auto made = std::make_shared<FakeStream>();
    made->context = current();
    {
        const std::lock_guard<std::mutex> lock(streams().mutex);
        streams().open.push_back(made);
    }
    std::thread(serve, made).detach();
    *stream = reinterpret_cast<Stream>(new Handle<FakeStream>{made});
    return kSuccess;
}

FAKE_CUDA Result cuStreamDestroy_v2(Stream handle) {
    ENTER(kContext);
    Result code = kSuccess;
    const auto stream = stream_of(handle, code);
    if (code != kSuccess)
        return code;
    {
        const std::lock_guard<std::mutex> captured(captures().mutex);
        if (stream->captured.capture != nullptr) {
            const auto capture = stream->captured.capture;
            capture->valid = false;
            if (capture->streams.front() == stream)
                end(*capture);
        }
    }
    reinterpret_cast<Handle<FakeStream>*>(handle)->held = nullptr;
    const std::lock_guard<std::mutex> lock(stream->mutex);
    stream->closing = true;
    stream->changed.notify_all();
    return kSuccess;
}

FAKE_CUDA Result cuStreamSynchronize(Stream handle) {
    ENTER(kContext | kNoCapture);
    Result code = kSuccess;
    const auto stream = stream_of(handle, code);
    if (code != kSuccess)
        return code;
    if (capturing(*stream))
        return kCaptureUnsupported;
    drain(*stream);
    return stream->context->failure();
}

FAKE_CUDA Result cuCtxSynchronize() {
    ENTER(kContext | kNoCapture);
    drain(current());
    return current()->failure();
}

FAKE_CUDA Result cuEventCreate(Event* event, unsigned flags) {
    ENTER(kContext);
    if ((flags & kEventDisableTiming) == 0)
        return kInvalidValue;  // ours are
    const auto made = std::make_shared<FakeEvent>();
    made->context = current();
    *event = reinterpret_cast<Event>(new Handle<FakeEvent>{made});
    return kSuccess;
}

FAKE_CUDA Result cuEventDestroy_v2(Event event) {
    ENTER(kContext);
    if (event_of(event) == nullptr)
        return 400;
    reinterpret_cast<Handle<FakeEvent>*>(event)->held = nullptr;
    return kSuccess;
}

FAKE_CUDA Result cuEventRecord(Event handle, Stream stream_handle) {
    ENTER(kContext);
    Result code = kSuccess;
    const auto stream = stream_of(stream_handle, code);
    const auto event = event_of(handle);
    if (code != kSuccess)
        return code;
    if (event == nullptr || event->context != stream->context)
        return 400;
    std::uint64_t number = 0;
    {
        const std::scoped_lock lock(event->mutex, captures().mutex);
        event->captured = stream->captured;
        event->of = stream.get();
        event->turn = stream->turn;
        if (event->captured.capture != nullptr)
            return kSuccess;
        number = ++event->recorded;
    }
    enqueue(*stream, [event, number] {
        const std::lock_guard<std::mutex> lock(event->mutex);
        event->happened = std::max(event->happened, number);
        event->changed.notify_all();
    });
    return kSuccess;
}

FAKE_CUDA Result cuEventQuery(Event handle) {
    ENTER(kContext | kNoCapture);
    const auto event = event_of(handle);
    if (event == nullptr)
        return 400;
    const std::lock_guard<std::mutex> lock(event->mutex);
    if (event->captured.capture != nullptr)
        return 907;
    return event->happened >= event->recorded ? kSuccess : kNotReady;
}

FAKE_CUDA Result cuEventSynchronize(Event handle) {
    ENTER(kContext | kNoCapture);
    const auto event = event_of(handle);
    if (event == nullptr)
        return 400;
    FakeContext* const context = event->context;
    std::unique_lock<std::mutex> lock(event->mutex);
    while (event->happened < event->recorded && context->failure() == 0)
        event->changed.wait_for(lock, std::chrono::milliseconds(1));
    return context->failure();
}

FAKE_CUDA Result cuStreamWaitEvent(Stream handle, Event event_handle, unsigned) {
    ENTER(kContext);
    Result code = kSuccess;
    const auto stream = stream_of(handle, code);
    const auto event = event_of(event_handle);
    if (code != kSuccess)
        return code;
    if (event == nullptr)
        return 400;
    std::uint64_t number = 0;
    {
        const std::scoped_lock lock(event->mutex, captures().mutex);
        const Captured& theirs = event->captured;
        Captured& own = stream->captured;
        if (theirs.capture != nullptr)
            return join(stream, *event);
        if (own.capture != nullptr) {
            own.capture->valid = false;
            return 905;  // STREAM_CAPTURE_ISOLATION
        }
        number = event->recorded;
    }
    FakeContext* const context = event->context;
    enqueue(*stream, [event, number, context] {
        std::unique_lock<std::mutex> lock(event->mutex);
        while (event->happened < number && context->failure() == 0)
            event->changed.wait_for(lock, std::chrono::milliseconds(1));
    });
    return kSuccess;
}

FAKE_CUDA Result cuMemcpyAsync(Pointer target, Pointer source, std::size_t bytes, Stream handle) {
    ENTER(kContext);
    Result code = kSuccess;
    const auto stream = stream_of(handle, code);
    if (code != kSuccess)
        return code;
    Rows from{}, to{};
    from.pitch = to.pitch = from.bytes = to.bytes = bytes;
    from.address = source;
    to.address = target;
    from.data = static_cast<char*>(reached(source, bytes, from.on_device));
    to.data = static_cast<char*>(reached(target, bytes, to.on_device));
    if (from.data == nullptr || to.data == nullptr)
        return kInvalidValue;
    return copy(*stream, to, from, bytes, 1, 1);
}

FAKE_CUDA Result cuMemcpy2DAsync_v2(const Copy2D* plan, Stream handle) {
    ENTER(kContext);
    Result code = kSuccess;
    const auto stream = stream_of(handle, code);
    if (code != kSuccess)
        return code;
    Rows from{}, to{};
    code = rows_of(from, plan->source_memory, plan->source_host, plan->source_device, plan->source_pitch, 0,
                   plan->width, plan->height, 1);
    if (code == kSuccess)
        code = rows_of(to, plan->target_memory, plan->target_host, plan->target_device, plan->target_pitch, 0,
                       plan->width, plan->height, 1);
    if (code == kSuccess && from.on_device && to.on_device && (from.pitch % 16 != 0 || to.pitch % 16 != 0))
        code = kInvalidValue;  // as it may for pitches of one's own
    return code != kSuccess ? code : copy(*stream, to, from, plan->width, plan->height, 1);
}

FAKE_CUDA Result cuMemcpy3DAsync_v2(const Copy3D* plan, Stream handle) {
    ENTER(kContext);
    Result code = kSuccess;
    const auto stream = stream_of(handle, code);
    if (code != kSuccess)
        return code;
    if (plan->source_height < plan->height || plan->target_height < plan->height || plan->reserved0 != nullptr ||
        plan->reserved1 != nullptr)
        return kInvalidValue;
    Rows from{}, to{};
    code = rows_of(from, plan->source_memory, plan->source_host, plan->source_device, plan->source_pitch,
                   plan->source_pitch * plan->source_height, plan->width, plan->height, plan->depth);
    if (code == kSuccess)
        code = rows_of(to, plan->target_memory, plan->target_host, plan->target_device, plan->target_pitch,
                       plan->target_pitch * plan->target_height, plan->width, plan->height, plan->depth);
    if (code == kSuccess && from.on_device && to.on_device && (from.pitch % 16 != 0 || to.pitch % 16 != 0))
        code = kInvalidValue;
    return code != kSuccess ? code : copy(*stream, to, from, plan->width, plan->height, plan->depth);
}

FAKE_CUDA Result cuMemsetD8Async(Pointer target, unsigned char value, std::size_t count, Stream stream) {
    ENTER(kContext);
    return fill(stream, target, 0, value, count, 1);
}

FAKE_CUDA Result cuMemsetD16Async(Pointer target, unsigned short value, std::size_t count, Stream stream) {
    ENTER(kContext);
    return fill(stream, target, 0, value, count, 1);
}

FAKE_CUDA Result cuMemsetD32Async(Pointer target, unsigned value, std::size_t count, Stream stream) {
    ENTER(kContext);
    return fill(stream, target, 0, value, count, 1);
}

FAKE_CUDA Result cuMemsetD2D8Async(Pointer target, std::size_t pitch, unsigned char value, std::size_t width,
                                   std::size_t height, Stream stream) {
    ENTER(kContext);
    return fill(stream, target, pitch, value, width, height);
}

FAKE_CUDA Result cuMemsetD2D16Async(Pointer target, std::size_t pitch, unsigned short value, std::size_t width,
                                    std::size_t height, Stream stream) {
    ENTER(kContext);
    return fill(stream, target, pitch, value, width, height);
}

FAKE_CUDA Result cuMemsetD2D32Async(Pointer target, std::size_t pitch, unsigned value, std::size_t width,
                                    std::size_t height, Stream stream) {
    ENTER(kContext);
    return fill(stream, target, pitch, value, width, height);
}
