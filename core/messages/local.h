// Ranks in one process: their messages are copied from memory to memory. A program of one rank sends to itself by this;
// tests have more ranks, and declare how long messages take, and that some overtake others or are lost.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "messages/transport.h"

namespace ostinato {

class LocalRanks {
public:
    // A message takes `latency_ns`, and up to `jitter_ns` more: messages of different tags may overtake each other.
    LocalRanks(int size, std::int64_t latency_ns, std::int64_t jitter_ns, std::uint64_t seed);

    std::unique_ptr<Transport> transport(int rank);
    // From now on nothing leaves this rank, and nothing arrives there. `noticed`: the transports of the others fail.
    void kill(int rank, bool noticed);
    int size() const { return static_cast<int>(ranks_.size()); }

private:
    struct Message {
        int source;
        std::int32_t tag;
        std::int64_t due;
        std::vector<std::byte> bytes;
    };
    struct Rank {
        std::deque<Message> arriving;  // those of one source and tag in order
        std::deque<Request*> receives;
        std::vector<Request*> ended;
        bool dead = false;
        int error = 0;
    };
    class Endpoint;

    void send(int from, const Request& request);
    void match(Rank& rank);

    std::mutex mutex_;
    std::vector<Rank> ranks_;
    const std::int64_t latency_ns_, jitter_ns_;
    std::minstd_rand random_;
};

// The only rank of a process.
std::unique_ptr<Transport> transport_to_itself();

}  // namespace ostinato
