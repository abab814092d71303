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
    void sleep(std::uint32_t ticket, std::int64_t timeout_ns);
    void ring();

private:
    std::atomic<std::uint32_t> rings_{0};
    std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace ostinato
