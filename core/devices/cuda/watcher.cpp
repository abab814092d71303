#include "devices/cuda/watcher.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

#include "park/threads.h"

namespace ostinato::cuda {

namespace {

using Clock = std::chrono::steady_clock;

// How it waits: for so long it asks again and again, then it sleeps a part of the time that has passed, so that it is
// late by that part at most; a long kernel costs it little.
constexpr std::chrono::microseconds kAsking{50}, kShortest{10}, kLongest{1000};
constexpr int kPart = 32;

}  // namespace

Result ask(const Api& api, Event event) {
    const Result code = api.event_query(event);
    return code == kSuccess || code == kNotReady ? code : api.event_synchronize(event);
}

Watcher::~Watcher() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable())
        thread_.join();
}

bool Watcher::start(Context context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!thread_.joinable())
        thread_ = start_thread_without_python([this, context] { run(context); });
    return thread_.joinable();
}

void Watcher::watch(Event event, Device::Done done, void* with) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        added_.push_back({event, done, with});
    }
    wake_.notify_one();
}

void Watcher::run(Context context) {
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
bool Watcher::ask_for(std::vector<Watched>& watched) {
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

}  // namespace ostinato::cuda
