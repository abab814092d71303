// A thread's hold of Python's global interpreter lock. The thread state stays attached for life: making one a call
// would cost microseconds. Implemented in python_thread.cpp; nothing here needs Python's headers.
#pragma once

#include <cstdint>

namespace ostinato {

// Before the interpreter ends: a thread but the calling one that asks for the lock from now on stays where it is.
// Python would end it in the middle of our frames.
void keep_out_of_python();

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
    // Lets Python look at signals and other threads take the lock. False when a handler raised: the error is set.
    bool check();

private:
    void drop();
    void change_context(void* context);

    void* state_ = nullptr;    // PyThreadState*, while the lock is dropped
    void* context_ = nullptr;  // entered, a strong reference
    bool holds_, attached_;
    const bool caller_;
    int ensured_ = 0;
};

}  // namespace ostinato
