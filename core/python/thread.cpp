#include "python/thread.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "python/interrupt.h"
#include "python/plan.h"

namespace ostinato {

namespace {

std::atomic<bool> ending{false};
thread_local bool ends = false;  // this thread ends the interpreter

thread_local const std::atomic<bool>* waits_are_over = nullptr;

std::vector<PythonThread*> in_tasks;  // those that have ever been

void raise_cancelled() {
    const PythonReference error = import_from("concurrent.futures", "CancelledError");
    if (error.get() != nullptr)
        PyErr_SetString(error.get(), "the run or the call that this task is part of was cancelled");
}

}  // namespace

EndingWaits::EndingWaits(const std::atomic<bool>& over) : before_(std::exchange(waits_are_over, &over)) {}
EndingWaits::~EndingWaits() { waits_are_over = before_; }
bool EndingWaits::possible() { return waits_are_over != nullptr; }
bool EndingWaits::due() { return possible() && waits_are_over->load(std::memory_order_relaxed); }

HandlesNothing::HandlesNothing() : handled_(PyErr_GetHandledException()) {
    if (handled_ != nullptr) [[unlikely]]
        PyErr_SetHandledException(nullptr);
}
HandlesNothing::~HandlesNothing() {
    if (handled_ == nullptr) [[likely]]
        return;
    PyErr_SetHandledException(static_cast<PyObject*>(handled_));
    Py_DECREF(static_cast<PyObject*>(handled_));
}

void StaysInCall::stay() {
    for (;;)
        pause();
}

void keep_out_of_python() {
    ends = true;
    ending.store(true, std::memory_order_release);
}

std::mutex& PythonThread::list_mutex() {
    static auto& mutex = *new std::mutex;  // threads may outlive static objects
    return mutex;
}

PythonThread::~PythonThread() {
    if (!attached_)
        return;
    acquire();
    enter(nullptr);
    if (listed_) {
        const std::lock_guard<std::mutex> lock(list_mutex());
        std::erase(in_tasks, this);
    }
    if (!caller_)
        PyGILState_Release(static_cast<PyGILState_STATE>(ensured_));
}

void PythonThread::acquire() {
    if (holds_)
        return;
    while (ending.load(std::memory_order_acquire) && !ends) [[unlikely]]
        pause();
    if (state_ != nullptr) {
        PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
        state_ = nullptr;
    } else {
        ensured_ = static_cast<int>(PyGILState_Ensure());  // makes this thread's state; kept until the thread ends
        attached_ = true;
    }
    holds_ = true;
}

void PythonThread::drop() {
    enter(nullptr);
    state_ = PyEval_SaveThread();
    holds_ = false;
}

void PythonThread::change_context(void* context) {
    // Neither call fails: we enter contexts of our own, once, and leave them on the thread that entered them.
    if (context_ != nullptr) {
        python_api.context_exit(static_cast<PyObject*>(context_));
        Py_DECREF(static_cast<PyObject*>(context_));
        context_ = nullptr;
    }
    if (context == nullptr)
        return;
    if (python_api.context_enter(static_cast<PyObject*>(context)) == 0)
        context_ = Py_NewRef(static_cast<PyObject*>(context));
    else
        PyErr_Clear();
}

bool PythonThread::check() {
    if (!caller_) {
        drop();
        acquire();
        return true;
    }
    acquire();
    enter(nullptr);
    if (PyErr_CheckSignals() != 0)
        return false;
    if (EndingWaits::due()) {
        raise_cancelled();
        return false;
    }
    if (take_interrupt()) {
        PyErr_SetNone(PyExc_KeyboardInterrupt);
        return false;
    }
    return true;
}

void PythonThread::list() {
    thread_ = PyThread_get_thread_ident();
    const std::lock_guard<std::mutex> lock(list_mutex());
    in_tasks.push_back(this);
    listed_ = true;
}

void PythonThread::interrupt_tasks(const void* whole) {
    const unsigned long here = PyThread_get_thread_ident();
    const std::lock_guard<std::mutex> lock(list_mutex());
    std::vector<PythonThread*> others;
    for (PythonThread* const thread : in_tasks)
        if (thread->task() == whole && thread->thread_ != here)
            others.push_back(thread);
    for (PythonThread* const thread : others)
        thread->interrupted_.store(true, std::memory_order_relaxed);
    heavy_fence();
    for (PythonThread* const thread : others)
        if (thread->task() == whole)
            PyThreadState_SetAsyncExc(thread->thread_, PyExc_KeyboardInterrupt);
}

void PythonThread::forget_interrupt() {
    const std::lock_guard<std::mutex> lock(list_mutex());  // the interrupter has done what it does
    PyThreadState_SetAsyncExc(thread_, nullptr);           // where the task ended before it was raised
    interrupted_.store(false, std::memory_order_relaxed);
}

void PythonThread::forget_others() {
    const unsigned long here = PyThread_get_thread_ident();
    const std::lock_guard<std::mutex> lock(list_mutex());
    std::erase_if(in_tasks, [here](const PythonThread* thread) { return thread->thread_ != here; });
}

}  // namespace ostinato
