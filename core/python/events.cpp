#include "python/events.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "park/threads.h"
#include "python/plan.h"
#include "python/thread.h"

namespace ostinato {

namespace {

// The thread, and what it has to call.
class Caller {
public:
    // False: the interpreter is about to end.
    bool start() {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (ending_)
            return false;
        if (!thread_.joinable())
            thread_ = start_thread([this] { work(); });
        return true;
    }

    void call(std::vector<PythonObjectHandle> functions) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (due_.empty())
            wake_.notify_one();
        std::move(functions.begin(), functions.end(), std::back_inserter(due_));
    }

    void end() {
        std::thread thread;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            ending_ = true;
            thread.swap(thread_);
            wake_.notify_one();
        }
        if (thread.joinable())
            thread.join();
    }

    std::mutex& mutex() { return mutex_; }

private:
    void work() {
        PythonThread python(false);
        std::vector<PythonObjectHandle> batch;
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [this] { return ending_ || !due_.empty(); });
            if (due_.empty())
                return;
            batch.swap(due_);
            lock.unlock();
            python.acquire();
            for (const PythonObjectHandle& function : batch)
                call_or_tell(function->object.get());
            batch.clear();
            python.release();
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<PythonObjectHandle> due_;
    std::thread thread_;
    bool ending_ = false;
};

Caller* caller = nullptr;  // never destroyed: in a forked child its thread is nowhere, yet it looks as if it were

Caller& the_caller() {
    static const bool prepared = [] {
        caller = new Caller;
        pthread_atfork([] { caller->mutex().lock(); }, [] { caller->mutex().unlock(); }, [] { caller = new Caller; });
        return true;
    }();
    (void)prepared;
    return *caller;
}

}  // namespace

bool call_back(Event& event, PythonObjectHandle function) {
    if (event.done())
        return false;
    if (!the_caller().start())
        throw std::runtime_error("the interpreter is ending: nothing is called back any more");
    return event.call_back(std::move(function),
                           [](std::vector<PythonObjectHandle> functions) { the_caller().call(std::move(functions)); });
}

void end_callbacks() { the_caller().end(); }

ExceptionHandle keep_with_value(Barrier& barrier, std::uint64_t phase, std::uint64_t count, PyObject* value) {
    PythonReference result;
    StaysInCall here;
    if (barrier.combine)
        result = PythonReference::steal(PyObject_CallFunction(barrier.combine->object.get(), "KKO",
                                                              static_cast<unsigned long long>(phase),
                                                              static_cast<unsigned long long>(barrier.phase()), value));
    else
        PyErr_SetString(PyExc_ValueError,
                        "an arrival has a value, but its barrier has no reduce= that would take it: make it with one");
    here.returned();
    if (result.get() == nullptr) {
        ExceptionHandle raised = take_exception();
        barrier.withdraw(phase, count);
        return raised;
    }
    barrier.keep(phase, count);
    return {};
}

}  // namespace ostinato
