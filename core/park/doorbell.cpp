#include "park/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "program/trace.h"

namespace ostinato {

void Doorbell::wait(std::uint32_t ticket, std::int64_t timeout_ns, Who who) {
    std::atomic<std::uint32_t>& sleepers = who == kFirst ? first_ : sleepers_;
    // seq_cst: either ring() sees this sleeper, or the futex call sees the new count and returns at once.
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    timespec limit{};
    if (timeout_ns >= 0) {
        const std::int64_t end = monotonic_ns() + timeout_ns;
        limit.tv_sec = end / 1'000'000'000;
        limit.tv_nsec = end % 1'000'000'000;
    }
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&rings_), FUTEX_WAIT_BITSET_PRIVATE, ticket,
            timeout_ns >= 0 ? &limit : nullptr, nullptr, who);
    // seq_cst, again for ring(): whoever rings after this thread has looked at the ticket wakes the others.
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void Doorbell::wake(std::uint32_t whom) {
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&rings_), FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, nullptr, nullptr,
            whom);
}

void Doorbell::ring() {
    rings_.fetch_add(1, std::memory_order_seq_cst);
    if (first_.load(std::memory_order_seq_cst) != 0)
        wake(kFirst);
    else if (sleepers_.load(std::memory_order_seq_cst) != 0)
        wake(kAnybody);
}

void Doorbell::ring_everybody() {
    rings_.fetch_add(1, std::memory_order_seq_cst);
    wake(kAnybody | kFirst);
}

}  // namespace ostinato
