// A thread in replay(): it replaces the worker of slot 0.
#pragma once

#include "lanes/machine.h"
#include "program/run.h"

namespace ostinato {

class Caller {
public:
    // Takes the slot if it is free, or is made free at once. The thread holds the GIL.
    explicit Caller(Machine& machine);
    ~Caller();
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

    // Serves slot 0, or waits for it and for `run`, until the run is done. False: a signal handler raised.
    bool work_until_done(Run& run);

private:
    void ask();  // for the slot, for a short while
    void poll(std::int64_t give_up);
    // In between no worker takes the slot, or enters a run: what is submitted meanwhile is left to this thread.
    void begin_waiting();
    void end_waiting();
    bool wait_for_slot(Run& run, PythonThread& python);  // or for `run`. False: a signal handler raised
    void leave();

    Machine& machine_;
    Slot& slot_;
    bool in_slot_;
    bool waiting_ = false;
};

// Waits until `run` is done or `timeout_ns` (negative: no limit) has passed. False: a signal handler raised.
bool wait_until_done(Run& run, std::int64_t timeout_ns);

}  // namespace ostinato
