// Who serves: which lanes a seat finds, who is woken for what, and the threads that sit down.

#include <algorithm>

#include "lanes/machine.h"
#include "lanes/server.h"
#include "python/ops.h"
#include "python/thread.h"

namespace ostinato {

void Machine::refresh(Seat& seat) {
    std::vector<Seat::Listed> old_own, old_others;  // released after the lock
    const std::lock_guard<std::mutex> lock(mutex_);
    old_own.swap(seat.own);
    old_others.swap(seat.others);
    seat.next = 0;
    bool pins = false;
    for (const auto& program : programs_) {
        for (const auto& lane : program->lanes) {
            if (lane->order->home == seat.index) {
                seat.own.push_back({lane.get(), program});
                pins = pins || lane->order->pinned;
            } else if (!lane->order->pinned) {
                seat.others.push_back({lane.get(), program});
            }
        }
    }
    seat.pins.store(pins, std::memory_order_relaxed);
    seat.version = version_.load(std::memory_order_relaxed);
}

void Machine::ring_homes(const Program& program, std::int32_t priority) {
    bool busy = false;
    for (const std::uint32_t home : program.homes) {
        Seat& seat = *seats_[home];
        if (seat.asleep.load(std::memory_order_relaxed)) {
            seat.doorbell.ring();
        } else if (seat.in_call.load(std::memory_order_relaxed)) {
            busy = true;  // others serve its lanes
        } else if (seat.priority.load(std::memory_order_relaxed) < priority) {
            seat.attention.fetch_or(kLook, std::memory_order_relaxed);
        }
    }
    if (busy)
        ring_sleeper(nullptr);
}

void Machine::ring_sleeper(const Seat* except) {
    const auto sleeper = std::find_if(seats_.begin(), seats_.end(), [&](auto& seat) {
        return seat.get() != except && seat->asleep.load(std::memory_order_relaxed);
    });
    if (sleeper != seats_.end())
        (*sleeper)->doorbell.ring();
}

Seat* Machine::sleeper_for_calls(const Seat* except) {
    Seat* found = nullptr;
    for (const auto& seat : seats_) {  // the last one: the first is wanted by threads in replay()
        if (seat.get() == except || !seat->asleep.load(std::memory_order_relaxed) || !takes_calls(*seat))
            continue;
        if (found == nullptr || found->pins.load(std::memory_order_relaxed) ||
            !seat->pins.load(std::memory_order_relaxed))
            found = seat.get();
    }
    return found;
}

void Machine::ring_for(const SpawnedCall& call) {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // against fall_asleep and Caller::leave
    Seat* best = nullptr;
    if (call.seat != kAnySeat) {
        best = seats_[static_cast<std::size_t>(call.seat)].get();
        if (best->asleep.load(std::memory_order_relaxed))
            return best->doorbell.ring();
    } else {
        best = sleeper_for_calls(nullptr);
        if (best != nullptr)
            return best->doorbell.ring();
        for (const auto& seat : seats_) {
            if (takes_calls(*seat) && (best == nullptr || seat->priority.load(std::memory_order_relaxed) <
                                                              best->priority.load(std::memory_order_relaxed)))
                best = seat.get();
        }
    }
    if (best != nullptr && best->priority.load(std::memory_order_relaxed) <= call.priority)
        best->attention.fetch_or(kLook, std::memory_order_relaxed);
}

bool Machine::pass_on_calls(const Seat& seat) {
    Seat* const sleeper = calls_.ready_unbound() ? sleeper_for_calls(&seat) : nullptr;
    if (sleeper != nullptr)
        sleeper->doorbell.ring();
    return sleeper != nullptr;
}

void Machine::pass_on(const Seat& seat) {
    // Who takes a call passes on the lanes, in turn.
    if (!pass_on_calls(seat) && (stale(seat) || !seat.own.empty() || !seat.others.empty()))
        ring_sleeper(&seat);
}

bool Machine::should_take_calls(const Seat& seat) {
    if (!takes_calls(seat))
        return false;
    if (!seat.pins.load(std::memory_order_relaxed) || !calls_.ready_unbound())
        return true;
    Seat* const sleeper = sleeper_for_calls(&seat);
    if (sleeper == nullptr || sleeper->pins.load(std::memory_order_relaxed))
        return true;
    sleeper->doorbell.ring();
    return false;
}

void Machine::ring_all() {
    for (auto& seat : seats_)
        seat->doorbell.ring_everybody();
}

void Machine::call_attention() {
    for (auto& seat : seats_)
        seat->attention.fetch_or(kLook, std::memory_order_release);  // with what it is called for
}

bool Machine::sit(Seat& seat, bool as_caller) {
    if (seat.taken.exchange(true, std::memory_order_seq_cst))
        return false;
    if (as_caller) {
        seat.by_caller.store(true, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);  // against ring_for, which may have counted on this seat
        if (calls_.ready_unbound()) [[unlikely]]
            pass_on_calls(seat);
    }
    if (own_asleep_.load(std::memory_order_seq_cst)) [[unlikely]]  // either we see this, or tick sees us
        wake_own();
    return true;
}

void Machine::stand_up(Seat& seat) {
    seat.taken.exchange(false, std::memory_order_seq_cst);
    seat.ring_caller();
}

void Machine::work(std::size_t index) {
    Seat& seat = *seats_[index];
    PythonThread python(false);
    if (init)
        initialise_thread(*this, python);
    while (!closed()) {
        std::uint32_t ticket = seat.doorbell.ticket();
        if (seat.callers_waiting.load(std::memory_order_seq_cst) == 0 && sit(seat, false)) {
            {
                Server server(*this, seat, python);
                ticket = server.serve_as_worker();
            }
            stand_up(seat);
        }
        if (closed())
            break;
        seat.doorbell.sleep(ticket, -1);
    }
}

}  // namespace ostinato
