// A driver of CUDA without a GPU: devices whose memory the host cannot reach, streams that are threads, graphs whose
// nodes run in any order that their edges allow, now in this one, now in that one. It is stricter than the real one
// wherever that one may be: contexts, alignment, pitches, page-locked ranges, what may not be done during a capture.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "devices/cuda/api.h"

namespace fake {

using namespace ostinato::cuda;
using Work = std::function<void()>;

struct FakeContext {
    int ordinal = 0, physical = 0;
    std::mutex mutex;
    int broken = 0;  // the code of the failure after which nothing works any more

    int failure() {
        const std::lock_guard<std::mutex> lock(mutex);
        return broken;
    }
    void fail(int code) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (broken == 0)
            broken = code;
    }
};

using Nodes = std::set<std::size_t>;  // by their places in the graph

struct Node {
    std::string kind;
    Work work;
    Nodes after;
};

struct FakeGraph {
    std::vector<Node> nodes;
};

struct FakeStream;

// Guarded by the mutex of `Captures`, as what streams and events have of it.
struct FakeCapture {
    std::shared_ptr<FakeGraph> graph = std::make_shared<FakeGraph>();
    bool valid = true;
    std::thread::id by;
    int mode = 0;
    std::vector<std::shared_ptr<FakeStream>> streams;  // that take part; the first began it
};

// What a stream, or an event that was recorded on one, has of a capture that is going on.
struct Captured {
    std::shared_ptr<FakeCapture> capture;  // null: nothing
    Nodes ends;                            // that the next node comes after
};

struct FakeEvent {
    FakeContext* context = nullptr;
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t recorded = 0, happened = 0;
    Captured captured;
    FakeStream* of = nullptr;  // on which it was captured, when that had done so much
    std::uint64_t turn = 0;
};

struct FakeStream {
    FakeContext* context = nullptr;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Work> work;
    bool idle = true, closing = false;
    Captured captured;
    std::uint64_t turn = 0;  // goes on with whatever is done on it during a capture
    bool joined = false;     // another stream waits for all of that
};

struct FakeExec {
    std::mutex mutex;
    std::shared_ptr<const std::vector<Node>> nodes;
};

// What handles point to: never given back to the system, so that a stale one is known.
template <typename Held>
struct Handle {
    std::shared_ptr<Held> held;
};

struct Captures {
    std::mutex mutex;
    std::vector<std::shared_ptr<FakeCapture>> all;
};
Captures& captures();
bool capturing(const FakeStream& stream);
// Ends a capture, with the mutex.
void end(FakeCapture& capture);

// Counts the call, and gives the code that it is to fail with: one that tests asked for, or why it cannot work.
enum Needs { kNothing = 0, kDriver = 1, kContext = 2, kNoCapture = 4 };
Result enter(const char* name, int needs);
FakeContext* current();

std::shared_ptr<FakeStream> stream_of(Stream stream, Result& code);
// Does the work in stream order, or makes it a node of the graph that is being captured.
Result submit(FakeStream& stream, const std::string& kind, Work work);
void enqueue(FakeStream& stream, Work work);
void drain(FakeStream& stream);
void drain(const FakeContext* context);

// Where bytes of a device, or of the host, are for the host; null: they are not all there.
void* reached(std::uint64_t address, std::uint64_t bytes, bool& on_device);
enum class Locked { kNone, kSome, kAll };
Locked page_locked(std::uint64_t address, std::uint64_t bytes);

}  // namespace fake

#define FAKE_CUDA extern "C" __attribute__((visibility("default")))
#define ENTER(needs)                                                 \
    if (const Result entered = enter(__func__, needs); entered != 0) \
    return entered
