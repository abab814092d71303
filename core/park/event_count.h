// An event count on a futex (as oneTBB's concurrent_monitor): a thread prepares its wait by reading the epoch, looks
// once more whether there is anything to do, and commits to the wait, which lasts only while nobody has notified since.
// To cancel a prepared wait, it does nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace ostinato {

class EventCount {
public:
    std::uint32_t prepare_wait() const { return epoch_.load(std::memory_order_seq_cst); }
    // Returns when notified after `epoch`, when `timeout_ns` has passed (negative: no limit), or on a signal.
    void commit_wait(std::uint32_t epoch, std::int64_t timeout_ns) { wait(epoch, timeout_ns, kAnybody); }
    // The same, for the thread that holds what the others wait for: while it sleeps, `notify` wakes nobody else.
    void commit_wait_first(std::uint32_t epoch, std::int64_t timeout_ns) { wait(epoch, timeout_ns, kFirst); }
    void notify();
    void notify_all();

private:
    enum Who : std::uint32_t { kAnybody = 1, kFirst = 2 };  // of FUTEX_WAIT_BITSET
    void wait(std::uint32_t epoch, std::int64_t timeout_ns, Who who);
    void wake(std::uint32_t whom);

    std::atomic<std::uint32_t> epoch_{0};
    std::atomic<std::uint32_t> sleepers_{0}, first_{0};  // the latter are not among the former
};

}  // namespace ostinato
