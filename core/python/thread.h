// A thread's hold of Python's global interpreter lock. The thread state stays attached for life: making one a call
// would cost microseconds. Implemented in python/thread.cpp; nothing here needs Python's headers.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "park/timeline.h"

namespace ostinato {

// Before the interpreter ends: a thread but the calling one that asks for the lock from now on stays where it is.
// Python would end it in the middle of our frames.
void keep_out_of_python();

// While it lives, waits of ours on the calling thread end with CancelledError once `over` is set.
class EndingWaits {
public:
    explicit EndingWaits(const std::atomic<bool>& over);
    ~EndingWaits();
    EndingWaits(const EndingWaits&) = delete;
    EndingWaits& operator=(const EndingWaits&) = delete;

    // Whether waits of the calling thread may end so, and whether they do now.
    static bool possible();
    static bool due();

private:
    const std::atomic<bool>* const before_;
};

// Python before 3.14 ends a thread that asks for the lock after the interpreter has ended, by unwinding its frames:
// ours may not be unwound. Where this is in scope the thread stays instead. To be told when the call has returned.
class StaysInCall {
public:
    StaysInCall() = default;
    ~StaysInCall() {
        if (!returned_) [[unlikely]]
            stay();
    }
    StaysInCall(const StaysInCall&) = delete;
    StaysInCall& operator=(const StaysInCall&) = delete;
    void returned() { returned_ = true; }

private:
    [[noreturn]] static void stay();
    bool returned_ = false;
};

// While it lives, the exception that the calling thread handles is set aside: what tasks raise has none as context. The
// lock is held.
class HandlesNothing {
public:
    HandlesNothing();
    ~HandlesNothing();
    HandlesNothing(const HandlesNothing&) = delete;
    HandlesNothing& operator=(const HandlesNothing&) = delete;

private:
    void* handled_;  // an exception, or null
};

class PythonThread {
public:
    // `caller`: the thread came from Python, holding the lock.
    explicit PythonThread(bool caller) : holds_(caller), attached_(caller), caller_(caller) {}
    ~PythonThread();
    PythonThread(const PythonThread&) = delete;
    PythonThread& operator=(const PythonThread&) = delete;

    bool holds() const { return holds_; }
    void acquire();
    void release() {
        if (holds_)
            drop();
    }
    // Makes `context` (a PyContext, borrowed, or null) the current one. The lock is held.
    void enter(void* context) {
        if (context != context_)
            change_context(context);
    }
    // Lets Python look at signals and other threads take the lock. False when a handler raised, or waits of this thread
    // are to end: the error is set.
    bool check();

    // The thread is in a Python task of `whole`, a run or a spawned call, until it leaves. The lock is held, where
    // there is one: in free-threaded builds other threads may interrupt the task at any moment.
    //   leaving thread: task_ = null;         F; if (interrupted_) take the mutex, forget the interrupt
    //   interrupter:    interrupted_ = true;  M; if (task_ == whole) raise inside     (all under the mutex)
    // With the light fence F and the heavy one M of park/timeline.h, either the interrupter sees that the task is left,
    // or the leaving thread sees the interrupt. So none is raised in what the thread runs afterwards.
    void enter_task(const void* whole) {
        task_.store(whole, std::memory_order_relaxed);
        if (!listed_) [[unlikely]]
            list();
    }
    void leave_task() {
        task_.store(nullptr, std::memory_order_relaxed);
        light_fence();
        if (interrupted_.load(std::memory_order_relaxed)) [[unlikely]]
            forget_interrupt();
    }
    const void* task() const { return task_.load(std::memory_order_relaxed); }
    // Raises KeyboardInterrupt inside the Python tasks of `whole` on other threads. The lock is held.
    static void interrupt_tasks(const void* whole);
    // Guards the list of threads that were in tasks. Held while the process forks.
    static std::mutex& list_mutex();
    // In a forked child, which has no other threads.
    static void forget_others();

private:
    void list();
    void forget_interrupt();
    void drop();
    void change_context(void* context);

    void* state_ = nullptr;    // PyThreadState*, while the lock is dropped
    void* context_ = nullptr;  // entered, a strong reference
    bool holds_, attached_;
    const bool caller_;
    int ensured_ = 0;
    std::atomic<const void*> task_{nullptr};
    unsigned long thread_ = 0;  // as Python numbers it; constant once listed
    bool listed_ = false;       // the thread's own
    std::atomic<bool> interrupted_{false};
};

// The scope of a call of a Python task.
class InTask {
public:
    InTask(PythonThread& python, const void* whole) : python_(python) { python_.enter_task(whole); }
    ~InTask() { python_.leave_task(); }
    InTask(const InTask&) = delete;
    InTask& operator=(const InTask&) = delete;

private:
    PythonThread& python_;
};

}  // namespace ostinato
