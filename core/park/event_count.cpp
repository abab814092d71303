#include "park/event_count.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "program/trace.h"

namespace ostinato {

void EventCount::wait(std::uint32_t epoch, std::int64_t timeout_ns, Who who) {
    std::atomic<std::uint32_t>& sleepers = who == kFirst ? first_ : sleepers_;
    // seq_cst: either notify() sees this sleeper, or the futex call sees the new count and returns at once.
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    timespec limit{};
    if (timeout_ns >= 0) {
        const std::int64_t end = monotonic_ns() + timeout_ns;
        limit.tv_sec = end / 1'000'000'000;
        limit.tv_nsec = end % 1'000'000'000;
    }
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&epoch_), FUTEX_WAIT_BITSET_PRIVATE, epoch,
            timeout_ns >= 0 ? &limit : nullptr, nullptr, who);
    // seq_cst, again for notify(): whoever notifies after this thread has looked at the epoch wakes the others.
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void EventCount::wake(std::uint32_t whom) {
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&epoch_), FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, nullptr, nullptr,
            whom);
}

void EventCount::notify() {
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    if (first_.load(std::memory_order_seq_cst) != 0)
        wake(kFirst);
    else if (sleepers_.load(std::memory_order_seq_cst) != 0)
        wake(kAnybody);
}

void EventCount::notify_all() {
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    wake(kAnybody | kFirst);
}

}  // namespace ostinato
