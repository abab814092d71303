// What became of the segments of a plan, for whoever asks while it replays.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace ostinato {

constexpr std::uint32_t kNoOperation = UINT32_MAX;

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

}  // namespace ostinato
