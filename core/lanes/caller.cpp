#include "lanes/caller.h"

#include <algorithm>

#include "lanes/server.h"
#include "outside/event.h"
#include "park/parking.h"
#include "park/relax.h"
#include "python/thread.h"

namespace ostinato {

namespace {
constexpr std::int64_t kPollNs = 10'000;        // a short run is over before a sleep and a wake would be
constexpr std::int64_t kSignalNs = 20'000'000;  // how often a waiting thread looks at signals
}  // namespace

Caller::Caller(Machine& machine) : machine_(machine), seat_(machine.seat(0)), seated_(machine.sit(seat_, true)) {
    if (!seated_)
        ask();
    if (seated_)
        wake_up(machine_, seat_);
}

Caller::~Caller() {
    if (waiting_)
        end_waiting();  // nothing was submitted
    if (seated_)
        leave();
}

void Caller::ask() {
    const std::int64_t give_up = monotonic_ns() + kPollNs;
    if (seat_.by_caller.load(std::memory_order_relaxed)) {
        // It may need the GIL; and nobody is to be kept from the seat while we wait to have that back.
        PythonThread python(true);
        python.release();
        poll(give_up);
        python.acquire();
    }
    if (seated_)
        return;
    // With the GIL: a worker that has nothing to do need not have it to leave, and to have it back may take long.
    begin_waiting();
    if (!seat_.in_call.load(std::memory_order_relaxed))
        poll(give_up);
    if (seated_)
        end_waiting();
}

void Caller::poll(std::int64_t give_up) {
    do {
        relax();
        seated_ = machine_.sit(seat_, true);
    } while (!seated_ && monotonic_ns() < give_up);
}

void Caller::begin_waiting() {
    waiting_ = true;
    seat_.callers_waiting.fetch_add(1, std::memory_order_seq_cst);
    seat_.attention.fetch_or(kLook, std::memory_order_release);
}

void Caller::end_waiting() {
    waiting_ = false;
    seat_.callers_waiting.fetch_sub(1, std::memory_order_seq_cst);
    if (seated_)
        return;
    seat_.doorbell.ring();  // its worker may have left for our sake
    if (!seat_.taken.load(std::memory_order_seq_cst))
        seat_.ring_caller();  // somebody may have stood up for our sake
}

bool Caller::wait_for_seat(Run& run, PythonThread& python) {
    if (!waiting_)
        begin_waiting();
    {
        const std::lock_guard<std::mutex> lock(seat_.callers_mutex);
        seat_.callers.push_back(&run.finished);
    }
    bool undisturbed = true;
    for (bool slept = false;; slept = true) {
        const std::uint32_t ticket = run.finished.ticket();
        if (run.done.load(std::memory_order_acquire))
            break;
        seated_ = machine_.sit(seat_, true);
        if (seated_)
            break;
        undisturbed = !slept || python.check();
        if (!undisturbed)
            break;
        python.release();
        run.finished.sleep(ticket, kSignalNs);
    }
    {
        const std::lock_guard<std::mutex> lock(seat_.callers_mutex);
        std::erase(seat_.callers, &run.finished);
    }
    end_waiting();
    return undisturbed;
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
        machine_.stale(seat_) || seat_.unswept != 0 ||
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
    if (!seated_ && !wait_for_seat(run, python))
        return false;
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
