#include "python_thread.h"

#include <Python.h>
#include <unistd.h>

#include <atomic>

#include "python_interrupt.h"

namespace ostinato {

namespace {

std::atomic<bool> ending{false};
thread_local bool ends = false;  // this thread ends the interpreter

}  // namespace

void keep_out_of_python() {
    ends = true;
    ending.store(true, std::memory_order_release);
}

PythonThread::~PythonThread() {
    if (!attached_)
        return;
    acquire();
    enter(nullptr);
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
        PyContext_Exit(static_cast<PyObject*>(context_));
        Py_DECREF(static_cast<PyObject*>(context_));
        context_ = nullptr;
    }
    if (context == nullptr)
        return;
    if (PyContext_Enter(static_cast<PyObject*>(context)) == 0)
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
    if (take_interrupt()) {
        PyErr_SetNone(PyExc_KeyboardInterrupt);
        return false;
    }
    return true;
}

}  // namespace ostinato
