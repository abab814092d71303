// A device that is none, for tests: streams whose work takes as long as it was declared to, or is done step by step;
// memory of its own; and failures at the test's word. Deterministic: what is due is done in the order of its declared
// ends, equals in the order in which they were enqueued; of what was captured, parts that may run side by side, the
// later first.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "devices/device.h"
#include "park/forks.h"

namespace ostinato {

class FakeDevice final : public Device, public std::enable_shared_from_this<FakeDevice> {
public:
    enum Code : std::int32_t {
        kInvalid = 1,      // an unknown stream or allocation, bytes outside it, an empty event
        kOutOfMemory = 2,  // of the device
        kRaised = 3,       // a function did
        kFailed = 4,       // by the test's word; all other codes are the test's own
        kSticky = 5,       // from now on everything fails with this
        kLost = 6,         // the same
        kForked = 7,       // the device's thread is in the parent
    };
    enum class Method : std::uint8_t {
        kOpen,
        kClose,
        kCopy,
        kFill,
        kCall,
        kRecord,
        kWait,
        kNotify,
        kFinish,
        kCapture,
        kLaunch,
        kAllocate,
        kAnyWork,  // kCopy, kFill, kCall or kLaunch; only to fail
    };
    static constexpr std::size_t kMethods = 13;

    // How long pieces of work take, in ns.
    struct Delays {
        std::int64_t copy = 0, fill = 0;
    };
    struct Counters {
        std::array<std::uint64_t, kMethods> calls{};
        std::uint64_t to_device = 0, to_host = 0, within = 0;  // bytes moved
        std::uint64_t copies = 0, largest_in_flight = 0;
    };
    struct Entry {  // of the log
        std::string what;
        StreamHandle stream;
        std::int32_t code;
    };

    // Manual: work is done by `step`, `run` and `finish` alone.
    static std::shared_ptr<FakeDevice> make(bool manual);
    ~FakeDevice() override;

    std::int32_t open(StreamHandle& stream) override;
    void close(StreamHandle stream) override;
    std::int32_t copy(StreamHandle stream, const Transfer& transfer) override;
    std::int32_t fill(StreamHandle stream, const Pattern& pattern) override;
    std::int32_t record(StreamHandle stream, std::unique_ptr<DeviceEvent>& event) override;
    std::int32_t wait(StreamHandle stream, const DeviceEvent& event) override;
    void notify(const DeviceEvent& event, Done done, void* with) override;
    std::int32_t finish(StreamHandle stream) override;
    std::unique_ptr<Sequence> capture(StreamHandle stream, const Parts& parts, std::int32_t& code) override;
    Diagnosis diagnose(std::int32_t code) const override;

    // --- what users of a real device have from its driver ---
    std::int32_t allocate(std::int64_t bytes, std::uint64_t& base);
    void release(std::uint64_t base);        // work in flight may still use it
    void* memory(std::uint64_t base) const;  // null: there is none
    using Function = std::function<std::int32_t()>;
    std::int32_t call(StreamHandle stream, Function function, std::int64_t delay, std::string what);
    void finish();

    // --- the test's word ---
    // The `nth` next call of the method fails at once (0: none), or the `nth` piece of work that ends fails then.
    void fail_call(Method method, std::uint64_t nth, std::int32_t code);
    void fail_piece(std::uint64_t nth, std::int32_t code);
    void lose();
    static void lose_all();  // before the interpreter ends: nobody waits for what is in flight
    void set_manual(bool manual);
    void set_delays(Delays delays);
    void set_capacity(std::int64_t bytes);
    void set_captures(bool captures);
    // Does one piece of work of the stream (0: of the stream whose work was enqueued first); its name, or nothing where
    // none can be done.
    std::optional<std::string> step(StreamHandle stream);
    std::size_t run();  // all that can be done; how many pieces

    Counters counters() const;
    std::vector<Entry> log() const;
    std::size_t in_flight() const;
    std::size_t streams() const;
    std::int64_t allocated() const;
    void clear_log();
    void set_message(std::string message);  // of kRaised

private:
    explicit FakeDevice(bool manual) : manual_(manual) {}

    struct Failure {
        std::int32_t code;
        bool told = false;  // to whom a mark has told of it
    };
    struct Mark {
        bool done = false;
        std::int32_t code = 0;             // of a device that is broken
        std::shared_ptr<Failure> failure;  // of what came before
        std::int64_t at = 0;               // when it was done
        std::vector<std::pair<Done, void*>> listeners;
    };
    struct FakeEvent final : DeviceEvent {
        std::shared_ptr<Mark> mark;
    };
    enum class Kind : std::uint8_t { kWork, kMark, kWait };
    struct Piece {
        Kind kind = Kind::kWork;
        std::string what;
        Function body;
        std::int64_t delay = 0;
        std::int64_t to_device = 0, to_host = 0, within = 0;
        bool is_copy = false;
        std::shared_ptr<Mark> mark;
        std::uint64_t number = 0;
        std::int64_t enqueued = 0;
    };
    struct Stream {
        std::deque<Piece> pieces;
        std::vector<Piece>* recorded = nullptr;  // of a capture
        std::shared_ptr<Failure> failure;        // which marks are to tell of, until one has
        std::int64_t free_at = 0;                // the declared end of what was done last
        bool busy = false, closed = false;
    };
    struct Memory {
        explicit Memory(std::int64_t bytes);
        std::vector<char> bytes;
    };
    class FakeSequence;
    using Lock = std::unique_lock<std::mutex>;
    using Due = std::vector<std::pair<std::pair<Done, void*>, std::int32_t>>;

    static std::int64_t now();  // ns
    static bool ends_all(std::int32_t code) { return code == kSticky || code == kLost; }
    std::int32_t begin(Method method);  // counts the call; a code where it is to fail
    std::int32_t enqueue(StreamHandle stream, std::vector<Piece> pieces);
    Stream* stream_of(StreamHandle stream);
    std::int32_t resolve(const Bytes& bytes, std::int64_t low, std::int64_t high, char*& address,
                         std::shared_ptr<Memory>& memory) const;
    void wake();
    void work();  // the thread's
    void settle(Due& due, std::vector<Piece>& dropped);
    void settle(Stream& stream, Due& due, std::vector<Piece>& dropped, bool& changed);
    void end_mark(Mark& mark, Stream& stream, Due& due);
    static std::int32_t tell_of(Mark& mark);  // its code, for somebody who asked for it
    std::map<StreamHandle, Stream>::iterator next(std::int64_t& deadline, bool by_number);
    std::string run_head(Lock& lock, std::map<StreamHandle, Stream>::iterator stream);
    void tell(Lock& lock);  // settles, and calls listeners, without the lock
    bool idle() const;

    const MadeHere here_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::map<StreamHandle, Stream> streams_;
    std::map<std::uint64_t, std::shared_ptr<Memory>> memories_;
    std::array<std::pair<std::uint64_t, std::int32_t>, kMethods> failing_{};
    std::pair<std::uint64_t, std::int32_t> failing_piece_{};
    std::int32_t broken_ = 0;
    std::string message_;
    Delays delays_;
    Counters counters_;
    std::vector<Entry> log_;
    std::int64_t capacity_ = INT64_MAX, allocated_ = 0;
    std::uint64_t numbers_ = 0;
    StreamHandle last_stream_ = 0;
    std::uint64_t last_base_ = 0;
    std::size_t in_flight_ = 0;
    bool manual_, captures_ = true, has_thread_ = false;
};

// For C: enqueues a function on a stream of a FakeDevice.
std::int32_t enqueue_on_fake(void* device, std::uint64_t stream, std::int32_t (*function)(void*), void* user,
                             std::int64_t delay);

}  // namespace ostinato
