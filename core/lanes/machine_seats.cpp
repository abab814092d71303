// Who serves: which lanes a seat finds, who is woken for what, and the threads that sit down.

#include <algorithm>
#include <iterator>

#include "lanes/machine.h"
#include "lanes/server.h"
#include "park/parking.h"
#include "python/ops.h"
#include "python/thread.h"

namespace ostinato {

void Machine::list_locked(Program& program) {
    ++program.listing;
    program.listed.store(true, std::memory_order_relaxed);
    for (const auto& seat : seats_) {
        if (seat->incoming.size() > programs_.size() + few_listed) {  // it sleeps: looking at all is less
            seat->incoming.clear();
            seat->outdated = true;
        }
        if (!seat->outdated)
            seat->incoming.push_back({program.weak_from_this(), program.listing});
    }
    version_.fetch_add(1, std::memory_order_release);
}

void Machine::unlist_locked(Program& program) {
    program.listed.store(false, std::memory_order_relaxed);
    ++unlisted_;
    version_.fetch_add(1, std::memory_order_release);
}

void Machine::add_lanes(Seat& seat, const std::shared_ptr<Program>& program) {
    for (const auto& lane : program->lanes) {
        if (lane->order->home == seat.index) {
            seat.own.push_back({lane.get(), program, program->listing});
            if (lane->order->pinned)
                seat.pins.store(true, std::memory_order_relaxed);
        } else if (!lane->order->pinned) {
            seat.others.push_back({lane.get(), program, program->listing});
        }
    }
    looked_at.fetch_add(program->lanes.size(), std::memory_order_relaxed);
}

void Machine::refresh(Seat& seat, bool sweep) {
    std::vector<Seat::Listed> left;  // released after the lock
    std::vector<std::shared_ptr<Program>> programs;
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t listed = seat.own.size() + seat.others.size();
    seat.unswept = unlisted_ - seat.swept;
    if (seat.unswept != 0 && (sweep || seat.outdated || listed <= few_listed || seat.unswept > listed / 2)) {
        bool pins = false;
        for (auto* list : {&seat.own, &seat.others}) {
            const auto stays = [&](const Seat::Listed& entry) {
                return entry.listing == entry.program->listing && entry.program->listed.load(std::memory_order_relaxed);
            };
            const auto gone = std::stable_partition(list->begin(), list->end(), stays);
            left.insert(left.end(), std::make_move_iterator(gone), std::make_move_iterator(list->end()));
            list->erase(gone, list->end());
        }
        for (const Seat::Listed& entry : seat.own)
            pins = pins || entry.lane->order->pinned;
        seat.pins.store(pins, std::memory_order_relaxed);
        looked_at.fetch_add(listed, std::memory_order_relaxed);
        seat.swept = unlisted_;
        seat.unswept = 0;
        if (seat.next >= seat.own.size())
            seat.next = 0;
    }
    if (seat.outdated) {
        std::move(seat.own.begin(), seat.own.end(), std::back_inserter(left));
        std::move(seat.others.begin(), seat.others.end(), std::back_inserter(left));
        seat.own.clear();
        seat.others.clear();
        for (const auto& program : programs_) {
            if (program->listed.load(std::memory_order_relaxed))
                add_lanes(seat, program);
        }
    }
    for (const Seat::Incoming& entry : seat.incoming) {
        std::shared_ptr<Program> program = entry.program.lock();
        if (program && program->listed.load(std::memory_order_relaxed) && program->listing == entry.listing)
            add_lanes(seat, program);
        programs.push_back(std::move(program));
    }
    seat.incoming.clear();
    seat.outdated = false;
    seat.version = version_.load(std::memory_order_relaxed);
}

void Machine::suspend_waiting(Seat& seat) {
    std::vector<std::shared_ptr<Program>> programs;
    {
        const std::lock_guard<std::mutex> parking(parking_mutex());
        const std::lock_guard<std::mutex> lock(mutex_);
        for (const auto* list : {&seat.own, &seat.others}) {
            for (const Seat::Listed& entry : *list) {
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
    ring_homes(program, priority);
}

void Machine::give_back(Lane& lane) {
    Seat& home = *seats_[lane.order->home];
    lane.claim.store(0, std::memory_order_release);
    light_fence();  // against fall_asleep: it sees the claim free, or this sees it asleep
    if (lane.program->listed.load(std::memory_order_relaxed) && home.asleep.load(std::memory_order_relaxed))
        home.doorbell.ring();
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
