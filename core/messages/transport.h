// What carries bytes between ranks: MPI, or memory where all ranks are in one process. The messenger calls it, one
// thread at a time, and never while it holds the GIL.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ostinato {

// Bytes on their way, in one direction. Between two ranks, requests of one tag match in the order in which both sides
// start them.
class Request {
public:
    virtual ~Request() = default;
    // The request is over, or was cancelled. Called by the thread that found out, which is the only one in the
    // transport: it may start other requests by the messenger, but must not wait.
    virtual void ended() = 0;

    std::byte* bytes = nullptr;
    std::size_t count = 0;
    int peer = 0;  // kAnyRank: of a receive that takes what comes first
    std::int32_t tag = 0;
    bool sends = false;
    // Not null: nothing travels, since both ranks have this memory. The request has ended when the word is `wanted`, or
    // when it is cancelled.
    const std::atomic<std::uint32_t>* word = nullptr;
    std::uint32_t wanted = 0;
    bool cancelled = false;
    std::shared_ptr<void> owner;  // what the bytes belong to, until it has ended
};

constexpr int kAnyRank = -1;

class Transport {
public:
    virtual ~Transport() = default;
    // Starts a request; its bytes stay where they are until it has ended.
    virtual void start(Request& request) = 0;
    // Adds the requests that have ended since the last call to `ended`.
    virtual void progress(std::vector<Request*>& ended) = 0;
    // Ends a receive that may match nothing any more; it is reported by `progress` all the same.
    virtual void cancel(Request& request) = 0;
    // The code of the first call that failed; 0: none has. From then on it does nothing, and requests under way do not
    // end: their bytes may still be written.
    virtual int error() const { return 0; }
};

}  // namespace ostinato
