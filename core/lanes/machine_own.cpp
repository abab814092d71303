// The machine's own thread: callbacks, runs to abort, and a look at everything now and then.

#include <algorithm>
#include <chrono>

#include "lanes/machine.h"
#include "python/interrupt.h"
#include "python/ops.h"
#include "python/thread.h"

namespace ostinato {

void Machine::wake_own() {
    const std::lock_guard<std::mutex> lock(own_mutex_);
    own_wake_.notify_all();
}

void Machine::do_soon(std::function<void(PythonThread&)> job) {
    const std::lock_guard<std::mutex> lock(own_mutex_);
    due_.push_back(std::move(job));
    own_wake_.notify_all();
}

void Machine::call_back(std::shared_ptr<Run> run) {
    do_soon([run = std::move(run)](PythonThread& python) { run_callbacks(*run, python); });
}

void Machine::abort_later(std::shared_ptr<Program> program, std::shared_ptr<Run> run) {
    const std::lock_guard<std::mutex> lock(own_mutex_);
    cancelled_.push_back({std::move(program), std::move(run), monotonic_ns() + 100'000'000});
    own_wake_.notify_all();
}

void Machine::tick(std::size_t) {
    own_id_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    constexpr int kQuietTicks = 50;
    PythonThread python(false);
    int quiet = 0;
    std::unique_lock<std::mutex> lock(own_mutex_);
    const auto anybody = [this] {
        return std::any_of(slots_.begin(), slots_.end(), [](auto& slot) { return slot->taken.load(); });
    };
    while (!closed() || !due_.empty()) {
        if (!due_.empty()) {
            std::vector<std::function<void(PythonThread&)>> jobs;
            jobs.swap(due_);
            lock.unlock();
            for (const auto& job : jobs)
                job(python);
            python.acquire();  // they may hold the last reference to Python objects
            jobs.clear();
            python.release();
            lock.lock();
            continue;
        }
        if (!cancelled_.empty()) {
            std::vector<Cancelled> due;  // ends outside the lock: it may hold the last reference to Python objects
            const std::int64_t now = monotonic_ns();
            std::erase_if(cancelled_, [&](Cancelled& entry) {
                const bool is_due = entry.deadline <= now || entry.run->done.load(std::memory_order_acquire);
                if (is_due)
                    due.push_back(std::move(entry));
                return is_due;
            });
            if (!due.empty()) {
                lock.unlock();
                for (Cancelled& entry : due)
                    entry.program->abort(*entry.run);
                due.clear();
                lock.lock();
            }
        }
        quiet = anybody() ? 0 : quiet + 1;
        const bool starving = blocking_pool_.starving();
        if (starving)
            blocking_pool_.grow();
        if (quiet <= kQuietTicks || !cancelled_.empty() || starving) {
            for (auto& slot : slots_) {
                if (slot->taken.load(std::memory_order_relaxed))
                    slot->attention.fetch_or(kLook, std::memory_order_relaxed);
            }
            own_wake_.wait_for(lock, std::chrono::milliseconds(20));
            continue;
        }
        restore_interrupts();
        own_asleep_.store(true, std::memory_order_seq_cst);  // against take_slot: one of us sees the other
        if (!anybody() && !closed())
            own_wake_.wait(lock);
        own_asleep_.store(false, std::memory_order_relaxed);
        quiet = 0;
    }
    const std::vector<Cancelled> rest = std::move(cancelled_);  // they hold programs, which hold this machine
    lock.unlock();
}

}  // namespace ostinato
