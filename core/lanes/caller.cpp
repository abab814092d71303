#include <algorithm>

#include "lanes/worker.h"
#include "outside/event.h"
#include "park/parking.h"
#include "python/thread.h"

namespace ostinato {

namespace {
constexpr std::int64_t kCallerPollNs = 10'000;  // a short run is over before a sleep and a wake would be
}  // namespace

Caller::Caller(Machine& machine) : machine_(machine), slot_(machine.slot(0)), in_slot_(machine.take_slot(slot_, true)) {
    if (!in_slot_)
        ask();
    if (in_slot_)
        cancel_wait(machine_, slot_);
}

Caller::Caller(Machine& machine, Visit what)
    : machine_(machine), slot_(machine.slot(0)), in_slot_(machine.take_slot(slot_, true, what == Visit::kCall)) {
    if (!in_slot_ && slot_.polling.load(std::memory_order_relaxed)) {
        ask();
        if (waiting_)
            end_waiting();
    }
    if (in_slot_)
        cancel_wait(machine_, slot_);
}

Caller::~Caller() {
    if (waiting_)
        end_waiting();  // nothing was submitted
    if (in_slot_)
        leave();
}

void Caller::ask() {
    const std::int64_t give_up = monotonic_ns() + kCallerPollNs;
    if (slot_.by_caller.load(std::memory_order_relaxed)) {
        // It may need the GIL; and nobody is to be kept from the slot while we wait to have that back.
        PythonThread python(true);
        python.release();
        poll(give_up);
        python.acquire();
    }
    if (in_slot_)
        return;
    // With the GIL: a worker that has nothing to do need not have it to leave, and to have it back may take long.
    begin_waiting();
    if (!slot_.in_call.load(std::memory_order_relaxed))
        poll(give_up);
    if (in_slot_)
        end_waiting();
}

void Caller::poll(std::int64_t give_up) {
    do {
        relax();
        in_slot_ = machine_.take_slot(slot_, true);
    } while (!in_slot_ && monotonic_ns() < give_up);
}

void Caller::begin_waiting() {
    waiting_ = true;
    slot_.callers_waiting.fetch_add(1, std::memory_order_seq_cst);
    slot_.attention.fetch_or(kLook, std::memory_order_release);
}

void Caller::end_waiting() {
    waiting_ = false;
    slot_.callers_waiting.fetch_sub(1, std::memory_order_seq_cst);
    if (in_slot_)
        return;
    slot_.event_count.notify();  // its worker may have left for our sake
    if (!slot_.taken.load(std::memory_order_seq_cst))
        slot_.notify_caller();  // another caller may have left for our sake
}

bool Caller::wait_for_slot(Run& run, PythonThread& python) {
    if (!waiting_)
        begin_waiting();
    {
        const std::lock_guard<std::mutex> lock(slot_.callers_mutex);
        slot_.callers.push_back(&run.finished);
    }
    bool undisturbed = true;
    for (bool slept = false;; slept = true) {
        const std::uint32_t epoch = run.finished.prepare_wait();
        if (run.done.load(std::memory_order_acquire))
            break;
        in_slot_ = machine_.take_slot(slot_, true);
        if (in_slot_)
            break;
        undisturbed = !slept || python.check();
        if (!undisturbed)
            break;
        python.release();
        run.finished.commit_wait(epoch, kSignalNs);
    }
    {
        const std::lock_guard<std::mutex> lock(slot_.callers_mutex);
        std::erase(slot_.callers, &run.finished);
    }
    end_waiting();
    return undisturbed;
}

void Caller::leave() {
    // From here on whoever submits or spawns notifies the worker of this slot; whatever is left now, we notify it for.
    const std::uint32_t epoch = slot_.event_count.prepare_wait();
    slot_.by_caller.store(false, std::memory_order_relaxed);
    slot_.asleep.store(true, std::memory_order_relaxed);
    machine_.sleepers.fetch_add(1, std::memory_order_relaxed);
    // Against Program::submit, Machine::activate, Machine::notify_for, and Worker::serve of another slot.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool work_left =
        machine_.stale(slot_) || slot_.unswept != 0 ||
        // Other slots' words are looked at only where calls are: they are in the caches of the threads that have those
        // slots.
        (machine_.calls().at_hand() &&
         (machine_.calls().ready(slot_.index, true) ||
          std::any_of(slot_.others.begin(), slot_.others.end(),
                      [this](const Slot::Listed& listed) {
                          return machine_.slot(listed.lane->order->affinity).in_call.load(std::memory_order_relaxed);
                      }))) ||
        std::any_of(slot_.own.begin(), slot_.own.end(),
                    [](const Slot::Listed& listed) { return is_under_way(*listed.lane); });
    if (machine_.watched) [[unlikely]]
        slot_.idle.begin();
    machine_.leave_slot(slot_);
    // A worker was notified before, could not take the slot, and sleeps again.
    if (work_left || slot_.event_count.prepare_wait() != epoch)
        slot_.event_count.notify();
}

bool Caller::work_until_done(Run& run) {
    PythonThread python(true);
    if (!in_slot_ && !wait_for_slot(run, python))
        return false;
    if (!in_slot_)
        return true;
    Worker worker(machine_, slot_, python);
    run.caller.store(&slot_, std::memory_order_release);
    const bool undisturbed = worker.serve_until_done(run);
    run.caller.store(nullptr, std::memory_order_release);
    return undisturbed;
}

bool Caller::visit(const Program& program, const Run& run) {
    if (!in_slot_)
        return true;
    PythonThread python(true);
    const HandlesNothing apart;
    Worker worker(machine_, slot_, python);
    const bool undisturbed = worker.serve_visit(program, run);
    python.acquire();
    return undisturbed;
}

void Caller::visit(SpawnedCall& call) {
    if (!in_slot_)
        return;
    PythonThread python(true);
    const HandlesNothing apart;
    Worker worker(machine_, slot_, python);
    worker.serve_visit(call);
}

namespace {

template <class Done>
bool wait_until(Done done, EventCount& event_count, std::int64_t timeout_ns) {
    PythonThread python(true);
    const std::int64_t start = monotonic_ns();
    const std::int64_t deadline = timeout_ns < 0 ? -1 : start + timeout_ns;
    const std::int64_t polling = deadline < 0 ? start + kCallerPollNs : std::min(start + kCallerPollNs, deadline);
    python.release();  // a Python task may be all that is waited for
    while (!done() && monotonic_ns() < polling)
        relax();
    while (!done()) {
        const std::uint32_t epoch = event_count.prepare_wait();
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
        event_count.commit_wait(epoch, nap);
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
    return wait_until([&event] { return event.done(); }, event.event_count, timeout_ns);
}

}  // namespace ostinato
