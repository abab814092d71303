// What Python holds of things of the core, and what it may not do where it stands.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lanes/worker.h"
#include "outside/reservation.h"
#include "program/run.h"
#include "python/interrupt.h"
#include "python/plan.h"

namespace ostinato {

// Handles by value: a shared pointer that nanobind makes from a Python object would need the GIL wherever its last copy
// ends.
struct ScheduleHandle {
    std::shared_ptr<Schedule> schedule;
};
struct PlanHandle {
    std::shared_ptr<Plan> plan;
};
struct EventHandle {
    std::shared_ptr<Event> event;
};
struct BarrierHandle {
    std::shared_ptr<Barrier> barrier;
};
struct ReservationHandle {
    std::shared_ptr<Reservation> reservation;
};
struct RunHandle {
    std::shared_ptr<Program> program;
    std::shared_ptr<Run> run;
};
// Its end tells the threads to end once all runs have, and does not wait for them.
struct MachineHandle {
    std::shared_ptr<Machine> machine;
    ~MachineHandle() {
        if (!machine)
            return;
        if (machine->forked())
            machine->abandon();
        else
            machine->forget();
    }
};

// How many steps of the run all lanes have done.
std::uint64_t steps_of(const RunHandle& handle);

// The object, for the core; null for None.
inline PythonObjectHandle hold(nanobind::handle object) {
    return PythonObjectHandle(object.is_none() ? nullptr : new PythonObject{PythonReference(object.ptr())});
}

// Also where there is nothing to wait for: a task must not hang on luck.
inline void refuse_inside_tasks(const char* what) {
    if (Worker::current() == nullptr)
        return;
    const PythonReference error = import_from("ostinato.errors", "ContractError");
    if (error.get() != nullptr)
        PyErr_Format(error.get(),
                     "%s inside a task: a task on a lane must not wait: what it waits for may need this very lane; "
                     "declare the task blocking=True",
                     what);
    throw nanobind::python_error();
}

inline void refuse_after_fork(bool forked, const char* what, const char* other = "another") {
    if (forked)
        throw std::runtime_error(std::string("this process was forked after the ") + what + " was made; make " + other +
                                 " in the child");
}

inline void refuse_after_fork(const Machine& machine) { refuse_after_fork(machine.forked(), "machine", "a Machine"); }

// Waits for an event, a run or a call; negative: no limit. Returns `done()`.
template <class Work, class Done>
bool wait_for(Work& work, double seconds, Done done) {
    if (!done() && !wait_until_done(work, seconds < 0 || seconds > 1e9 ? -1 : static_cast<std::int64_t>(seconds * 1e9)))
        throw nanobind::python_error();
    return done();
}

// Whether the calling thread, which waits, may do what it waits for: not where that waits may be ended, nor on a thread
// that others rely on, nor where threads are to be prepared for tasks.
inline bool may_visit(const Machine& machine) {
    return !machine.init && !EndingWaits::possible() && !machine.own_thread() && !machine.closed();
}

// Raises the Ctrl-C that was noted while the calling thread ran tasks.
inline void raise_interrupt() {
    if (take_interrupt()) [[unlikely]] {
        PyErr_SetNone(PyExc_KeyboardInterrupt);
        throw nanobind::python_error();
    }
}

// The event; null where it has happened or is none. What it comes after is added to `outside`.
std::shared_ptr<Event> pending(RunOutside& outside, const std::shared_ptr<Event>& given);

// The values of parameters: bits of those of native tasks, and objects for others.
struct PlainValues {
    std::vector<std::uint64_t> numbers;
    std::vector<PythonReference> objects;
};

// False where Python code must look at what is given, be it to say what is wrong with it. `form`: as
// `Values.form` in runtime/arguments.py.
bool read_params(PlainValues& values, const nanobind::tuple& form, const nanobind::dict& given);
bool read_after(std::unique_ptr<RunOutside>& outside, const nanobind::tuple& names, const nanobind::object& after);

// Whether a run need not wait for any of these events; false where that takes a closer look.
bool all_happened(const nanobind::object& after);

}  // namespace ostinato

void bind_passes(nanobind::module_& module);
void bind_schedule(nanobind::module_& module);
void bind_native(nanobind::module_& module);
void bind_eager(nanobind::module_& module);
void bind_recording(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_events(nanobind::module_& module);
void bind_run(nanobind::module_& module);
void bind_runtime(nanobind::module_& module);
void bind_spawn(nanobind::module_& module);
void bind_machine_costs(nanobind::module_& module);
void bind_devices(nanobind::module_& module);
void bind_messages(nanobind::module_& module);
