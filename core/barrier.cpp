#include "barrier.h"

#include <utility>

namespace ostinato {

namespace {

void trigger(const std::vector<std::shared_ptr<Event>>& happened) {
    for (const std::shared_ptr<Event>& event : happened)
        event->trigger();
}

}  // namespace

bool Barrier::reserve(std::uint64_t phase, std::uint64_t count) {
    if (complete(phase) || count > arrivals_)
        return false;
    Phase& at = phases_[phase];
    if (count > arrivals_ - at.arrived - at.promised)
        return false;
    at.promised += count;
    return true;
}

void Barrier::make(std::uint64_t phase, std::uint64_t count, std::vector<std::shared_ptr<Event>>& happened) {
    Phase& at = phases_[phase];
    at.promised -= count;
    at.arrived += count;
    std::uint64_t done = this->phase();
    const std::uint64_t before = done;
    for (auto first = phases_.begin(); first != phases_.end() && first->first == done;
         first = phases_.erase(first), ++done) {
        if (first->second.arrived < arrivals_)
            break;
        if (first->second.event)
            happened.push_back(std::move(first->second.event));
    }
    if (done != before)
        publish(completed_, done);
}

bool Barrier::arrive(std::uint64_t phase, std::uint64_t count) {
    std::vector<std::shared_ptr<Event>> happened;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!reserve(phase, count))
            return false;
        make(phase, count, happened);
    }
    trigger(happened);
    return true;
}

bool Barrier::promise(std::uint64_t phase, std::uint64_t count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return reserve(phase, count);
}

std::optional<std::uint64_t> Barrier::promise(std::uint64_t count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::uint64_t current = phase();
    return reserve(current, count) ? std::optional(current) : std::nullopt;
}

void Barrier::keep(std::uint64_t phase, std::uint64_t count) {
    std::vector<std::shared_ptr<Event>> happened;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        make(phase, count, happened);
    }
    trigger(happened);
}

void Barrier::withdraw(std::uint64_t phase, std::uint64_t count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    phases_[phase].promised -= count;
}

bool Barrier::arrive_after(Event& after, std::uint64_t count) {
    const std::optional<std::uint64_t> phase = promise(count);
    if (!phase)
        return false;
    after.listen([self = shared_from_this(), phase = *phase, count](Event& happened) {
        if (happened.poisoned())
            self->withdraw(phase, count);
        else
            self->keep(phase, count);
    });
    return true;
}

std::uint64_t Barrier::left(std::uint64_t phase) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (complete(phase))
        return 0;
    const auto at = phases_.find(phase);
    return at == phases_.end() ? arrivals_ : arrivals_ - at->second.arrived - at->second.promised;
}

std::shared_ptr<Event> Barrier::event(std::uint64_t phase) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (complete(phase))
        return Event::happened();
    std::shared_ptr<Event>& event = phases_[phase].event;
    if (!event)
        event = std::make_shared<Event>();
    return event;
}

}  // namespace ostinato
