// The bodies of the tasks, in a library of their own so that no contestant can inline them.
#include <time.h>

#include <atomic>
#include <cstdint>

#include "ostinato.h"

namespace {

// What the checking task keeps per op, as 64-bit words that the driver lays out.
struct Check {
    std::atomic<int64_t> count;
    int64_t errors;
    int64_t n_sources;
    const Check* const* sources;
    const int64_t* distances;
};

// What the validating task knows of an op, as 64-bit words that the driver lays out. Its arrays are lines of 64-bit
// words: first the one that it writes, then those that it reads.
struct Validated {
    int64_t op;
    int64_t iterations;
    int64_t n_sources;
    const int64_t* sources;    // ops
    const int64_t* distances;  // how many steps before they were written
};

struct Work {
    uint64_t mask;              // one less than the number of entries, which is a power of two
    const int64_t* iterations;  // by step
};

// Multiplications and additions in as many independent chains as keep the units busy: of one chain, a processor that
// looks ahead would run the chains of several tasks at once, and small tasks would seem to be faster than the serial
// rate.
void compute(int64_t iterations) {
    constexpr int chains = 12;
    double values[chains] = {};
    for (int64_t i = iterations; i > 0; --i) {
        for (double& value : values) {
            value = value * 0.999999 + 1e-6;
            asm volatile("" : "+x"(value));
        }
    }
}

}  // namespace

extern "C" {

int32_t task_empty(const ost_call*) { return 0; }

// Counts its calls, and counts as an error every call that comes before something it depends on.
int32_t task_check(const ost_call* call) {
    auto& own = *static_cast<Check*>(call->user);
    const int64_t step = own.count.load(std::memory_order_relaxed);
    if (static_cast<uint64_t>(step) != call->step)
        ++own.errors;
    for (int64_t i = 0; i < own.n_sources; ++i) {
        if (own.sources[i]->count.load(std::memory_order_relaxed) <= step - own.distances[i])
            ++own.errors;
    }
    own.count.store(step + 1, std::memory_order_relaxed);
    return 0;
}

// Writes down when it ran, in nanoseconds of the clock that Python's perf_counter_ns() reads.
int32_t task_stamp(const ost_call* call) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    *static_cast<int64_t*>(call->user) = now.tv_sec * 1'000'000'000 + now.tv_nsec;
    return 0;
}

// As Task Bench's tasks: checks that everything it reads was written by the right op in the right step, computes, and
// writes its own op and step.
int32_t task_validate(const ost_call* call) {
    const auto& own = *static_cast<const Validated*>(call->user);
    const auto step = static_cast<int64_t>(call->step);
    for (int64_t i = 0; i < own.n_sources; ++i) {
        const auto* const input = static_cast<const int64_t*>(call->data[i + 1]);
        const int64_t written = step - own.distances[i];
        if (written >= 0 && (input[0] != written || input[1] != own.sources[i]))
            return 1;
    }
    if (own.iterations != 0)
        compute(own.iterations);
    auto* const output = static_cast<int64_t*>(call->data[0]);
    output[0] = step;
    output[1] = own.op;
    return 0;
}

int32_t task_work(const ost_call* call) {
    const auto& work = *static_cast<const Work*>(call->user);
    compute(work.iterations[call->step & work.mask]);
    return 0;
}
}
