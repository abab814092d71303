#include "machine.h"

#include <algorithm>
#include <chrono>
#include <csignal>

#include <pthread.h>
#include <sched.h>

#include "python_interrupt.h"
#include "python_ops.h"
#include "python_thread.h"
#include "server.h"

namespace ostinato {

namespace {

std::atomic<std::uint64_t> fork_generation{0};

void prepare_process() {
    static const bool prepared = [] {
        prepare_fences();
        pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });
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

// Threads of ours take no signals: they are the user's.
class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

private:
    sigset_t before_;
};

}  // namespace

Machine::Machine(std::size_t n_seats, bool is_crowded, PythonFunctionHandle its_init)
    : crowded(is_crowded), init(std::move(its_init)), generation_(fork_generation.load(std::memory_order_relaxed)) {
    sleepers = static_cast<std::uint32_t>(n_seats);
    for (std::uint32_t i = 0; i < n_seats; ++i) {
        seats_.push_back(std::make_unique<Seat>());
        seats_.back()->index = i;
    }
}

std::shared_ptr<Machine> Machine::create(const std::vector<int>& cores, bool crowded, PythonFunctionHandle init) {
    prepare_process();
    std::shared_ptr<Machine> machine(new Machine(cores.size(), crowded, std::move(init)));
    const SignalsBlocked blocked;
    for (std::size_t i = 0; i < cores.size(); ++i) {
        machine->threads_.emplace_back([machine, i] { machine->work(i); });
        if (cores[i] >= 0)
            pin(machine->threads_.back(), cores[i]);
    }
    machine->threads_.emplace_back([machine] { machine->tick(); });
    return machine;
}

bool Machine::forked() const { return generation_ != fork_generation.load(std::memory_order_relaxed); }

void Machine::close(bool join) {
    if (!closing_.exchange(true, std::memory_order_acq_rel)) {
        call_attention();
        for (auto& seat : seats_)
            seat->doorbell.ring();
        const std::lock_guard<std::mutex> lock(own_mutex_);
        own_wake_.notify_all();
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
}

void Machine::retire(Program& program) {
    std::shared_ptr<Program> keep;  // its end must not come under our lock
    const std::lock_guard<std::mutex> lock(mutex_);
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
}

void Machine::refresh(Seat& seat) {
    std::vector<Seat::Listed> old_own, old_others;  // released after the lock
    const std::lock_guard<std::mutex> lock(mutex_);
    old_own.swap(seat.own);
    old_others.swap(seat.others);
    seat.next_own = 0;
    for (const auto& program : programs_) {
        for (const auto& lane : program->lanes) {
            if (lane->order->home == seat.index)
                seat.own.push_back({lane.get(), program});
            else if (!lane->order->pinned)
                seat.others.push_back({lane.get(), program});
        }
    }
    seat.version = version_.load(std::memory_order_relaxed);
}

void Machine::ring_homes(const Program& program, std::int32_t priority) {
    for (const std::uint32_t home : program.homes) {
        Seat& seat = *seats_[home];
        if (seat.asleep.load(std::memory_order_relaxed)) {
            seat.doorbell.ring();
        } else if (seat.priority.load(std::memory_order_relaxed) < priority) {
            seat.attention.fetch_or(kLook, std::memory_order_relaxed);
        }
    }
}

void Machine::ring_all() {
    for (auto& seat : seats_)
        seat->doorbell.ring();
}

void Machine::call_attention() {
    for (auto& seat : seats_)
        seat->attention.fetch_or(kLook, std::memory_order_relaxed);
}

bool Machine::sit(Seat& seat) {
    if (seat.taken.exchange(true, std::memory_order_acquire))
        return false;
    if (own_asleep_.load(std::memory_order_seq_cst)) [[unlikely]] {  // ordered by the exchange; see tick
        const std::lock_guard<std::mutex> lock(own_mutex_);
        own_wake_.notify_all();
    }
    return true;
}

void Machine::stand_up(Seat& seat) { seat.taken.store(false, std::memory_order_release); }

void Machine::work(std::size_t index) {
    Seat& seat = *seats_[index];
    PythonThread python(false);
    if (init)
        initialise_thread(*this, python);
    while (!closed()) {
        std::uint32_t ticket = seat.doorbell.ticket();
        if (sit(seat)) {
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

void Machine::call_back(std::shared_ptr<Run> run) {
    const std::lock_guard<std::mutex> lock(own_mutex_);
    callbacks_.push_back(std::move(run));
    own_wake_.notify_all();
}

void Machine::abort_later(std::shared_ptr<Program> program, std::shared_ptr<Run> run) {
    const std::lock_guard<std::mutex> lock(own_mutex_);
    cancelled_.push_back({std::move(program), std::move(run), monotonic_ns() + 100'000'000});
    own_wake_.notify_all();
}

void Machine::tick() {
    constexpr int kQuietTicks = 50;
    PythonThread python(false);
    int quiet = 0;
    std::unique_lock<std::mutex> lock(own_mutex_);
    const auto anybody = [this] {
        return std::any_of(seats_.begin(), seats_.end(), [](auto& seat) { return seat->taken.load(); });
    };
    while (!closed() || !callbacks_.empty()) {
        if (!callbacks_.empty()) {
            std::vector<std::shared_ptr<Run>> due;
            due.swap(callbacks_);
            lock.unlock();
            for (auto& run : due)
                run_callbacks(*run, python);
            python.acquire();  // a run's last reference may hold Python objects
            due.clear();
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
        if (quiet <= kQuietTicks || !cancelled_.empty()) {
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
}

}  // namespace ostinato
