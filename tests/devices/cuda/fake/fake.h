// A driver of CUDA without a GPU: devices whose memory the host cannot reach, streams that are threads, graphs that are
// lists. It is stricter than the real one wherever that one may be: contexts, alignment, pitches, page-locked ranges,
// what may not be done during a capture.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "devices/cuda_api.h"

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

struct Node {
    std::string kind;
    Work work;
};

struct FakeGraph {
    std::vector<Node> nodes;
    bool valid = true;
};

struct FakeEvent {
    FakeContext* context = nullptr;
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t recorded = 0, happened = 0;
    bool captured = false;
};

struct FakeStream {
    FakeContext* context = nullptr;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Work> work;
    bool idle = true, closing = false;
    // A capture that is going on.
    std::shared_ptr<FakeGraph> graph;
    std::thread::id by;
    int mode = 0;
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
    std::vector<std::shared_ptr<FakeStream>> streams;
};
Captures& captures();

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
