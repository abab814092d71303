#include "park/parking.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

namespace ostinato {

std::mutex& parking_mutex() {
    static std::mutex mutex;
    return mutex;
}

namespace {

constexpr int kStoresUsuallyTake = 32;  // times `relax`: a microsecond

// How many threads have taken slots from timelines that they are about to notify.
std::atomic<std::uint32_t> notifiers{0};

void set_least(Timeline& timeline) {
    std::uint64_t least = kNever;
    for (const Timeline::Waiter& waiter : timeline.waiters)
        least = std::min(least, waiter.value);
    timeline.least_sleeper.store(least, std::memory_order_relaxed);
}

void add_waiter(Timeline& timeline, Slot& slot, std::uint64_t value) {
    timeline.waiters.push_back({&slot, value});
    if (value < timeline.least_sleeper.load(std::memory_order_relaxed))
        timeline.least_sleeper.store(value, std::memory_order_relaxed);
}

// Nobody waits for a frontier: whoever submits notifies the slots that sleep.
bool waits_for_work(const Lane& lane, const Timeline* timeline) { return timeline == &lane.program->frontier; }

void unregister(Slot& slot) {
    const std::lock_guard<std::mutex> lock(parking_mutex());
    for (const Slot::Registration& entry : slot.registered) {
        std::erase_if(entry.timeline->waiters, [&](auto& waiter) { return waiter.slot == &slot; });
        set_least(*entry.timeline);
    }
    slot.registered.clear();
}

void register_lane(Slot& slot, const Lane& lane) {
    if (lane.claim.load(std::memory_order_acquire) != 0)
        return;  // whoever gives the claim back notifies this slot
    Timeline* const timeline = lane.blocked_on.load(std::memory_order_relaxed);
    const std::uint64_t until = lane.blocked_until.load(std::memory_order_relaxed);
    if (timeline == nullptr || waits_for_work(lane, timeline))
        return;
    add_waiter(*timeline, slot, until);
    slot.registered.push_back({&lane, timeline, until});
}

// A lane that this slot is to look after must be one it will be notified for, when it is free.
bool covered(const Slot& slot, const Lane& lane) {
    if (lane.claim.load(std::memory_order_acquire) != 0)
        return true;
    if (lane.ready())
        return false;
    Timeline* const timeline = lane.blocked_on.load(std::memory_order_relaxed);
    if (timeline != nullptr && waits_for_work(lane, timeline))
        return true;
    const std::uint64_t until = lane.blocked_until.load(std::memory_order_relaxed);
    return std::any_of(slot.registered.begin(), slot.registered.end(), [&](const Slot::Registration& entry) {
        return entry.lane == &lane && entry.timeline == timeline && entry.until == until;
    });
}

}  // namespace

void wake_waiters(Timeline& timeline, std::uint64_t value) {
    // Most are notified without the lock: who wakes up asks for it, and would sleep again.
    std::vector<Program*> suspended;
    std::array<Slot*, 8> later;
    std::size_t n_later = 0;
    {
        const std::lock_guard<std::mutex> lock(parking_mutex());
        std::erase_if(timeline.waiters, [&](const Timeline::Waiter& waiter) {
            if (waiter.value > value)
                return false;
            if (waiter.program != nullptr)
                suspended.push_back(waiter.program);
            else if (n_later < later.size())
                later[n_later++] = waiter.slot;
            else
                waiter.slot->event_count.notify();
            return true;
        });
        set_least(timeline);
        for (Program* const program : suspended)
            program->machine->resume(*program);
        notifiers.fetch_add(1, std::memory_order_relaxed);
    }
    for (std::size_t i = 0; i < n_later; ++i)
        later[i]->event_count.notify();
    notifiers.fetch_sub(1, std::memory_order_release);
}

void register_program(Program& program) {
    for (const auto& lane : program.lanes) {
        Timeline* const timeline = lane->blocked_on.load(std::memory_order_relaxed);
        // Lanes of its own stand still, and whoever submits looks whether it is listed.
        if (waits_for_work(*lane, timeline) ||
            std::any_of(program.lanes.begin(), program.lanes.end(),
                        [&](const auto& other) { return &other->timeline == timeline; }))
            continue;
        const std::uint64_t until = lane->blocked_until.load(std::memory_order_relaxed);
        timeline->waiters.push_back({nullptr, until, &program});
        set_least(*timeline);
        program.suspended_on.push_back(timeline);
    }
}

void unregister(Program& program) {
    for (Timeline* const timeline : program.suspended_on) {
        std::erase_if(timeline->waiters, [&](auto& waiter) { return waiter.program == &program; });
        set_least(*timeline);
    }
    program.suspended_on.clear();
}

void forget_waiters(Timeline& timeline) {
    const std::lock_guard<std::mutex> lock(parking_mutex());
    timeline.waiters.clear();
    set_least(timeline);
}

void wait_for_notifiers() {
    while (notifiers.load(std::memory_order_acquire) != 0)
        std::this_thread::yield();
}

bool is_under_way(const Lane& lane) {
    return lane.ready() || lane.claim.load(std::memory_order_relaxed) != 0 ||
           !waits_for_work(lane, lane.blocked_on.load(std::memory_order_relaxed));
}

bool may_take_over(const Machine& machine, const Lane& lane) {
    const Slot& affinity = *machine.slots()[lane.order->affinity];
    if (affinity.asleep.load(std::memory_order_relaxed) || affinity.in_call.load(std::memory_order_relaxed))
        return true;
    const Lane* const running = affinity.running.load(std::memory_order_relaxed);
    return running != nullptr && running != &lane;
}

bool still_waits(Machine& machine, const Slot& slot) {
    if (machine.closed() || machine.stale(slot) || slot.attention.load(std::memory_order_relaxed) != 0 ||
        machine.calls().ready(slot.index, machine.takes_calls(slot)))
        return false;
    for (const Slot::Listed& listed : slot.own) {
        if (!covered(slot, *listed.lane))
            return false;
    }
    for (const Slot::Listed& listed : slot.others) {
        // Where the slot is in a call, nobody but a slot that sleeps may be there to be notified.
        const bool in_call = machine.slots()[listed.lane->order->affinity]->in_call.load(std::memory_order_relaxed);
        if (in_call ? !covered(slot, *listed.lane) : listed.lane->ready() && may_take_over(machine, *listed.lane))
            return false;
    }
    return true;
}

bool prepare_wait(Machine& machine, Slot& slot) {
    machine.sleepers.fetch_add(1, std::memory_order_relaxed);
    slot.asleep.store(true, std::memory_order_relaxed);
    {
        const std::lock_guard<std::mutex> lock(parking_mutex());
        for (const Slot::Listed& listed : slot.own)
            register_lane(slot, *listed.lane);
        for (const Slot::Listed& listed : slot.others) {
            if (may_take_over(machine, *listed.lane))
                register_lane(slot, *listed.lane);
        }
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);
    // Whoever published, submitted or gave a claim back without seeing us is almost always seen by us after this, and
    // always by `still_waits` after kStoresTakeNs.
    for (int i = 0; asymmetric_fences && i < kStoresUsuallyTake; ++i)
        relax();
    if (still_waits(machine, slot))
        return true;
    cancel_wait(machine, slot);
    return false;
}

void cancel_wait(Machine& machine, Slot& slot) {
    if (!slot.asleep.load(std::memory_order_relaxed))
        return;
    slot.asleep.store(false, std::memory_order_relaxed);
    machine.sleepers.fetch_sub(1, std::memory_order_relaxed);
    if (!slot.registered.empty())
        unregister(slot);
}

void offer_lanes(Machine& machine, Slot& slot, const Lane* chosen) {
    Slot* sleeper = nullptr;
    for (const auto& other : machine.slots()) {
        if (other.get() != &slot && other->asleep.load(std::memory_order_relaxed))
            sleeper = other.get();
    }
    if (sleeper == nullptr)
        return;
    for (const Slot::Listed& listed : slot.own) {
        Lane& lane = *listed.lane;
        if (&lane == chosen || lane.order->pinned || lane.claim.load(std::memory_order_acquire) != 0)
            continue;
        if (lane.ready()) {
            sleeper->event_count.notify();
            return;
        }
        // The sleeper does not keep this timeline alive, so it is not told of the entry: at worst it is notified in
        // vain.
        Timeline* const timeline = lane.blocked_on.load(std::memory_order_relaxed);
        if (timeline == nullptr || waits_for_work(lane, timeline))
            continue;
        const std::lock_guard<std::mutex> lock(parking_mutex());
        if (std::none_of(timeline->waiters.begin(), timeline->waiters.end(),
                         [&](auto& waiter) { return waiter.slot == sleeper; }))
            add_waiter(*timeline, *sleeper, lane.blocked_until.load(std::memory_order_relaxed));
    }
}

}  // namespace ostinato
