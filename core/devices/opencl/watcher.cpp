#include "devices/opencl/watcher.h"

#include <algorithm>
#include <chrono>

#include "park/threads.h"

namespace ostinato::opencl {

namespace {

constexpr std::chrono::milliseconds kBetweenLooks{20};
constexpr std::size_t kFew = 64;

}  // namespace

void Watcher::Watched::tell(Int status) {
    if (told.exchange(true, std::memory_order_acq_rel))
        return;
    failed = status < 0;
    done(with, status < 0 ? status : kSuccess);
}

Watcher::Watched::~Watched() {
    if (!failed)  // PoCL goes on using those
        api.ReleaseEvent(event);
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

void Watcher::called(Event, Int status, void* with) {
    const std::unique_ptr<std::shared_ptr<Watched>> watched(static_cast<std::shared_ptr<Watched>*>(with));
    if (status >= 0)
        (*watched)->tell(status);  // else the thread does: a callback must not wait
}

void wait_for_queue_of(const Api& api, Event event) {
    Queue queue = nullptr;
    if (api.GetEventInfo(event, kEventCommandQueue, sizeof(queue), &queue, nullptr) == kSuccess && queue != nullptr)
        api.Finish(queue);
}

bool Watcher::watch(Event event, Device::Done done, void* with) {
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

void Watcher::run() {
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

void Watcher::forget_told() {
    std::erase_if(watched_, [](const auto& each) { return each->told.load(std::memory_order_acquire); });
    enough_ = std::max(kFew, 2 * watched_.size());
}

// Tells what has failed and was not told.
void Watcher::look() {
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

}  // namespace ostinato::opencl
