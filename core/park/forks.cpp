#include "park/forks.h"

#include <pthread.h>

#include <atomic>

namespace ostinato {

namespace {

std::atomic<std::uint64_t> counted{0};

}  // namespace

std::uint64_t forks() {
    static const int registered =
        pthread_atfork(nullptr, nullptr, [] { counted.fetch_add(1, std::memory_order_relaxed); });
    (void)registered;
    return counted.load(std::memory_order_relaxed);
}

}  // namespace ostinato
