// A doorbell: an event count on a futex. A sleeper reads the ticket, looks once more whether there is anything to do,
// and sleeps only while nobody has rung since.
#pragma once

#include <atomic>
#include <cstdint>

namespace ostinato {

class Doorbell {
public:
    std::uint32_t ticket() const { return rings_.load(std::memory_order_seq_cst); }
    // Returns when rung after `ticket`, when `timeout_ns` has passed (negative: no limit), or on a signal.
    void sleep(std::uint32_t ticket, std::int64_t timeout_ns) { wait(ticket, timeout_ns, kAnybody); }
    // The same, for whoever has the place that the others wait for: while it sleeps, `ring` wakes nobody else.
    void sleep_first(std::uint32_t ticket, std::int64_t timeout_ns) { wait(ticket, timeout_ns, kFirst); }
    void ring();
    void ring_everybody();

private:
    enum Who : std::uint32_t { kAnybody = 1, kFirst = 2 };  // of FUTEX_WAIT_BITSET
    void wait(std::uint32_t ticket, std::int64_t timeout_ns, Who who);
    void wake(std::uint32_t whom);

    std::atomic<std::uint32_t> rings_{0};
    std::atomic<std::uint32_t> sleepers_{0}, first_{0};  // the latter are not among the former
};

}  // namespace ostinato
