// Who serves: which lanes a slot finds, which threads are woken for what, and how they take slots.

#include <algorithm>
#include <iterator>

#include "lanes/machine.h"
#include "lanes/worker.h"
#include "park/parking.h"
#include "python/ops.h"
#include "python/thread.h"

namespace ostinato {

void Machine::list_locked(Program& program) {
    ++program.listing;
    program.listed.store(true, std::memory_order_relaxed);
    for (const auto& slot : slots_) {
        if (slot->incoming.size() > programs_.size() + few_listed) {  // it sleeps: looking at all is less
            slot->incoming.clear();
            slot->outdated = true;
        }
        if (!slot->outdated)
            slot->incoming.push_back({program.weak_from_this(), program.listing});
    }
    version_.fetch_add(1, std::memory_order_release);
}

void Machine::unlist_locked(Program& program) {
    program.listed.store(false, std::memory_order_relaxed);
    ++unlisted_;
    version_.fetch_add(1, std::memory_order_release);
}

void Machine::add_lanes(Slot& slot, const std::shared_ptr<Program>& program) {
    for (const auto& lane : program->lanes) {
        if (lane->order->affinity == slot.index) {
            slot.own.push_back({lane.get(), program, program->listing});
            if (lane->order->pinned)
                slot.pins.store(true, std::memory_order_relaxed);
        } else if (!lane->order->pinned) {
            slot.others.push_back({lane.get(), program, program->listing});
        }
    }
    looked_at.fetch_add(program->lanes.size(), std::memory_order_relaxed);
}

void Machine::refresh(Slot& slot, bool sweep) {
    std::vector<Slot::Listed> left;  // released after the lock
    std::vector<std::shared_ptr<Program>> programs;
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t listed = slot.own.size() + slot.others.size();
    slot.unswept = unlisted_ - slot.swept;
    if (slot.unswept != 0 && (sweep || slot.outdated || listed <= few_listed || slot.unswept > listed / 2)) {
        bool pins = false;
        for (auto* list : {&slot.own, &slot.others}) {
            const auto stays = [&](const Slot::Listed& entry) {
                return entry.listing == entry.program->listing && entry.program->listed.load(std::memory_order_relaxed);
            };
            const auto gone = std::stable_partition(list->begin(), list->end(), stays);
            left.insert(left.end(), std::make_move_iterator(gone), std::make_move_iterator(list->end()));
            list->erase(gone, list->end());
        }
        for (const Slot::Listed& entry : slot.own)
            pins = pins || entry.lane->order->pinned;
        slot.pins.store(pins, std::memory_order_relaxed);
        looked_at.fetch_add(listed, std::memory_order_relaxed);
        slot.swept = unlisted_;
        slot.unswept = 0;
        if (slot.next >= slot.own.size())
            slot.next = 0;
    }
    if (slot.outdated) {
        std::move(slot.own.begin(), slot.own.end(), std::back_inserter(left));
        std::move(slot.others.begin(), slot.others.end(), std::back_inserter(left));
        slot.own.clear();
        slot.others.clear();
        for (const auto& program : programs_) {
            if (program->listed.load(std::memory_order_relaxed))
                add_lanes(slot, program);
        }
    }
    for (const Slot::Incoming& entry : slot.incoming) {
        std::shared_ptr<Program> program = entry.program.lock();
        if (program && program->listed.load(std::memory_order_relaxed) && program->listing == entry.listing)
            add_lanes(slot, program);
        programs.push_back(std::move(program));
    }
    slot.incoming.clear();
    slot.outdated = false;
    slot.version = version_.load(std::memory_order_relaxed);
}

void Machine::suspend_waiting(Slot& slot) {
    std::vector<std::shared_ptr<Program>> programs;
    {
        const std::lock_guard<std::mutex> parking(parking_mutex());
        const std::lock_guard<std::mutex> lock(mutex_);
        for (const auto* list : {&slot.own, &slot.others}) {
            for (const Slot::Listed& entry : *list) {
                Program& program = *entry.program;
                if (!program.listed.load(std::memory_order_relaxed) || program.idle() || !program.hold_waiting_lanes())
                    continue;
                unlist_locked(program);
                program.suspended = true;
                register_program(program);
                programs.push_back(entry.program);
            }
        }
    }
    if (programs.empty())
        return;
    heavy_fence();  // whoever published or submitted without seeing that it is suspended is seen by us now
    for (const auto& program : programs) {
        if (program->idle() ||
            std::any_of(program->lanes.begin(), program->lanes.end(), [](const auto& lane) { return lane->reached(); }))
            activate(program);
        for (const auto& lane : program->lanes)
            give_back(*lane);
    }
}

void Machine::resume(Program& program) {
    unregister(program);
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!program.suspended)
            return;
        program.suspended = false;
        list_locked(program);
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);  // as in activate
    std::int32_t priority = INT32_MIN;
    for (const auto& lane : program.lanes)
        priority = std::max(priority, lane->priority.load(std::memory_order_relaxed));
    notify_slots(program, priority);
}

void Machine::give_back(Lane& lane) {
    Slot& affinity = *slots_[lane.order->affinity];
    lane.claim.store(0, std::memory_order_release);
    light_fence();  // against prepare_wait: it sees the claim free, or this sees it asleep
    if (lane.program->listed.load(std::memory_order_relaxed) && affinity.asleep.load(std::memory_order_relaxed))
        affinity.event_count.notify();
}

void Machine::notify_slots(const Program& program, std::int32_t priority) {
    bool busy = false;
    for (const std::uint32_t affinity : program.affinities) {
        Slot& slot = *slots_[affinity];
        if (slot.asleep.load(std::memory_order_relaxed)) {
            slot.event_count.notify();
        } else if (slot.in_call.load(std::memory_order_relaxed)) {
            busy = true;  // others serve its lanes
        } else if (slot.priority.load(std::memory_order_relaxed) < priority) {
            slot.attention.fetch_or(kLook, std::memory_order_relaxed);
        }
    }
    if (busy)
        notify_sleeper(nullptr);
}

void Machine::notify_sleeper(const Slot* except) {
    const auto sleeper = std::find_if(slots_.begin(), slots_.end(), [&](auto& slot) {
        return slot.get() != except && slot->asleep.load(std::memory_order_relaxed);
    });
    if (sleeper != slots_.end())
        (*sleeper)->event_count.notify();
}

Slot* Machine::sleeper_for_calls(const Slot* except) {
    Slot* found = nullptr;
    for (const auto& slot : slots_) {  // the last one: the first is wanted by threads in replay()
        if (slot.get() == except || !slot->asleep.load(std::memory_order_relaxed) || !takes_calls(*slot))
            continue;
        if (found == nullptr || found->pins.load(std::memory_order_relaxed) ||
            !slot->pins.load(std::memory_order_relaxed))
            found = slot.get();
    }
    return found;
}

void Machine::notify_for(const SpawnedCall& call) {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // against prepare_wait and Caller::leave
    Slot* best = nullptr;
    if (call.slot != kAnySlot) {
        best = slots_[static_cast<std::size_t>(call.slot)].get();
        if (best->asleep.load(std::memory_order_relaxed))
            return best->event_count.notify();
    } else {
        // A slot that polls takes the call soonest. It notifies another slot if calls are left.
        const auto polls = [this](auto& slot) {
            return slot->polling.load(std::memory_order_relaxed) && takes_calls(*slot);
        };
        if (const auto at = std::find_if(slots_.begin(), slots_.end(), polls); at != slots_.end()) {
            (*at)->attention.fetch_or(kLook, std::memory_order_relaxed);
            return;
        }
        best = sleeper_for_calls(nullptr);
        if (best != nullptr)
            return best->event_count.notify();
        for (const auto& slot : slots_) {
            if (takes_calls(*slot) && (best == nullptr || slot->priority.load(std::memory_order_relaxed) <
                                                              best->priority.load(std::memory_order_relaxed)))
                best = slot.get();
        }
    }
    if (best != nullptr && best->priority.load(std::memory_order_relaxed) <= call.priority)
        best->attention.fetch_or(kLook, std::memory_order_relaxed);
}

bool Machine::pass_on_calls(const Slot& slot) {
    Slot* const sleeper = calls_.ready_unbound() ? sleeper_for_calls(&slot) : nullptr;
    if (sleeper != nullptr)
        sleeper->event_count.notify();
    return sleeper != nullptr;
}

void Machine::pass_on(const Slot& slot) {
    const auto under_way = [](const Slot::Listed& listed) { return is_under_way(*listed.lane); };
    // Who takes a call passes on the lanes, in turn.
    if (!pass_on_calls(slot) &&
        (stale(slot) || std::ranges::any_of(slot.own, under_way) || std::ranges::any_of(slot.others, under_way)))
        notify_sleeper(&slot);
}

bool Machine::should_take_calls(const Slot& slot) {
    if (!takes_calls(slot))
        return false;
    if (!slot.pins.load(std::memory_order_relaxed) || !calls_.ready_unbound())
        return true;
    Slot* const sleeper = sleeper_for_calls(&slot);
    if (sleeper == nullptr || sleeper->pins.load(std::memory_order_relaxed))
        return true;
    sleeper->event_count.notify();
    return false;
}

void Machine::notify_all() {
    for (auto& slot : slots_)
        slot->event_count.notify_all();
}

void Machine::call_attention() {
    for (auto& slot : slots_)
        slot->attention.fetch_or(kLook, std::memory_order_release);  // with what it is called for
}

bool Machine::take_slot(Slot& slot, bool as_caller, bool for_call) {
    if (slot.taken.exchange(true, std::memory_order_seq_cst))
        return false;
    if (as_caller) {
        slot.by_caller.store(true, std::memory_order_relaxed);
        leave_core_to_caller();
        std::atomic_thread_fence(std::memory_order_seq_cst);  // against notify_for, which may have counted on this slot
        if (!for_call && calls_.ready_unbound()) [[unlikely]]
            pass_on_calls(slot);
    }
    if (own_asleep_.load(std::memory_order_seq_cst)) [[unlikely]]  // either we see this, or tick sees us
        wake_own();
    return true;
}

void Machine::leave_slot(Slot& slot) {
    slot.taken.exchange(false, std::memory_order_seq_cst);
    slot.notify_caller();
}

void Machine::work(std::size_t index) {
    Slot& slot = *slots_[index];
    PythonThread python(false);
    if (init)
        initialise_thread(*this, python);
    while (!closed()) {
        std::uint32_t epoch = slot.event_count.prepare_wait();
        if (slot.callers_waiting.load(std::memory_order_seq_cst) == 0 && take_slot(slot, false)) {
            {
                Worker worker(*this, slot, python);
                epoch = worker.serve_as_worker();
            }
            leave_slot(slot);
        }
        if (closed())
            break;
        slot.event_count.commit_wait(epoch, kStoresTakeNs);
        if (slot.event_count.prepare_wait() != epoch)
            continue;
        const bool taken = take_slot(slot, false);
        const bool waits = !taken || still_waits(*this, slot);  // who has it notifies when it leaves
        if (taken)
            leave_slot(slot);
        if (waits)
            slot.event_count.commit_wait(epoch, -1);
    }
}

}  // namespace ostinato
