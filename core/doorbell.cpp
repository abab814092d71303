#include "doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace ostinato {

void Doorbell::sleep(std::uint32_t ticket, std::int64_t timeout_ns) {
    // seq_cst: either ring() sees this sleeper, or the futex call sees the new count and returns at once.
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    timespec limit{};
    if (timeout_ns >= 0) {
        limit.tv_sec = timeout_ns / 1'000'000'000;
        limit.tv_nsec = timeout_ns % 1'000'000'000;
    }
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&rings_), FUTEX_WAIT_PRIVATE, ticket,
            timeout_ns >= 0 ? &limit : nullptr, nullptr, 0);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void Doorbell::ring() {
    rings_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0)
        syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&rings_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace ostinato
