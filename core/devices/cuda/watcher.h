// Watches events of one CUDA device, on a thread of its own that starts with the first and never takes the GIL: calls
// back when their work has ended. It asks the driver, because the driver tells of nothing after a failure, and its own
// callbacks hold up its other work.
#pragma once

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "devices/cuda/api.h"
#include "devices/device.h"
#include "park/threads.h"

namespace ostinato::cuda {

// How it waits: for so long it asks again and again, then it sleeps a part of the time that has passed, so that it is
// late by that part at most; a long kernel costs it little.
inline constexpr std::chrono::microseconds kAsking{50}, kShortest{10}, kLongest{1000};
inline constexpr int kPart = 32;

// How the work that an event stands for has ended, or kNotReady. Where the driver cannot say, this waits for it.
inline Result ask(const Api& api, Event event) {
    const Result code = api.event_query(event);
    return code == kSuccess || code == kNotReady ? code : api.event_synchronize(event);
}

// While it lives, a capture that another thread began in CUDA's global mode does not mind what this one asks the
// driver.
class Relaxed {
public:
    explicit Relaxed(const Api& api) : api_(api) { api_.capture_mode(&mode_); }
    ~Relaxed() { api_.capture_mode(&mode_); }
    Relaxed(const Relaxed&) = delete;
    Relaxed& operator=(const Relaxed&) = delete;

private:
    const Api& api_;
    int mode_ = kCaptureRelaxed;
};

class Watcher {
public:
    explicit Watcher(std::shared_ptr<const Api> api) : api_(std::move(api)) {}
    ~Watcher() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            closing_ = true;
        }
        wake_.notify_one();
        if (thread_.joinable())
            thread_.join();
    }

    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;

    // Starts its thread. False: the system allows none.
    bool start(Context context) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!thread_.joinable())
            thread_ = start_thread_without_python([this, context] { run(context); });
        return thread_.joinable();
    }

    // Calls done(with, code) once `event` has happened; from its thread.
    void watch(Event event, Device::Done done, void* with) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            added_.push_back({event, done, with});
        }
        wake_.notify_one();
    }

private:
    using Clock = std::chrono::steady_clock;

    struct Watched {
        Event event;
        Device::Done done;
        void* with;
    };

    void run(Context context) {
        prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // ns; short sleeps are short
        api_->context_set(context);
        const Relaxed relaxed(*api_);
        std::vector<Watched> watched;
        Clock::time_point last = Clock::now();  // when there was something new
        for (;;) {
            {
                std::unique_lock<std::mutex> lock(mutex_);
                const auto due = [this] { return !added_.empty() || closing_; };
                if (watched.empty()) {
                    wake_.wait(lock, due);
                } else if (const auto passed = Clock::now() - last; passed > kAsking) {
                    const Clock::duration part = passed / kPart;
                    wake_.wait_for(lock, std::clamp<Clock::duration>(part, kShortest, kLongest),
                                   [this] { return !added_.empty(); });
                }
                if (watched.empty() && added_.empty())
                    return;  // closing
                if (!added_.empty())
                    last = Clock::now();
                watched.insert(watched.end(), added_.begin(), added_.end());
                added_.clear();
            }
            if (ask_for(watched))
                last = Clock::now();
            else
                std::this_thread::yield();
        }
    }

    // Calls back what has happened. False: nothing has.
    bool ask_for(std::vector<Watched>& watched) {
        const std::size_t before = watched.size();
        std::erase_if(watched, [this](const Watched& each) {
            const Result code = ask(*api_, each.event);
            if (code == kNotReady)
                return false;
            each.done(each.with, code);
            return true;
        });
        return watched.size() != before;
    }

    const std::shared_ptr<const Api> api_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<Watched> added_;
    bool closing_ = false;
    std::thread thread_;
};

}  // namespace ostinato::cuda
