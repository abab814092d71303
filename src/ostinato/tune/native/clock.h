// The clock of limits and durations.
#pragma once

#include <cstdint>
#include <ctime>

namespace ostinato::reaper {

inline std::int64_t now_ns() {
    timespec time;
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace ostinato::reaper
