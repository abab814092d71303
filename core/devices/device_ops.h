// Device operations: bodies that enqueue work on a stream and return. The lane's timeline means issued; that the work
// is done is said by fences (fences.cpp). Protocol: core/DESIGN.md, "Devices".
//
// Operations of other streams come after one by its event, a mark in its stream. Each operation that others come after
// has a ring of them, one for every step that lanes can be apart, used again for ever.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "devices/stream.h"
#include "lanes/lane_loop.h"
#include "outside/external.h"
#include "program/run.h"

namespace ostinato {

// What Python bodies that are captured get for a stream.
class RecordingStreams;

// In which steps an operation does anything: a copy that only the first steps of a run need, say.
struct Activity {
    std::uint64_t period = 0;  // 0: in all
    std::uint64_t n_first = 0;
    std::vector<std::uint8_t> first;  // by user step of the run's first step modulo period, and steps since then
    std::vector<std::uint8_t> later;  // by user step modulo period

    bool active(std::uint64_t since_first, std::uint64_t user_step) const {
        if (period == 0)
            return true;
        if (since_first < n_first)
            return first[(user_step - since_first) % period * n_first + since_first] != 0;
        return later[user_step % period] != 0;
    }
    bool operator==(const Activity&) const = default;
};

// Flags by phase: those of phase p are at begin[p] to begin[p + 1]; there is one phase, or those of the operation.
struct FlagTable {
    std::vector<std::uint32_t> begin, flags;
};

struct DeviceOp {
    enum class Body : std::uint8_t { kNothing, kCopy, kFill, kPython, kNative };
    struct EventWait {
        std::uint32_t device_op;  // which of DevicePlan::ops
        std::uint32_t distance;
    };
    struct Mark {
        std::unique_ptr<DeviceEvent> event;
        std::uint64_t step = UINT64_MAX;  // that it stands for
        std::uint64_t callbacks = 0;      // so many were armed on the stream before
    };

    Body body = Body::kNothing;
    bool captured = false;  // the body may be called once, and what it enqueued be used again
    bool records = false;
    std::uint32_t op = 0;      // its number
    std::uint32_t stream = 0;  // which of DevicePlan::streams
    std::uint16_t period_class = 0;
    Device* device = nullptr;  // of the stream, as its handle
    StreamHandle handle = 0;
    std::vector<Transfer> transfers;  // by phase
    std::vector<Pattern> patterns;    // by phase
    std::vector<EventWait> waits;
    Activity activity;
    FlagTable sets, clears;
    std::vector<Mark> marks;  // by step modulo their number, a power of two; written by the lane's holder

    // What stands for `step`, or null: it could not be recorded.
    const Mark* mark_of(std::uint64_t step) const {
        const Mark& mark = marks[step & (marks.size() - 1)];
        return mark.step == step ? &mark : nullptr;
    }
};

// Consecutive operations of a lane that can be captured together: only the first may wait for events, only the last
// is recorded.
struct Segment {
    std::uint32_t begin, end;                       // positions in the lane
    std::vector<std::vector<std::uint32_t>> after;  // by operation, the earlier ones that it comes after, from `begin`
    std::uint64_t version = 1;                      // of the parameters of its bodies
    struct Capture {
        std::unique_ptr<Sequence> sequence;  // null: it cannot be captured
        std::uint64_t version = 0;           // of the parameters it was captured with
        bool called = false;                 // its bodies were, once
    };
    std::vector<Capture> captures;  // by user step modulo their number, after which it does the same again
};

constexpr std::uint32_t kNoOperation = UINT32_MAX;

// The state of each segment of a plan. Other threads may read it during a replay.
struct Captured {
    std::uint64_t times = 0;              // that it was captured
    bool refused = false;                 // the last time it could not be,
    std::string why;                      // because of this (empty: the device captures nothing),
    std::uint32_t failed = kNoOperation;  // told of this operation, if it is known
};

class Captures {
public:
    explicit Captures(std::size_t segments = 0) : found_(segments) {}

    void captured(std::size_t segment) {
        const std::lock_guard<std::mutex> lock(mutex_);
        ++found_[segment].times;
        found_[segment].refused = false;
    }
    void refused(std::size_t segment, std::string why, std::uint32_t failed) {
        const std::lock_guard<std::mutex> lock(mutex_);
        Captured& it = found_[segment];
        it.refused = true;
        it.why = std::move(why);
        it.failed = failed;
    }
    Captured of(std::size_t segment) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return found_[segment];
    }

private:
    mutable std::mutex mutex_;
    std::vector<Captured> found_;
};

constexpr std::uint32_t kNoSegment = UINT32_MAX;

struct WriteBack {
    std::uint32_t flag, stream;
    Transfer transfer;
};

// What the driver told at once. The first failure counts.
struct Told {
    std::int32_t code = 0;
    bool ended = true;  // false: it cannot be known when what was enqueued ends, and so the device is not used any more

    void add(const Told& other) {
        if (code == 0)
            code = other.code;
        ended = ended && other.ended;
    }
};

// What is waited for at the end of a run: a signal whose timeline goes on by one for each callback of a stream.
struct InFlightQueue : Signal {
    // Whether the device has told a failure, until a run starts clean; shared by the in_flight_queues of its streams.
    // Drivers tell whom they like, and whom they have told one word is told success about what came of it: from now on
    // nothing that the device has done is trusted. Set before the failure reaches anybody.
    std::shared_ptr<std::atomic<bool>> device_failed;
    struct Failed {
        std::uint64_t callback;  // its number
        std::uint64_t step;
        std::uint32_t op;
        std::int32_t code;
        bool told = false;
    };
    std::vector<Failed> failed;  // operations of a traced run; with the mutex
};

// What a device is to call back. Whoever waits for it keeps it.
struct DeviceCallback {
    std::shared_ptr<InFlightQueue> in_flight_queue;  // let go of before its timeline goes on
    std::int32_t code = 0;                           // these two are there when it has
    std::int64_t at = 0;
    std::unique_ptr<DeviceEvent> event;
    std::uint64_t number = 0, step = 0;
    std::uint32_t op = 0;  // it is about
    bool traced = false;   // its failure is kept for fences

    static void called(void* with, std::int32_t code);
    // Has the device call, when it is done with what the event stands for.
    void arm(Device& device, const std::shared_ptr<InFlightQueue>& its_queue);
};

// A call for an event of the stream has failed with `code`: waits here for all that was enqueued on the stream, which
// nobody else can do any more, so that its lane may go on as if it had been waited for.
Told wait_here(Stream& stream, InFlightQueue& in_flight_queue, std::int32_t code);

struct DevicePlan {
    ~DevicePlan();  // without the GIL, held or not; implemented in python/device.cpp

    std::vector<std::shared_ptr<Stream>> streams;
    std::vector<DeviceOp> ops;
    std::vector<std::uint32_t> index, of_op;  // by slot, and by operation: which of `ops`
    std::vector<Segment> segments;
    std::unique_ptr<Captures> captures;            // of the segments
    std::vector<std::uint32_t> segment_at;         // by index: which segment begins there, or kNoSegment
    std::vector<std::uint32_t> segment_of_python;  // by PythonPlan::ops: which segment it is part of, or kNoSegment
    PythonOwned<RecordingStreams> recording;
    std::vector<WriteBack> write_backs;
    bool fenced = false;  // each run begins when the one before is done
    // The addresses that stand for memory of devices that tasks work on: begin and end of each range.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> memory;
    // What was written on a device and not copied back: by flag, one more than the number of the operation.
    std::vector<std::atomic<std::uint32_t>> dirty;
    // By lane: its stream (-1: none), and fences that wait at the end of a run at last, by external number.
    std::vector<std::int32_t> stream_of_lane;
    std::vector<std::vector<std::uint32_t>> lazy;
    // What is waited for at the end of a run; the holder's of the lane that leaves it.
    struct Traced {
        std::unique_ptr<DeviceCallback> callback;
        std::size_t record;  // in the lane's buffer, or SIZE_MAX: it did not fit
    };
    std::vector<std::vector<Traced>> traced;                                              // by stream
    std::vector<std::pair<std::uint32_t, std::unique_ptr<DeviceCallback>>> writing_back;  // with the stream
    const MadeHere made;
};

// Runs a batch of device operations, or what is left of it.
Progress run_device_batch(Worker& worker, Lane& lane, const Batch& batch);

// Issues the device operation at `position`; `runs`: with its body. False: it has failed, which has been told.
bool issue(Worker& worker, Lane& lane, std::uint32_t position, bool runs);

// Before a lane leaves its run: whether all that it must wait for on its stream is done. If not, the lane is blocked.
bool device_settled(Worker& worker, Lane& lane);

// Of a traced run that all lanes have left: tells what failed and no fence has asked for.
void tell_untold(Worker& worker, Lane& lane);

// What was written on devices and not copied back is on its way, of a run that all lanes have left; false: nothing is.
bool write_back(Worker& worker, Lane& lane);
// Whether it has arrived; if not, the lane is blocked. Failures are told.
bool written_back(Worker& worker, Lane& lane);

// An external operation that is done when the device has done what an operation issued in that step.
class FenceOp final : public ExternalOp {
public:
    // `lazy`: nobody in the step comes after it. It waits in some steps only, so that not too much is in flight, and
    // before its lane leaves a run.
    FenceOp(std::uint32_t device_op, bool lazy) : device_op_(device_op), lazy_(lazy) {}
    Outcome advance(ExternalContext context) const override;
    bool firm() const override { return true; }
    std::string waits_for(const Plan& plan, const Run& run, std::uint64_t step) const override;

    // Waits for the event of `step`, which is the lane's, or the one before when its lane leaves the run.
    Outcome wait(ExternalContext context, std::uint64_t step) const;

private:
    std::uint32_t device_op_;  // which of DevicePlan::ops
    bool lazy_;
};

// Before `lane` leaves its run: whether its lazy fences of the last step are done. If not, the lane is blocked.
bool fences_settled(Worker& worker, Lane& lane);

}  // namespace ostinato
