// Tells when the work that an event stands for has ended. Drivers call back for that, but PoCL does not if a command
// fails. So a thread looks at the events that are under way every now and then.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "devices/device.h"
#include "devices/opencl/api.h"
#include "park/threads.h"

namespace ostinato::opencl {

// An event that has failed stands for nothing that came before it on its queue: it may fail while that is at work.
// This waits for all of the queue.
inline void wait_for_queue_of(const Api& api, Event event) {
    Queue queue = nullptr;
    if (api.GetEventInfo(event, kEventCommandQueue, sizeof(queue), &queue, nullptr) == kSuccess && queue != nullptr)
        api.Finish(queue);
}

inline constexpr std::chrono::milliseconds kBetweenLooks{20};
inline constexpr std::size_t kFew = 64;

class Watcher {
public:
    explicit Watcher(const Api& api) : api_(api) {}
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

    // Calls done(with, code) once `event` has happened or failed. False: the driver takes no callback.
    bool watch(Event event, Device::Done done, void* with) {
        const auto watched = std::make_shared<Watched>(api_, event, done, with);
        auto passed = std::make_unique<std::shared_ptr<Watched>>(watched);
        if (api_.SetEventCallback(event, kComplete, called, passed.get()) != kSuccess)
            return false;
        static_cast<void>(passed.release());  // by now it may have been called
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!thread_.joinable())
            thread_ = start_thread_without_python([this] { run(); });
        if (watched_.size() >= enough_)
            forget_told();
        if (watched_.empty())
            wake_.notify_one();
        watched_.push_back(watched);
        return true;
    }

private:
    // Who tells of it, the driver's callback or the thread, takes `told`.
    struct Watched {
        Watched(const Api& its_api, Event its_event, Device::Done call, void* its_with)
            : api(its_api), event(its_event), done(call), with(its_with) {
            api.RetainEvent(event);
        }
        ~Watched() {
            if (!failed)  // PoCL goes on using those
                api.ReleaseEvent(event);
        }

        Watched(const Watched&) = delete;
        Watched& operator=(const Watched&) = delete;
        void tell(Int status) {
            if (told.exchange(true, std::memory_order_acq_rel))
                return;
            failed = status < 0;
            done(with, status < 0 ? status : kSuccess);
        }

        const Api& api;
        const Event event;
        const Device::Done done;
        void* const with;
        std::atomic<bool> told{false};
        bool failed = false;
    };

    static void called(Event, Int status, void* with) {
        const std::unique_ptr<std::shared_ptr<Watched>> watched(static_cast<std::shared_ptr<Watched>*>(with));
        if (status >= 0)
            (*watched)->tell(status);  // else the thread does: a callback must not wait
    }

    void run() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!closing_) {
            if (watched_.empty())
                wake_.wait(lock);
            else
                wake_.wait_for(lock, kBetweenLooks, [this] { return closing_; });
            lock.unlock();
            look();
            lock.lock();
        }
    }

    // Tells what has failed and was not told.
    void look() {
        std::vector<std::shared_ptr<Watched>> under_way;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            forget_told();
            under_way = watched_;
        }
        for (const auto& each : under_way) {
            Int status = kSuccess;
            const Int code = api_.GetEventInfo(each->event, kEventExecutionStatus, sizeof(status), &status, nullptr);
            if (code == kSuccess && status < 0) {
                wait_for_queue_of(api_, each->event);
                each->tell(status);
            }
        }
    }

    // mutex_ held
    void forget_told() {
        std::erase_if(watched_, [](const auto& each) { return each->told.load(std::memory_order_acquire); });
        enough_ = std::max(kFew, 2 * watched_.size());
    }

    const Api& api_;
    std::mutex mutex_;  // guards what follows
    std::condition_variable wake_;
    std::vector<std::shared_ptr<Watched>> watched_;  // and some of which was told
    std::size_t enough_ = 0;                         // from how many on those are looked for
    bool closing_ = false;
    std::thread thread_;
};

}  // namespace ostinato::opencl
