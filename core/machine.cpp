#include "machine.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

#include "parking.h"
#include "python_events.h"
#include "python_interrupt.h"
#include "python_ops.h"
#include "python_thread.h"
#include "server.h"
#include "threads.h"

namespace ostinato {

namespace {

std::atomic<std::uint64_t> fork_generation{0};

std::mutex all_mutex;
std::vector<std::weak_ptr<Machine>> all_machines;  // guarded by all_mutex

// What all machines share must be whole in a forked child, where the threads that were at it do not exist.
void before_fork() {
    all_mutex.lock();
    parking_mutex().lock();
}

void after_fork() {
    parking_mutex().unlock();
    all_mutex.unlock();
}

template <class Work>  // a run or a spawned call
void wait_without_python(Work& work) {
    for (;;) {
        const std::uint32_t ticket = work.finished.ticket();
        if (work.done.load(std::memory_order_acquire))
            return;
        work.finished.sleep(ticket, -1);
    }
}

void in_forked_child() {
    after_fork();
    fork_generation.fetch_add(1, std::memory_order_relaxed);
    forget_threads();
}

void prepare_process() {
    static const bool prepared = [] {
        prepare_fences();
        pthread_atfork(before_fork, after_fork, in_forked_child);
        return true;
    }();
    (void)prepared;
}

void pin(std::thread& thread, int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(core), &set);
    pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);  // best effort: a hint, not a need
}

}  // namespace

Machine::Machine(std::size_t n_seats, bool is_crowded, PythonObjectHandle its_init)
    : crowded(is_crowded), init(std::move(its_init)), generation_(fork_generation.load(std::memory_order_relaxed)),
      calls_(*this, n_seats) {
    sleepers = static_cast<std::uint32_t>(n_seats);
    for (std::uint32_t i = 0; i < n_seats; ++i) {
        seats_.push_back(std::make_unique<Seat>());
        seats_.back()->index = i;
    }
}

std::shared_ptr<Machine> Machine::create(const std::vector<int>& cores, bool crowded, PythonObjectHandle init) {
    prepare_process();
    std::shared_ptr<Machine> machine(new Machine(cores.size(), crowded, std::move(init)));
    try {
        for (std::size_t i = 0; i < cores.size(); ++i)
            machine->start(&Machine::work, i, cores[i]);
        machine->start(&Machine::tick, 0, -1);
    } catch (...) {  // the system allows no more threads
        machine->close(false);
        throw;
    }
    const std::lock_guard<std::mutex> lock(all_mutex);
    std::erase_if(all_machines, [](const std::weak_ptr<Machine>& entry) { return entry.expired(); });
    all_machines.push_back(machine);
    return machine;
}

void Machine::start(void (Machine::*body)(std::size_t), std::size_t index, int core) {
    threads_.push_back(start_thread([body, index, self = shared_from_this()] { (self.get()->*body)(index); }));
    if (core >= 0)
        pin(threads_.back(), core);
}

bool Machine::forked() const { return generation_ != fork_generation.load(std::memory_order_relaxed); }

void Machine::close(bool join) {
    if (!closing_.exchange(true, std::memory_order_acq_rel)) {
        call_attention();
        for (auto& seat : seats_)
            seat->doorbell.ring();
        wake_own();
    }
    std::vector<std::thread> threads;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        threads.swap(threads_);
    }
    for (std::thread& thread : threads) {
        if (join && thread.get_id() != std::this_thread::get_id())
            thread.join();
        else
            thread.detach();
    }
    blocking_pool_.close(join);
}

void Machine::wake_own() {
    const std::lock_guard<std::mutex> lock(own_mutex_);
    own_wake_.notify_all();
}

void Machine::forget() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        forgotten_ = true;
    }
    close_if_forgotten();
}

void Machine::close_if_forgotten() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!over_locked())
            return;
    }
    close(false);
}

std::vector<std::pair<std::shared_ptr<Program>, std::shared_ptr<Run>>> Machine::in_flight() {
    std::vector<std::shared_ptr<Program>> programs;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        programs = programs_;
    }
    std::vector<std::pair<std::shared_ptr<Program>, std::shared_ptr<Run>>> runs;
    for (const auto& program : programs) {
        for (auto& run : program->in_flight())
            runs.emplace_back(program, std::move(run));
    }
    return runs;
}

void Machine::end_all() {
    std::vector<std::shared_ptr<Machine>> machines;
    {
        const std::lock_guard<std::mutex> lock(all_mutex);
        for (const auto& entry : all_machines) {
            if (auto machine = entry.lock(); machine && !machine->forked())
                machines.push_back(std::move(machine));
        }
    }
    for (const auto& machine : machines) {
        const auto runs = machine->in_flight();
        for (const auto& [program, run] : runs) {
            if (program->cancel(*run))
                machine->abort_later(program, run);
        }
        machine->calls_.refuse();
        const auto calls = machine->calls_.in_flight();
        for (const auto& call : calls)
            machine->calls_.cancel(*call);
        for (const auto& [program, run] : runs)
            wait_without_python(*run);
        for (const auto& call : calls)
            wait_without_python(*call);
        machine->close(true);
    }
    machines.clear();
    end_callbacks();
    wait_for_threads();
    keep_out_of_python();
}

void Machine::abandon() {
    // The threads live in the parent: here there is nothing to join, and their handles may not even be destroyed.
    auto* const leaked = new std::vector<std::thread>(std::move(threads_));
    threads_.clear();
    (void)leaked;
}

void Machine::activate(const std::shared_ptr<Program>& program) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (program->active.load(std::memory_order_relaxed))
        return;
    programs_.push_back(program);
    program->active.store(true, std::memory_order_relaxed);
    version_.fetch_add(1, std::memory_order_release);
    // Against Caller::leave: it says that it sleeps, fences, and reads the version.
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Machine::retire(Program& program) {
    std::shared_ptr<Program> keep;  // its end must not come under our lock
    std::unique_lock<std::mutex> lock(mutex_);
    if (!program.active.load(std::memory_order_relaxed) || !program.idle())
        return;
    // Against submit: it publishes the frontier, fences, and reads `active`.
    program.active.store(false, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!program.idle()) {
        program.active.store(true, std::memory_order_relaxed);
        return;
    }
    const auto at = std::find_if(programs_.begin(), programs_.end(), [&](auto& p) { return p.get() == &program; });
    keep = std::move(*at);
    programs_.erase(at);
    version_.fetch_add(1, std::memory_order_release);
    const bool last = over_locked();
    lock.unlock();
    if (last)
        close(false);
}

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
        seat->doorbell.ring();
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

void Machine::do_soon(std::function<void(PythonThread&)> job) {
    const std::lock_guard<std::mutex> lock(own_mutex_);
    due_.push_back(std::move(job));
    own_wake_.notify_all();
}

void Machine::call_back(std::shared_ptr<Run> run) {
    do_soon([run = std::move(run)](PythonThread& python) { run_callbacks(*run, python); });
}

void Machine::abort_later(std::shared_ptr<Program> program, std::shared_ptr<Run> run) {
    const std::lock_guard<std::mutex> lock(own_mutex_);
    cancelled_.push_back({std::move(program), std::move(run), monotonic_ns() + 100'000'000});
    own_wake_.notify_all();
}

void Machine::tick(std::size_t) {
    own_id_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    constexpr int kQuietTicks = 50;
    PythonThread python(false);
    int quiet = 0;
    std::unique_lock<std::mutex> lock(own_mutex_);
    const auto anybody = [this] {
        return std::any_of(seats_.begin(), seats_.end(), [](auto& seat) { return seat->taken.load(); });
    };
    while (!closed() || !due_.empty()) {
        if (!due_.empty()) {
            std::vector<std::function<void(PythonThread&)>> jobs;
            jobs.swap(due_);
            lock.unlock();
            for (const auto& job : jobs)
                job(python);
            python.acquire();  // they may hold the last reference to Python objects
            jobs.clear();
            python.release();
            lock.lock();
            continue;
        }
        if (!cancelled_.empty()) {
            std::vector<Cancelled> due;  // ends outside the lock: it may hold the last reference to Python objects
            const std::int64_t now = monotonic_ns();
            std::erase_if(cancelled_, [&](Cancelled& entry) {
                const bool is_due = entry.deadline <= now || entry.run->done.load(std::memory_order_acquire);
                if (is_due)
                    due.push_back(std::move(entry));
                return is_due;
            });
            if (!due.empty()) {
                lock.unlock();
                for (Cancelled& entry : due)
                    entry.program->abort(*entry.run);
                due.clear();
                lock.lock();
            }
        }
        quiet = anybody() ? 0 : quiet + 1;
        const bool starving = blocking_pool_.starving();
        if (starving)
            blocking_pool_.grow();
        if (quiet <= kQuietTicks || !cancelled_.empty() || starving) {
            for (auto& seat : seats_) {
                if (seat->taken.load(std::memory_order_relaxed))
                    seat->attention.fetch_or(kLook, std::memory_order_relaxed);
            }
            own_wake_.wait_for(lock, std::chrono::milliseconds(20));
            continue;
        }
        restore_interrupts();
        own_asleep_.store(true, std::memory_order_seq_cst);  // against sit: one of us sees the other
        if (!anybody() && !closed())
            own_wake_.wait(lock);
        own_asleep_.store(false, std::memory_order_relaxed);
        quiet = 0;
    }
    const std::vector<Cancelled> rest = std::move(cancelled_);  // they hold programs, which hold this machine
    lock.unlock();
}

}  // namespace ostinato
