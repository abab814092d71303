// What a test tells a fake device, and asks it.
#include <memory>
#include <mutex>
#include <vector>

#include "device.h"

namespace ostinato {

namespace {

std::mutex all_mutex;
std::vector<std::weak_ptr<FakeDevice>> all;

}  // namespace

std::shared_ptr<FakeDevice> FakeDevice::make(bool manual) {
    const std::shared_ptr<FakeDevice> device(new FakeDevice(manual));
    const std::lock_guard lock(all_mutex);
    std::erase_if(all, [](const auto& other) { return other.expired(); });
    all.push_back(device);
    return device;
}

void FakeDevice::lose_all() {
    std::vector<std::weak_ptr<FakeDevice>> devices;
    {
        const std::lock_guard lock(all_mutex);
        devices.swap(all);
    }
    for (const auto& other : devices)
        if (const std::shared_ptr<FakeDevice> device = other.lock())
            device->lose();
}

void FakeDevice::fail_call(Method method, std::uint64_t nth, std::int32_t code) {
    const Lock lock(mutex_);
    failing_[static_cast<std::size_t>(method)] = {nth, code};
}

void FakeDevice::fail_piece(std::uint64_t nth, std::int32_t code) {
    const Lock lock(mutex_);
    failing_piece_ = {nth, code};
}

void FakeDevice::lose() {
    if (here_.forked())
        return;
    Lock lock(mutex_);
    broken_ = kLost;
    if (manual_)
        tell(lock);
    wake();
}

void FakeDevice::set_manual(bool manual) {
    const Lock lock(mutex_);
    manual_ = manual;
    wake();
}

void FakeDevice::set_delays(Delays delays) {
    const Lock lock(mutex_);
    delays_ = delays;
}

void FakeDevice::set_capacity(std::int64_t bytes) {
    const Lock lock(mutex_);
    capacity_ = bytes;
}

void FakeDevice::set_captures(bool captures) {
    const Lock lock(mutex_);
    captures_ = captures;
}

void FakeDevice::set_message(std::string message) {
    const Lock lock(mutex_);
    message_ = std::move(message);
}

void FakeDevice::clear_log() {
    const Lock lock(mutex_);
    log_.clear();
    counters_ = {};
}

FakeDevice::Counters FakeDevice::counters() const {
    const Lock lock(mutex_);
    return counters_;
}

std::vector<FakeDevice::Entry> FakeDevice::log() const {
    const Lock lock(mutex_);
    return log_;
}

std::size_t FakeDevice::in_flight() const {
    const Lock lock(mutex_);
    return in_flight_;
}

std::size_t FakeDevice::streams() const {
    const Lock lock(mutex_);
    return streams_.size();
}

std::int64_t FakeDevice::allocated() const {
    const Lock lock(mutex_);
    return allocated_;
}

}  // namespace ostinato
