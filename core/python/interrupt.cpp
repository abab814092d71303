#include "python/interrupt.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "lanes/worker.h"
#include "python/plan.h"

namespace ostinato {

namespace {

std::atomic<bool> in_place{false};
std::atomic<bool> noted{false};
std::atomic<bool> expected{false};  // a replay is ending since it was interrupted before

bool main_thread() {
    thread_local const bool is_main = syscall(SYS_gettid) == getpid();
    return is_main;
}

PyObject* on_interrupt(PyObject*, PyObject*) {
    const Worker* const worker = Worker::current();
    if (worker == nullptr || noted.load(std::memory_order_relaxed) || expected.load(std::memory_order_relaxed)) {
        noted.store(false, std::memory_order_relaxed);
        if (worker != nullptr && worker->python.task() != nullptr)
            PythonThread::interrupt_tasks(worker->python.task());  // those of the same run on other threads
        PyErr_SetNone(PyExc_KeyboardInterrupt);
        return nullptr;
    }
    noted.store(true, std::memory_order_relaxed);
    worker->slot.attention.fetch_or(kLook, std::memory_order_relaxed);
    Py_RETURN_NONE;
}

PyMethodDef handler_definition = {"interrupt", on_interrupt, METH_VARARGS,
                                  "Note Ctrl-C inside a task; raise KeyboardInterrupt elsewhere."};

// Replaces handler `from` of SIGINT by `to`, if it is in place; both borrowed. Errors are not worth telling.
bool exchange(PyObject* from, PyObject* to) {
    const PythonReference get = import_from("_signal", "getsignal"), set = import_from("_signal", "signal");
    if (get.get() == nullptr || set.get() == nullptr)
        return false;
    const auto current = PythonReference::steal(PyObject_CallFunction(get.get(), "i", SIGINT));
    return current.get() == from &&
           PythonReference::steal(PyObject_CallFunction(set.get(), "iO", SIGINT, to)).get() != nullptr;
}

bool exchange(bool ours) {
    static PyObject* const handler = PyCFunction_New(&handler_definition, nullptr);
    const PythonReference usual = import_from("_signal", "default_int_handler");
    const bool replaced = usual.get() != nullptr && handler != nullptr &&
                          exchange(ours ? usual.get() : handler, ours ? handler : usual.get());
    PyErr_Clear();
    return replaced;
}

int put_back(void*) {
    exchange(false);
    in_place.store(false, std::memory_order_relaxed);
    return 0;
}

}  // namespace

void defer_interrupts() {
    if (in_place.load(std::memory_order_relaxed) || !main_thread())
        return;
    if (exchange(true))
        in_place.store(true, std::memory_order_relaxed);
}

void restore_interrupts() {
    if (in_place.load(std::memory_order_relaxed))
        Py_AddPendingCall(put_back, nullptr);
}

bool take_interrupt() {
    return noted.load(std::memory_order_relaxed) && main_thread() && noted.exchange(false, std::memory_order_relaxed);
}

void expect_interrupt(bool another) {
    if (main_thread())
        expected.store(another, std::memory_order_relaxed);
}

}  // namespace ostinato
