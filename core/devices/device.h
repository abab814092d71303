// What the core asks of a device: streams of its own, copies and fills on them, events to order streams by, word of
// when work is done, and ready-made sequences of work. OpenCL and CUDA stand behind it, and a fake device of the tests.
// Whoever implements it loads its driver at run time; the core is linked with none.
//
// Codes: 0 is success, all others are the driver's; `diagnose` says what they mean. No method but `finish` waits for
// the device; none takes the GIL, or may be called while the caller holds it. Each may be called from any thread, but
// calls for one stream come one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ostinato {

using StreamHandle = std::uint64_t;  // a CUstream, a cl_command_queue, ...

// Where bytes are: in host memory, at an address, or in an allocation of a device, at an offset.
struct Bytes {
    std::uint64_t base = 0;  // host: the address; device: the allocation (a CUdeviceptr, a cl_mem, ...)
    std::int64_t offset = 0;
    bool on_device = false;
};

// `slices` times `rows` times `width` bytes that lie next to each other. Immutable, like all plans.
struct Block {
    std::int64_t width = 0, rows = 1, slices = 1;
    std::int64_t source_offset = 0, source_row = 0, source_slice = 0;  // bytes; from Bytes::offset, may be negative
    std::int64_t target_offset = 0, target_row = 0, target_slice = 0;
};

// A copy between two addresses of one device, or between it and host memory: planned once, used in every step.
struct Transfer {
    Bytes source, target;
    std::vector<Block> blocks;
    std::int64_t bytes = 0;  // that move
};

// A fill: `pattern` (1 to 16 bytes, a power of two, as CUDA and OpenCL can) repeated along the target of each block.
struct Pattern {
    Bytes target;
    std::vector<Block> blocks;  // source offsets are not used
    std::vector<std::uint8_t> pattern;
};

// All that was enqueued on a stream when it was recorded. Used again for later steps.
class DeviceEvent {
public:
    virtual ~DeviceEvent() = default;
};

// Work that was captured once, and is enqueued as one.
class Sequence {
public:
    virtual ~Sequence() = default;
    virtual std::int32_t launch(StreamHandle stream) = 0;
    // Makes `event`, null or one that was recorded before, stand for the end of what was launched last, as if it were
    // recorded then, where the device tells of that anyway. False: it is to be recorded.
    virtual bool end(std::unique_ptr<DeviceEvent>&) { return false; }
};

class Device {
public:
    virtual ~Device() = default;

    // A stream: work on it runs in order. Streams of one device run side by side.
    virtual std::int32_t open(StreamHandle& stream) = 0;
    // What is enqueued still runs; waits for nothing.
    virtual void close(StreamHandle stream) = 0;

    virtual std::int32_t copy(StreamHandle stream, const Transfer& transfer) = 0;
    virtual std::int32_t fill(StreamHandle stream, const Pattern& pattern) = 0;

    // Makes `event`, null or one that was recorded before, stand for what is enqueued on the stream.
    virtual std::int32_t record(StreamHandle stream, std::unique_ptr<DeviceEvent>& event) = 0;
    // What is enqueued on the stream from now on comes after the event.
    virtual std::int32_t wait(StreamHandle stream, const DeviceEvent& event) = 0;

    // Calls `done(with, code)` once the work that the event stands for has ended, `code` telling of failures; from any
    // thread, without the GIL, at once from here if it has ended already. `done` calls no device, and waits for
    // nothing. The event is not recorded again before. Something that `wait`s for the device, or for other threads, in
    // a callback of the driver would hold up its other work.
    using Done = void (*)(void* with, std::int32_t code);
    virtual void notify(const DeviceEvent& event, Done done, void* with) = 0;

    // Waits until all that was enqueued on the stream has ended: where no event can say so, because `record` has
    // failed. With a code other than 0, work may be under way.
    virtual std::int32_t finish(StreamHandle stream) = 0;

    // What is captured, in parts. Each comes after earlier ones, by their numbers, and after what these come after;
    // beside others it may run. `enqueue` enqueues one on the stream that it is given; it may take the GIL.
    using Enqueue = std::function<std::int32_t(StreamHandle recording)>;
    struct Parts {
        std::span<const std::vector<std::uint32_t>> after;  // by part
        std::function<std::int32_t(std::uint32_t part, StreamHandle recording)> enqueue;

        // One after the other, on one stream.
        std::int32_t in_order(StreamHandle recording) const {
            std::int32_t code = 0;
            for (std::uint32_t part = 0; part < after.size() && code == 0; ++part)
                code = enqueue(part, recording);
            return code;
        }
    };
    // What the parts enqueue, called in order, for use again and again, without running it. Null: it cannot be
    // captured, `code` says why; or, with code 0, nothing can.
    virtual std::unique_ptr<Sequence> capture(StreamHandle stream, const Parts& parts, std::int32_t& code) = 0;

    // What a code means, and whether the device can be used afterwards.
    struct Diagnosis {
        std::string message;
        bool usable = true;
    };
    virtual Diagnosis diagnose(std::int32_t code) const = 0;
};

}  // namespace ostinato
