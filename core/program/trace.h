// Records of a traced run: one per operation and step, written by the holder of the lane's claim.
#pragma once

#include <cstdint>
#include <ctime>
#include <vector>

namespace ostinato {

enum class Status : std::uint64_t { kOk, kFailed, kPoisoned, kCancelled };

struct TraceRecord {
    std::uint32_t op;
    std::uint32_t slot;  // or, after those of all slots, the device
    std::uint64_t step;
    std::int64_t start, end;  // CLOCK_MONOTONIC, ns
    Status status;
    std::int64_t issued = 0;  // of a device operation: when it began to be issued; the rest is the device's
};

struct TraceBuffers {
    struct Lane {
        std::vector<TraceRecord> records;  // reserved up front: recording never allocates
        std::uint64_t dropped = 0;
    };
    std::vector<Lane> lanes;
    std::int64_t submitted = 0;      // when the run was
    std::uint64_t written_back = 0;  // bytes that its end copied from devices to the host; the last lane's
};

inline std::int64_t monotonic_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace ostinato
