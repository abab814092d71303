// A timeline: a monotonic 64-bit counter with one writer at a time. Every wait in the core is `timeline >= value`.
//
// Protocol of publish and park (core/DESIGN.md, "Publish and park"):
//   publisher: value.store(v, release); F; if (least_sleeper.load() <= v) wake
//   sleeper:   least_sleeper.store(w);  M; if (value.load() >= w) do not sleep
// F is a compiler fence. M lasts until every store that a publisher has made before is visible: either the publisher's
// load comes after M and sees the sleeper, or its store came before M and the sleeper sees the value. A slot that parks
// waits for that long, asleep. What is rarer is in a hurry, and calls membarrier(PRIVATE_EXPEDITED), which makes every
// running thread of the process execute a full fence. Where membarrier is refused, F is a full fence and so is M.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

namespace ostinato {

class Program;
class Slot;

// Stores reach memory within this time, thousands of times over.
constexpr std::int64_t kStoresTakeNs = 5'000'000;

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kLinePair = 128;  // two cache lines: the adjacent-line prefetcher pairs them

// Whether membarrier works here; fixed before the first thread of a machine starts.
extern bool asymmetric_fences;

// What a thread does between two looks at a word that another one will write.
inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// The publisher's side (F above). Ordered against `heavy_fence` on the other side.
inline void light_fence(bool unfenced = asymmetric_fences) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!unfenced) [[unlikely]]
        std::atomic_thread_fence(std::memory_order_seq_cst);
}

// The rare side (M above): a system call.
void heavy_fence();

// Registers this process for membarrier; sets `asymmetric_fences`. Called once, before threads start.
void prepare_fences();

struct alignas(kLinePair) Timeline {
    std::atomic<std::uint64_t> value{0};
    // Least value a parked slot waits for. On the pair's other line: the publisher reads it after each store, and
    // should not have to take back the line that pollers have just taken.
    alignas(kLinePair / 2) std::atomic<std::uint64_t> least_sleeper{kNever};

    struct Waiter {
        Slot* slot;  // null: a suspended program
        std::uint64_t value;
        Program* program = nullptr;
    };
    std::vector<Waiter> waiters;  // guarded by the parking mutex

    bool reached(std::uint64_t target) const { return value.load(std::memory_order_acquire) >= target; }
};

// Slow path of publish: notifies the event counts of the slots that wait for at most `value`, and lists suspended
// programs.
void wake_waiters(Timeline& timeline, std::uint64_t value);

// `unfenced` is asymmetric_fences, for loops that have it at hand.
inline void publish(Timeline& timeline, std::uint64_t value, bool unfenced = asymmetric_fences) {
    timeline.value.store(value, std::memory_order_release);
    light_fence(unfenced);
    if (timeline.least_sleeper.load(std::memory_order_relaxed) <= value) [[unlikely]]
        wake_waiters(timeline, value);
}

}  // namespace ostinato
