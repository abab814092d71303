
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bindings/bindings.h"
#include "devices/device_ops.h"

namespace nb = nanobind;

using namespace nb::literals;

namespace ostinato {

namespace {

// Whether lanes can know of it: a serial run is not in the queue until its event has happened.
bool queued(const RunHandle& handle) {
    const std::lock_guard<std::mutex> lock(handle.program->mutex);
    return handle.run->index != 0;
}

// Those of which it is known that devices have done them: where nobody in a step waits for that, it is looked at now
// and then. Of a run that lanes have entered.
std::uint64_t steps_on_devices(const RunHandle& handle) {
    const Program& program = *handle.program;
    const Run& run = *handle.run;
    std::uint64_t least = run.requested;
    const std::lock_guard<std::mutex> lock(handle.program->mutex);  // the plan stays until the run has ended
    if (!run.plan || !run.plan->device)
        return least;
    for (const std::vector<std::uint32_t>& lane : run.plan->device->lazy) {
        for (const std::uint32_t number : lane) {
            const std::uint64_t done = program.signals[number]->timeline.value.load(std::memory_order_acquire);
            least = std::min(least, done - std::min(done, run.first.load(std::memory_order_relaxed)));
        }
    }
    return least;
}

}  // namespace

std::uint64_t steps_of(const RunHandle& handle) {
    const Run& run = *handle.run;
    const std::uint64_t unrolled = handle.program->schedule->unrolled;
    if (run.done.load(std::memory_order_acquire))
        return run.steps_run() * unrolled;
    if (!queued(handle))
        return 0;
    std::uint64_t least = run.requested;
    for (const auto& lane : handle.program->lanes) {
        const std::uint64_t in = lane->run_index.load(std::memory_order_acquire);
        if (in < run.index)
            return 0;
        if (in == run.index)
            least = std::min(least, lane->begun.load(std::memory_order_relaxed) -
                                        std::min(lane->begun.load(std::memory_order_relaxed),
                                                 run.first.load(std::memory_order_relaxed)));
    }
    return std::min(least, steps_on_devices(handle)) * unrolled;
}

namespace {

bool cancelled(const RunHandle& handle) {
    const std::lock_guard<std::mutex> lock(handle.program->mutex);
    return handle.run->cancelled;
}

bool wait_for_run(const RunHandle& handle, double timeout) {
    refuse_after_fork(*handle.program->machine);
    refuse_inside_tasks("waiting for a run");  // whether it is done or not: a task must not hang on luck
    const auto done = [&] { return handle.run->done.load(std::memory_order_acquire); };
    Program& program = *handle.program;
    if (timeout < 0 && !done() && may_visit(*program.machine)) {
        const std::int64_t begun = monotonic_ns();
        if (program.habit.begin_wait(begun)) {
            if (handle.run->python)
                defer_interrupts();
            bool undisturbed = true;
            {
                Caller caller(*program.machine, Caller::Visit::kRun);
                undisturbed = caller.visit(program, *handle.run);
            }
            program.habit.leave_to_workers();
            if (!undisturbed)
                throw nb::python_error();
            raise_interrupt();
        }
        const bool ended = wait_for(*handle.run, timeout, done);
        program.habit.end_wait(monotonic_ns() - begun);
        return ended;
    }
    program.habit.leave_to_workers();
    if (handle.program->machine->own_thread()) {
        // In a callback. This thread aborts what was cancelled and does not end: it must not wait for itself to do so.
        const double first = timeout < 0 ? 0.1 : std::min(timeout, 0.1);
        if (!wait_for(*handle.run, first, done) && cancelled(handle))
            handle.program->abort(*handle.run);
        timeout = timeout < 0 ? timeout : timeout - first;
    }
    return wait_for(*handle.run, timeout, done);
}

// The failures as (op, step, code or exception), and how many more there were.
nb::tuple failures(const RunHandle& handle) {
    std::vector<std::tuple<std::uint32_t, std::uint64_t, std::int32_t, nb::object>> told;
    std::uint64_t unlisted = 0;
    refuse_after_fork(*handle.program->machine);
    {  // no Python object is made under the lock: that may run Python code, which may want the lock
        const std::lock_guard<std::mutex> lock(handle.program->mutex);
        for (const Failure& failure : handle.run->failures)
            told.emplace_back(failure.op, failure.step, failure.code,
                              failure.exception ? nb::borrow(failure.exception->object.get()) : nb::object());
        unlisted = handle.run->failures_unlisted;
    }
    nb::list list;
    for (const auto& [op, step, code, exception] : told)
        list.append(nb::make_tuple(op, step, exception.is_valid() ? exception : nb::object(nb::int_(code))));
    return nb::make_tuple(list, unlisted);
}

// Calls `function` on the machine's own thread when the run is done; false when it is done already.
bool set_callback_of_run(const RunHandle& handle, const nb::object& function) {
    refuse_after_fork(*handle.program->machine);
    handle.program->habit.leave_to_workers();
    const std::lock_guard<std::mutex> lock(handle.program->mutex);
    if (handle.run->done.load(std::memory_order_acquire))
        return false;
    if (!handle.run->python)
        handle.run->python.reset(new PythonRun);
    handle.run->python->callback = PythonReference(function.ptr());
    handle.run->wants_callback = true;
    return true;
}

bool cancel(const RunHandle& handle) {
    refuse_after_fork(*handle.program->machine);
    if (!handle.program->cancel(*handle.run))
        return false;
    handle.program->machine->abort_later(handle.program, handle.run);
    return true;
}

// In a forked child the lock may be held for ever; and the failure is the parent's.
bool unretrieved(const RunHandle& handle) {
    const Run& run = *handle.run;
    if (handle.program->machine->forked() || !run.done.load(std::memory_order_acquire))
        return false;
    const std::lock_guard<std::mutex> lock(handle.program->mutex);
    if (run.failures.empty() && (run.cancelled || !run.poisoned.load(std::memory_order_relaxed)))
        return false;
    return !run.told();
}

nb::list trace_records(const RunHandle& handle) {
    nb::list lanes;
    for (const TraceBuffers::Lane& lane : handle.run->trace->lanes)
        lanes.append(nb::make_tuple(
            nb::bytes(reinterpret_cast<const char*>(lane.records.data()), lane.records.size() * sizeof(TraceRecord)),
            lane.dropped));
    return lanes;
}

// What each lane stands at, as (what it does, a number or two, a text). Lanes may move on meanwhile.
nb::list stuck(const RunHandle& handle) {
    refuse_after_fork(*handle.program->machine);
    Program& program = *handle.program;
    const Run& run = *handle.run;
    nb::list result;
    const auto add = [&](const char* what, std::int64_t first = -1, std::int64_t second = -1, std::string text = {}) {
        result.append(nb::make_tuple(what, first, second, text));
    };
    const auto add_blocked = [&](const Lane& lane, const Timeline* on, std::uint64_t until) {
        for (const auto& other : program.lanes) {
            const auto& ops = other->order->ops;
            if (on != &other->timeline)
                continue;
            const auto [op, step] =
                program.schedule->as_recorded(ops[(until - 1) % ops.size()], (until - 1) / ops.size());
            add("lane", op, static_cast<std::int64_t>(run.user_step(step)));
        }
        const std::shared_ptr<Plan> plan = [&] {
            const std::lock_guard<std::mutex> lock(program.mutex);
            return run.plan;
        }();
        for (std::size_t i = 0; i < program.in_flight_queues.size(); ++i) {
            if (on == &program.in_flight_queues[i]->timeline)
                add("device", -1, -1,
                    plan && plan->device ? plan->device->streams[i]->name + " to finish" : "the device to finish");
        }
        for (std::size_t i = 0; i < program.signals.size(); ++i) {
            if (on != &program.signals[i]->timeline)
                continue;
            const bool here = plan && lane.run_index.load(std::memory_order_acquire) == run.index;
            add("outside", program.schedule->externals[i], static_cast<std::int64_t>(run.user_step(until - 1)),
                here ? plan->external[i]->waits_for(*plan, run, until - 1) : "");
        }
    };
    const bool waiting = !run.done.load(std::memory_order_acquire) && !queued(handle);
    for (const auto& lane : program.lanes) {
        const bool held = lane->claim.load(std::memory_order_acquire) != 0;
        const Timeline* const on = lane->blocked_on.load(std::memory_order_relaxed);
        const std::uint64_t until = lane->blocked_until.load(std::memory_order_relaxed);
        if (waiting)
            add("start");
        else if (held)
            add("running");
        else if (lane->ready())
            add("ready");
        else if (on == &program.frontier)
            add("idle");
        else if (on == &program.completed)
            add("earlier runs");
        else if (on == &program.started)
            add("start", static_cast<std::int64_t>(until) - static_cast<std::int64_t>(run.index));
        else
            add_blocked(*lane, on, until);
    }
    return result;
}

}  // namespace

}  // namespace ostinato

void bind_run(nb::module_& module) {
    using namespace ostinato;
    nb::class_<RunHandle>(module, "Run", "Some steps of a program, submitted together.")
        .def("wait", &wait_for_run, "timeout"_a)
        .def("cancel", &cancel)
        .def(
            "interrupt", [](const RunHandle& self) { PythonThread::interrupt_tasks(self.run.get()); },
            "Raise KeyboardInterrupt inside its Python tasks that run on other threads.")
        .def(
            "halt",
            [](const RunHandle& self, bool cancels) {
                const std::uint64_t limit = self.program->halt(*self.run, cancels);
                if (cancels)
                    self.program->machine->abort_later(self.program, self.run);
                return limit;
            },
            "cancels"_a, "Let no further step begin until `settle`; return how many have begun on this rank.")
        .def(
            "settle", [](const RunHandle& self, std::uint64_t steps) { self.program->settle(*self.run, steps); },
            "steps"_a, "All ranks run so many steps.")
        .def(
            "agree",
            [](const RunHandle& self, bool failed_elsewhere) { self.program->agree(*self.run, failed_elsewhere); },
            "failed_elsewhere"_a, "All ranks have left it.")
        .def_prop_rw(
            "sequence", [](const RunHandle& self) { return self.run->sequence; },
            [](const RunHandle& self, std::uint64_t sequence) { self.run->sequence = sequence; },
            "Which of the things that all ranks do together it is; 0: it is this rank's alone.")
        .def_prop_ro(
            "limit",
            [](const RunHandle& self) {
                const std::lock_guard<std::mutex> lock(self.program->mutex);
                return self.run->limit();
            },
            "The number of steps, or the most that there will be.")
        .def_prop_ro(
            "cut", [](const RunHandle& self) { return self.run->steps_run(); },
            "The number of steps that were run to their end, once all lanes have left it.")
        .def_prop_ro(
            "disagreed",
            [](const RunHandle& self) {
                const std::lock_guard<std::mutex> lock(self.program->mutex);
                return self.run->disagreed;
            },
            "Whether until() would have ended it before other ranks did.")
        .def("failures", &failures)
        .def("deliver", [](const RunHandle& self) { self.program->deliver(*self.run); })
        .def("retrieve", [](const RunHandle& self) { self.program->retrieve(*self.run); })
        .def_prop_ro(
            "settled",
            [](const RunHandle& self) { return self.run->done.load(std::memory_order_acquire) && !unretrieved(self); },
            "Whether it has ended, and nobody need be told how.")
        .def_prop_ro("unretrieved", &unretrieved, "Whether it has failed and the user was not told.")
        .def("forget", [](const RunHandle& self) { self.program->forget(*self.run); })
        .def("set_callback", &set_callback_of_run, "function"_a)
        .def("trace_records", &trace_records)
        .def_prop_ro("submitted", [](const RunHandle& self) { return self.run->trace->submitted; })
        .def_prop_ro("written_back", [](const RunHandle& self) { return self.run->trace->written_back; })
        .def("stuck", &stuck)
        .def_prop_ro("done", [](const RunHandle& self) { return self.run->done.load(std::memory_order_acquire); })
        .def_prop_ro("begun",
                     [](const RunHandle& self) {
                         if (!queued(self))
                             return self.run->done.load(std::memory_order_acquire);
                         for (const auto& lane : self.program->lanes)
                             if (lane->run_index.load(std::memory_order_acquire) >= self.run->index)
                                 return true;
                         return self.run->done.load(std::memory_order_acquire);
                     })
        .def_prop_ro("cancelled", &cancelled)
        .def_prop_ro("poisoned", [](const RunHandle& self) { return self.run->poisoned.load(); })
        .def_prop_ro(
            "good",
            [](const RunHandle& self) { return self.run->done.load(std::memory_order_acquire) && !self.run->bad(); },
            "Whether it has ended as it should.")
        .def_prop_ro(
            "met",
            [](const RunHandle& self) {
                const std::lock_guard<std::mutex> lock(self.program->mutex);
                return self.run->met;
            },
            "Whether until() has ended it, be it after all the steps asked for.")
        .def_prop_ro(
            "affinities",
            [](const RunHandle& self) {
                std::vector<std::uint32_t> affinities;
                for (const LaneOrder& lane : self.program->schedule->lanes)
                    affinities.push_back(lane.affinity);
                return affinities;
            },
            "The slot that each lane of its program is with affinity on.")
        .def_prop_ro("steps", &steps_of)
        .def_prop_ro("requested",
                     [](const RunHandle& self) { return self.run->requested * self.program->schedule->unrolled; })
        .def_prop_ro("poisoned_by",
                     [](const RunHandle& self) -> std::optional<EventHandle> {
                         const std::lock_guard<std::mutex> lock(self.program->mutex);
                         const RunOutside* const outside = self.run->outside.get();
                         return outside && outside->poisoned_by ? std::optional(EventHandle{outside->poisoned_by})
                                                                : std::nullopt;
                     })
        .def(
            "end",
            [](const RunHandle& self, const nb::object& origin) {
                refuse_after_fork(*self.program->machine);
                return EventHandle{self.program->end_of(*self.run, hold(origin))};
            },
            "origin"_a, "The event of its end; `origin` is called to explain it if it is poisoned.")
        .def(
            "post",
            [](const RunHandle& self, std::uint32_t index, const nb::object& origin) {
                refuse_after_fork(*self.program->machine);
                return EventHandle{self.program->post_of(*self.run, index, hold(origin))};
            },
            "index"_a, "origin"_a, "The event of a postcondition, by number.")
        .def_prop_ro(
            "skipped_for",
            [](const RunHandle& self) -> std::optional<RunHandle> {
                const std::lock_guard<std::mutex> lock(self.program->mutex);
                return self.run->skipped_for ? std::optional(RunHandle{self.program, self.run->skipped_for})
                                             : std::nullopt;
            },
            "The earlier run whose failure is why operations of this were skipped.");
}
