#include "outside/blocking_pool.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "lanes/floating_point.h"
#include "lanes/machine.h"
#include "park/threads.h"
#include "python/ops.h"
#include "python/thread.h"

namespace ostinato {

namespace {

constexpr std::chrono::seconds kIdle{3};  // a thread costs little while it sleeps, and 20 us to make

thread_local const BlockingPool* current = nullptr;

}  // namespace

bool BlockingPool::here() const { return current == this; }

void BlockingPool::run(Job job) {
    bool starving = false;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        jobs_.push_back(std::move(job));
        grow_locked();
        starving = jobs_.size() > idle_;
        if (idle_ != 0)
            wake_.notify_one();
    }
    if (starving)
        machine_.wake_own();  // its thread tries again
}

bool BlockingPool::grow_if_starving() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool starving = jobs_.size() > idle_;
    grow_locked();
    return starving;
}

void BlockingPool::grow_locked() {
    while (jobs_.size() > idle_) {
        try {
            start_thread([this, machine = machine_.shared_from_this()] { work(); }).detach();
        } catch (const std::system_error&) {
            return;
        }
        ++threads_;
        ++idle_;  // from the start: it will look for a job before it sleeps
    }
}

void BlockingPool::work() {
    current = this;
    {
        PythonThread python(false);
        if (machine_.init)
            initialise_thread(machine_, python);
        const FloatingPointMode mode = FloatingPointMode::current();
        std::unique_lock<std::mutex> lock(mutex_);
        const auto due = [this] { return !jobs_.empty() || closing_; };
        while (wake_.wait_for(lock, kIdle, due) && !jobs_.empty()) {
            Job job = std::move(jobs_.front());
            jobs_.pop_front();
            --idle_;
            lock.unlock();
            job(python);
            job = nullptr;
            python.release();
            mode.apply();
            lock.lock();
            ++idle_;
        }
        --idle_;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--threads_ == 0)
        ended_.notify_all();
}

void BlockingPool::close(bool wait) {
    std::unique_lock<std::mutex> lock(mutex_);
    closing_ = true;
    wake_.notify_all();
    if (wait && !here())
        ended_.wait(lock, [this] { return threads_ == 0; });
}

}  // namespace ostinato
