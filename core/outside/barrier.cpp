#include "outside/barrier.h"

#include <algorithm>
#include <utility>

namespace ostinato {

namespace {

void trigger(const std::vector<std::shared_ptr<Event>>& happened) {
    for (const std::shared_ptr<Event>& event : happened)
        event->trigger();
}

}  // namespace

void Barrier::attend(const std::shared_ptr<Attendance>& run, std::uint64_t least) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::uint64_t base = phase();
    if (run->count != 0) {
        base = std::max(base, expected_below_);
        while (expects_all_locked(base))
            base = next_change_locked(base);
        expected_below_ = base;
    }
    base = std::max(base, least);
    for (const std::shared_ptr<Attendance>& other : attending_) {
        if (other->waits && run->program != nullptr && other->program == run->program)
            base = std::max(base, other->end());
    }
    run->base = base;
    attending_.push_back(run);
}

void Barrier::leave(const std::shared_ptr<Attendance>& run) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::erase(attending_, run) != 0)
        expected_below_ = 0;
}

// Whether all arrivals of `phase` are made, promised, or expected of runs that attend.
bool Barrier::expects_all_locked(std::uint64_t phase) const {
    std::uint64_t left = left_locked(phase);
    for (const std::shared_ptr<Attendance>& run : attending_) {
        if (phase < run->base || phase >= run->end())
            continue;
        const auto known = run->made.find(phase);
        const std::uint64_t so_far = known == run->made.end() ? 0 : known->second;
        left -= std::min(left, run->count - std::min(run->count, so_far));
    }
    return left == 0;
}

// The least phase after `phase` of which something else may be expected. There is one, since runs come to an end.
std::uint64_t Barrier::next_change_locked(std::uint64_t phase) const {
    std::uint64_t next = UINT64_MAX;
    const auto consider = [&](std::uint64_t other) {
        if (other > phase)
            next = std::min(next, other);
    };
    const auto consider_all = [&](const auto& phases) {
        if (phases.contains(phase))
            consider(phase + 1);
        if (const auto after = phases.upper_bound(phase); after != phases.end())
            consider(after->first);
    };
    consider_all(phases_);
    for (const std::shared_ptr<Attendance>& run : attending_) {
        consider(run->base);
        consider(run->end());
        consider_all(run->made);
    }
    return next;
}

bool Barrier::reserve(std::uint64_t phase, std::uint64_t count, Attendance* run) {
    if (complete(phase) || count > arrivals_)
        return false;
    Phase& at = phases_[phase];
    if (count > arrivals_ - at.arrived - at.promised)
        return false;
    at.promised += count;
    if (run != nullptr) {
        run->made.erase(run->made.begin(), run->made.lower_bound(this->phase()));
        run->made[phase] += count;
    }
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

bool Barrier::arrive(std::uint64_t phase, std::uint64_t count, Attendance* run) {
    std::vector<std::shared_ptr<Event>> happened;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!reserve(phase, count, run))
            return false;
        make(phase, count, happened);
    }
    trigger(happened);
    return true;
}

bool Barrier::promise(std::uint64_t phase, std::uint64_t count, Attendance* run) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return reserve(phase, count, run);
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
    expected_below_ = 0;
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
    return left_locked(phase);
}

std::uint64_t Barrier::left_locked(std::uint64_t phase) const {
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
