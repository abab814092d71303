// Which process we are in, counted in forks: what was made before a fork has its threads in the parent.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace ostinato {

// How many forks lie between the process that loaded us and this one.
inline std::uint64_t forks() {
    static std::atomic<std::uint64_t> counted{0};
    static const int registered =
        pthread_atfork(nullptr, nullptr, [] { counted.fetch_add(1, std::memory_order_relaxed); });
    (void)registered;
    return counted.load(std::memory_order_relaxed);
}

// A member of what needs other threads to go on.
class MadeHere {
public:
    bool forked() const { return forks_ != forks(); }

private:
    std::uint64_t forks_ = forks();
};

}  // namespace ostinato
