#include "caller.h"

#include <algorithm>

#include "event.h"
#include "parking.h"
#include "python_thread.h"
#include "relax.h"
#include "server.h"

namespace ostinato {

namespace {
constexpr std::int64_t kRetryNs = 1'000'000;    // how often a caller without a seat looks whether it is free
constexpr std::int64_t kPollNs = 10'000;        // a short run is over before a sleep and a wake would be
constexpr std::int64_t kSignalNs = 20'000'000;  // how often a waiting thread looks at signals
}  // namespace

Caller::Caller(Machine& machine) : machine_(machine), seat_(machine.seat(0)), seated_(machine.sit(seat_, true)) {
    if (!seated_)
        ask();
    if (seated_)
        wake_up(machine_, seat_);
}

void Caller::ask() {
    // As in work_until_done, but before anything is submitted: a worker that only polls makes room at once.
    PythonThread python(true);
    python.release();
    seat_.callers_waiting.fetch_add(1, std::memory_order_seq_cst);
    const std::int64_t give_up = monotonic_ns() + kPollNs;
    while (!seated_ && monotonic_ns() < give_up) {
        seat_.attention.fetch_or(kWanted, std::memory_order_relaxed);
        relax();
        seated_ = machine_.sit(seat_, true);
    }
    seat_.callers_waiting.fetch_sub(1, std::memory_order_seq_cst);
    if (!seated_)
        seat_.doorbell.ring();  // its worker may have left for our sake
}

Caller::~Caller() {
    if (seated_)
        leave();
}

void Caller::leave() {
    // From here on whoever submits or spawns rings the worker of this seat; whatever is left now, we ring it for.
    const std::uint32_t ticket = seat_.doorbell.ticket();
    seat_.by_caller.store(false, std::memory_order_relaxed);
    seat_.asleep.store(true, std::memory_order_relaxed);
    machine_.sleepers.fetch_add(1, std::memory_order_relaxed);
    // Against Program::submit, Machine::activate, Machine::ring_for, and Server::serve of another seat.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool work_left =
        machine_.stale(seat_) ||
        // Other seats' words are looked at only where calls are: they are in the caches of those who sit there.
        (machine_.calls().at_hand() &&
         (machine_.calls().ready(seat_.index, true) ||
          std::any_of(seat_.others.begin(), seat_.others.end(),
                      [this](const Seat::Listed& listed) {
                          return machine_.seat(listed.lane->order->home).in_call.load(std::memory_order_relaxed);
                      }))) ||
        std::any_of(seat_.own.begin(), seat_.own.end(), [](const Seat::Listed& listed) {
            const Lane& lane = *listed.lane;
            return lane.ready() || lane.claim.load(std::memory_order_relaxed) != 0 ||
                   lane.blocked_on.load(std::memory_order_relaxed) != &listed.program->frontier;
        });
    machine_.stand_up(seat_);
    // A worker rung before that could not sit down, and sleeps again.
    if (work_left || seat_.doorbell.ticket() != ticket)
        seat_.doorbell.ring();
}

bool Caller::work_until_done(Run& run) {
    PythonThread python(true);
    if (!seated_ && !run.done.load(std::memory_order_acquire)) {
        seat_.callers_waiting.fetch_add(1, std::memory_order_seq_cst);
        bool undisturbed = true;
        while (undisturbed && !seated_ && !run.done.load(std::memory_order_acquire)) {
            const std::uint32_t ticket = run.finished.ticket();
            if (machine_.sit(seat_, true)) {
                seated_ = true;
                break;
            }
            seat_.attention.fetch_or(kWanted, std::memory_order_relaxed);
            python.release();
            if (!run.done.load(std::memory_order_acquire))
                run.finished.sleep(ticket, kRetryNs);
            undisturbed = python.check();
        }
        seat_.callers_waiting.fetch_sub(1, std::memory_order_seq_cst);
        if (!seated_)
            seat_.doorbell.ring();  // its worker may have left for our sake
        if (!undisturbed)
            return false;
    }
    if (!seated_)
        return true;
    Server server(machine_, seat_, python);
    run.caller.store(&seat_, std::memory_order_release);
    const bool undisturbed = server.serve_until_done(run);
    run.caller.store(nullptr, std::memory_order_release);
    return undisturbed;
}

namespace {

template <class Done>
bool wait_until(Done done, Doorbell& bell, std::int64_t timeout_ns) {
    PythonThread python(true);
    const std::int64_t start = monotonic_ns();
    const std::int64_t deadline = timeout_ns < 0 ? -1 : start + timeout_ns;
    const std::int64_t polling = deadline < 0 ? start + kPollNs : std::min(start + kPollNs, deadline);
    python.release();  // a Python task may be all that is waited for
    while (!done() && monotonic_ns() < polling)
        relax();
    while (!done()) {
        const std::uint32_t ticket = bell.ticket();
        if (done())
            break;
        std::int64_t nap = kSignalNs;
        if (deadline >= 0) {
            const std::int64_t left = deadline - monotonic_ns();
            if (left <= 0)
                break;
            nap = std::min(nap, left);
        }
        python.release();
        bell.sleep(ticket, nap);
        if (!python.check())
            return false;
    }
    python.acquire();  // may not return, which in a destructor would be worse
    return true;
}

}  // namespace

bool wait_until_done(Run& run, std::int64_t timeout_ns) {
    return wait_until([&run] { return run.done.load(std::memory_order_acquire); }, run.finished, timeout_ns);
}

bool wait_until_done(SpawnedCall& call, std::int64_t timeout_ns) {
    return wait_until([&call] { return call.done.load(std::memory_order_acquire); }, call.finished, timeout_ns);
}

bool wait_until_done(Event& event, std::int64_t timeout_ns) {
    return wait_until([&event] { return event.done(); }, event.bell, timeout_ns);
}

}  // namespace ostinato
