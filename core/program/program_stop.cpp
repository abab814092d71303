// How runs are stopped: core/DESIGN.md, "Stopping".
#include <algorithm>

#include "lanes/machine.h"
#include "program/program.h"

namespace ostinato {

bool Program::stop_locked(Run& run, std::uint64_t at_least) {
    if (run.done.load(std::memory_order_acquire))
        return false;
    const std::uint64_t limit = run.limit();
    run.bound.store(kDeciding, std::memory_order_release);
    heavy_fence();  // every lane has stored the step it begins, or will see that we decide and wait for our mutex
    std::uint64_t steps = at_least;
    for (const auto& lane : lanes) {
        const std::uint64_t in = lane->run_index.load(std::memory_order_acquire);
        if (in > run.index)
            steps = limit;
        else if (in == run.index)
            steps = std::max(
                steps, lane->begun.load(std::memory_order_relaxed) - run.first.load(std::memory_order_relaxed) + 1);
    }
    run.set_limit(std::min(steps, limit));
    return true;
}

bool Program::cancel(Run& run) {
    Told told;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto at =
            std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& entry) { return entry.get() == &run; });
        if (at == waiting_.end()) {
            if (!stop_locked(run, 0))
                return false;
            run.cancelled = true;
            if (!run.started) {
                run.started = true;
                start_locked();
            }
            return true;
        }
        run.cancelled = true;
        run.set_limit(0);
        told = end_locked(std::move(*at));
        waiting_.erase(at);
    }
    tell(told);
    unqueued.fetch_sub(1, std::memory_order_seq_cst);  // against Machine::suspend_waiting
    if (!listed.load(std::memory_order_seq_cst))
        machine->activate(shared_from_this());  // to be retired, if it is idle now
    return true;
}

void Program::abort(Run& run) {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!stop_locked(run, 0))
            return;
        run.aborted.store(true, std::memory_order_release);
        go_slow_locked();
    }
    for (const auto& signal : signals) {
        // The lane looks whether its run is aborted, and arms, under one hold of this; so that either it sees the
        // abort, or we see that it is in the run, and what is armed is not a later run's.
        const std::lock_guard<std::mutex> lock(signal->mutex);
        if (lanes[signal->lane]->run_index.load(std::memory_order_acquire) != run.index)
            continue;
        if (!signal->firm && signal->timeline.value.load(std::memory_order_relaxed) < signal->armed)
            publish(signal->timeline, signal->armed);
    }
    machine->call_attention();
}

void Program::stop_at(Run& run, std::uint64_t last_step) {
    const std::lock_guard<std::mutex> lock(mutex);
    const std::uint64_t steps = last_step - run.first.load(std::memory_order_relaxed) + 1;
    // No lane has begun a later step: all wait for this verdict before they read the limit.
    if (steps <= run.limit())
        run.met = true;
    if (steps < run.limit())
        run.set_limit(steps);
}

}  // namespace ostinato
