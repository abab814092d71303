// A slot: what one processor serves. The thread that has taken it (its worker, or for slot 0 one in replay()) runs
// lanes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "lanes/idle_time.h"
#include "lanes/lane.h"
#include "park/event_count.h"
#include "park/timeline.h"

namespace ostinato {

class Program;

// Of Slot::attention, for the worker to come back to its loop at the next operation boundary: signals, a more urgent
// run, an aborted run, the machine closing, a thread in replay() that would like the slot.
constexpr std::uint32_t kLook = 1;

class alignas(kLinePair) Slot {
public:
    std::atomic<std::uint32_t> attention{0};  // read after every operation; written rarely
    std::uint32_t index = 0;

    alignas(kLinePair) std::atomic<bool> taken{false};  // a thread has this slot
    // Threads in replay() that want it. Meanwhile no worker takes it, or enters a run.
    std::atomic<std::uint32_t> callers_waiting{0};
    // Nobody looks at this slot's lanes: whoever gives them work notifies. Set before the last look round, cleared
    // after.
    std::atomic<bool> asleep{true};
    std::atomic<Lane*> running{nullptr};            // the lane being served, never followed by others
    std::atomic<std::int32_t> priority{INT32_MAX};  // of the run being served; nothing: nobody need call
    std::atomic<bool> in_call{false};               // a spawned call is being run, and the slot's lanes are anybody's
    std::atomic<bool> polling{false};               // its worker has nothing to do and keeps looking for work
    std::atomic<bool> by_caller{false};             // a thread in replay() has this slot
    std::atomic<bool> pins{false};                  // lanes with affinity here can go nowhere else
    EventCount event_count;
    std::mutex callers_mutex;
    std::vector<EventCount*> callers;  // what callers sleep on that wait; guarded by it

    // The slot may be free: the caller that has waited for longest is to look.
    void notify_caller() {
        if (callers_waiting.load(std::memory_order_seq_cst) == 0)
            return;
        const std::lock_guard<std::mutex> lock(callers_mutex);
        if (!callers.empty())
            callers.front()->notify();
    }

    // --- the holder's ---
    struct Listed {
        Lane* lane;
        std::shared_ptr<Program> program;  // keeps the lane alive
        std::uint64_t listing;             // of the program, when it got here
        std::int64_t passed_since = 0;     // it was ready, and something more urgent was served; 0: it was not
    };
    std::vector<Listed> own, others;  // lanes of active programs: those with affinity here, and those it may take over
    std::uint64_t version = 0;        // of the machine's lists when these were brought up to date
    std::uint64_t swept = 0, unswept = 0;  // programs that left the lists: up to then, and since
    std::size_t most_listed = 0;           // lanes here; beyond that, programs that wait are suspended
    std::size_t next = 0;                  // where the round among equals goes on
    struct Registration {
        const Lane* lane;
        Timeline* timeline;
        std::uint64_t until;
    };
    std::vector<Registration> registered;  // while asleep: where this slot will be notified from

    IdleTime idle;  // read by other threads; written only if the machine is watched

    // --- guarded by the machine's mutex ---
    struct Incoming {
        std::weak_ptr<Program> program;
        std::uint64_t listing;
    };
    std::vector<Incoming> incoming;  // programs that were listed since `version`
    bool outdated = false;           // too many: all programs are to be looked through
};

}  // namespace ostinato
