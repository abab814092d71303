// A machine from its beginning to its end, and which programs it has.
#include "lanes/machine.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

#include "park/parking.h"
#include "park/threads.h"
#include "python/events.h"
#include "python/interrupt.h"
#include "python/thread.h"

namespace ostinato {

namespace {

std::mutex all_mutex;
std::vector<std::weak_ptr<Machine>> all_machines;  // guarded by all_mutex

// What all machines share must be whole in a forked child, where the threads that were at it do not exist.
void before_fork() {
    all_mutex.lock();
    parking_mutex().lock();
    wait_for_notifiers();
    PythonThread::list_mutex().lock();
}

void after_fork() {
    PythonThread::list_mutex().unlock();
    parking_mutex().unlock();
    all_mutex.unlock();
}

template <class Work>  // a run or a spawned call
void wait_without_python(Work& work) {
    for (;;) {
        const std::uint32_t epoch = work.finished.prepare_wait();
        if (work.done.load(std::memory_order_acquire))
            return;
        work.finished.commit_wait(epoch, -1);
    }
}

void in_forked_child() {
    after_fork();
    forget_threads();
    PythonThread::forget_others();
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

Machine::Machine(const std::vector<int>& cores, bool is_crowded, PythonObjectHandle its_init, bool is_watched)
    : crowded(is_crowded), watched(is_watched), few_listed(64 + 4 * cores.size()), init(std::move(its_init)),
      cores_(cores), callers_core_(cores[0]), calls_(*this, cores.size()) {
    cores_[0] = -1;
    sleepers = static_cast<std::uint32_t>(cores.size());
    for (std::uint32_t i = 0; i < cores.size(); ++i) {
        slots_.push_back(std::make_unique<Slot>());
        slots_.back()->index = i;
        slots_.back()->most_listed = few_listed;
        if (watched)
            slots_.back()->idle.begin();
    }
}

Machine::~Machine() { wait_for_notifiers(); }

std::shared_ptr<Machine> Machine::create(const std::vector<int>& cores, bool crowded, PythonObjectHandle init,
                                         bool watched) {
    prepare_process();
    std::shared_ptr<Machine> machine(new Machine(cores, crowded, std::move(init), watched));
    try {
        for (std::size_t i = 0; i < cores.size(); ++i)
            machine->start(&Machine::work, i, machine->cores_[i]);
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

void Machine::swap_cores(int callers_core) {
    const auto at = std::find(cores_.begin(), cores_.end(), callers_core);
    if (at == cores_.end() || callers_core_ < 0)
        return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (threads_.empty())  // closed
        return;
    pin(threads_[static_cast<std::size_t>(at - cores_.begin())], callers_core_);
    *at = std::exchange(callers_core_, callers_core);
}

void Machine::close(bool join) {
    if (!closing_.exchange(true, std::memory_order_acq_rel)) {
        call_attention();
        notify_all();
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
    std::unique_lock<std::mutex> lock(mutex_);
    if (program->listed.load(std::memory_order_relaxed))
        return;
    if (program->suspended) {
        lock.unlock();
        const std::lock_guard<std::mutex> parking(parking_mutex());
        resume(*program);
        return;
    }
    if (!program->active.load(std::memory_order_relaxed)) {
        program->machine_index = programs_.size();
        programs_.push_back(program);
        program->active.store(true, std::memory_order_relaxed);
    }
    list_locked(*program);
    // Against Caller::leave: it says that it sleeps, fences, and reads the version.
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Machine::retire(Program& program) {
    std::shared_ptr<Program> keep;  // its end must not come under our lock
    std::unique_lock<std::mutex> lock(mutex_);
    if (!program.listed.load(std::memory_order_relaxed) || !program.idle())
        return;
    // Against submit: it publishes the frontier, fences, and reads `listed`.
    program.listed.store(false, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!program.idle()) {
        program.listed.store(true, std::memory_order_relaxed);
        return;
    }
    unlist_locked(program);
    program.active.store(false, std::memory_order_relaxed);
    keep = std::move(programs_[program.machine_index]);
    if (programs_.back()) {
        programs_.back()->machine_index = program.machine_index;
        programs_[program.machine_index] = std::move(programs_.back());
    }
    programs_.pop_back();
    const bool last = over_locked();
    lock.unlock();
    if (last)
        close(false);
}

// The machine's own thread: callbacks, runs to abort, and a look at everything now and then.

void Machine::wake_own() {
    const std::lock_guard<std::mutex> lock(own_mutex_);
    own_wake_.notify_all();
}

void Machine::do_soon(std::function<void(PythonThread&)> job) {
    const std::lock_guard<std::mutex> lock(own_mutex_);
    due_.push_back(std::move(job));
    own_wake_.notify_all();
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
        return std::any_of(slots_.begin(), slots_.end(), [](auto& slot) { return slot->taken.load(); });
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
        const bool starving = blocking_pool_.grow_if_starving();
        if (quiet <= kQuietTicks || !cancelled_.empty() || starving) {
            for (auto& slot : slots_) {
                if (slot->taken.load(std::memory_order_relaxed))
                    slot->attention.fetch_or(kLook, std::memory_order_relaxed);
            }
            own_wake_.wait_for(lock, std::chrono::milliseconds(20));
            continue;
        }
        restore_interrupts();
        own_asleep_.store(true, std::memory_order_seq_cst);  // against take_slot: one of us sees the other
        if (!anybody() && !closed())
            own_wake_.wait(lock);
        own_asleep_.store(false, std::memory_order_relaxed);
        quiet = 0;
    }
    const std::vector<Cancelled> rest = std::move(cancelled_);  // they hold programs, which hold this machine
    lock.unlock();
}

}  // namespace ostinato
