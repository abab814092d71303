#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <optional>

#include "bindings/messages.h"
#include "python/external.h"
#include "python/interrupt.h"

namespace nb = nanobind;

using namespace nb::literals;

namespace ostinato {

namespace {

const std::atomic<bool> kNever{false};

constexpr long long kMostSteps = 1LL << 62;                 // as in runtime/arguments.py
constexpr std::size_t kMostRecords = std::size_t{1} << 22;  // of one traced run: 128 MiB

// A program as Python holds it. Its end never waits: runs in flight keep the core alive, and then it retires.
struct ProgramHandle {
    std::shared_ptr<Program> program;

    ProgramHandle(const std::shared_ptr<Machine>& machine, const std::shared_ptr<Schedule>& schedule,
                  const std::shared_ptr<Plan>& plan, Runs runs)
        : program(std::make_shared<Program>(machine, schedule, plan, runs)) {}
    ~ProgramHandle() { let_go(); }
    ProgramHandle(const ProgramHandle&) = delete;
    ProgramHandle& operator=(const ProgramHandle&) = delete;

    void let_go() {
        if (program->machine->forked())
            return;
        program->close();
        if (program->active.load(std::memory_order_relaxed)) {
            program->machine->retire(*program);
            program->machine->notify_all();
        }
    }
};

// The slot that a thread serves between the parts of a run, too: no other work gets it in between.
struct CallerHandle {
    std::shared_ptr<Machine> machine;
    std::optional<Caller> caller;
};

std::size_t count_python_lanes(const Schedule& schedule) {
    std::size_t count = 0;
    for (const LaneOrder& lane : schedule.lanes)
        count += std::any_of(lane.batches.begin(), lane.batches.end(),
                             [](const Batch& batch) {  // arrivals may combine values
                                 return batch.kind == Kind::kPython || batch.kind == Kind::kExternal;
                             });
    return count;
}

std::shared_ptr<Event> pending(RunOutside& outside, nb::handle event) {
    return event.is_none() ? nullptr : pending(outside, nb::cast<const EventHandle&>(event).event);
}

// What is given for a run beyond its parameters: (default precondition or None, preconditions by number, barriers by
// number, the number of its first step or -1, the run whose steps it goes on with or None).
void give(Run& run, const nb::tuple& given) {
    run.outside = std::make_unique<RunOutside>();
    RunOutside& outside = *run.outside;
    outside.after = pending(outside, given[0]);
    const auto events = nb::borrow<nb::tuple>(given[1]);
    outside.preconditions.reserve(events.size());
    for (nb::handle event : events)
        outside.preconditions.push_back(pending(outside, event));
    for (nb::handle barrier : nb::cast<nb::tuple>(given[2]))
        outside.barriers.push_back({nb::cast<const BarrierHandle&>(barrier).barrier, nullptr});
    const auto first = nb::cast<std::int64_t>(given[3]);
    if (first >= 0)
        run.user_first = static_cast<std::uint64_t>(first);
    if (!given[4].is_none())
        outside.continues = nb::cast<const RunHandle&>(given[4]).run;
}

// Floats and ints, as bits.
std::vector<std::uint64_t> numbers(const nb::list& list) {
    std::vector<std::uint64_t> bits;
    bits.reserve(list.size());
    for (nb::handle number : list)
        bits.push_back(PyFloat_CheckExact(number.ptr()) ? std::bit_cast<std::uint64_t>(PyFloat_AsDouble(number.ptr()))
                                                        : static_cast<std::uint64_t>(nb::cast<std::int64_t>(number)));
    return bits;
}

// Of the context that is current where `context` is null.
PythonReference copy_context(PyObject* context) {
    auto copy = PythonReference::steal(context == nullptr ? python_api.context_copy_current()
                                                          : python_api.context_copy(context));
    if (copy.get() == nullptr)
        throw nb::python_error();
    return copy;
}

// Null where another program has taken over. `before`: the part before this one.
std::shared_ptr<Run> make_run(Program& program, std::uint64_t steps, int priority, bool stop_on_error,
                              const nb::object& values, const nb::object& objects, const nb::object& given, bool traced,
                              Asked asked, const Run* before = nullptr) {
    auto run = std::make_shared<Run>();
    run->requested = steps;
    run->asked = asked;
    run->priority = priority;
    run->on_error = stop_on_error ? OnError::kStop : OnError::kContinue;
    run->floating_point = FloatingPointMode::current();
    if (!values.is_none())
        run->values = numbers(nb::cast<nb::list>(values));
    if (!given.is_none())
        give(*run, nb::cast<nb::tuple>(given));
    const Schedule& schedule = *program.schedule;
    const std::shared_ptr<Plan> plan = asked == Asked::kPart ? program.held_plan() : program.plan();
    if (plan == nullptr) {
        if (program.passive())
            return nullptr;
        throw std::runtime_error("the program is closed");
    }
    if (plan->python) {
        run->python.reset(new PythonRun);
        const PythonRun* const same = before != nullptr ? before->python.get() : nullptr;
        run->python->context = same ? PythonReference(same->context.get()) : copy_context(nullptr);
        if (schedule.lanes.size() > 1 && count_python_lanes(schedule) > 1) {
            const bool lanes = same && same->lane_contexts.size() == schedule.lanes.size();
            for (std::size_t i = 0; i < schedule.lanes.size(); ++i)
                run->python->lane_contexts.push_back(lanes ? PythonReference(same->lane_contexts[i].get())
                                                           : copy_context(run->python->context.get()));
        }
        if (!objects.is_none()) {
            for (nb::handle object : nb::cast<nb::list>(objects))
                run->python->values.emplace_back(object.ptr());
        }
    }
    if (traced) {
        run->trace = std::make_unique<TraceBuffers>();
        run->trace->submitted = monotonic_ns();
        run->trace->lanes.resize(schedule.lanes.size());
        for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
            const std::size_t ops = schedule.lanes[i].ops.size();
            const std::size_t share = kMostRecords / schedule.n_ops * ops;
            run->trace->lanes[i].records.reserve(steps < share / ops + 1 ? steps * ops : share);
        }
    }
    return run;
}

// Takes part in serving until `run`, which `submit` submits, is done; as `caller`, where that is given. Returns the
// number of steps, or the run where there is more to tell; None where the program takes no runs, since another has
// taken over.
template <class Submit>
nb::object take_part(ProgramHandle& handle, const std::shared_ptr<Run>& run, std::optional<Caller>& caller,
                     Submit submit) {
    Program& program = *handle.program;
    if (run->python)
        defer_interrupts();
    const std::int64_t begun = program.turn_timed() ? monotonic_ns() : 0;
    nb::object interrupt;
    bool taken = false;
    {
        const bool stays = caller.has_value();
        if (!stays)
            caller.emplace(*program.machine);  // takes the slot first: then submitting need not wake its worker
        taken = submit();
        int interrupts = 0;
        std::optional<EndingWaits> told;  // once: from then on this thread helps the run to end
        while (taken && !caller->work_until_done(*run)) {
            const nb::python_error raised;  // takes the error indicator
            if (interrupts == 0)
                interrupt = nb::borrow(raised.value());
            if (EndingWaits::due())
                told.emplace(kNever);
            if (interrupts++ == 0 && program.cancel(*run)) {
                program.machine->abort_later(handle.program, run);
                expect_interrupt(true);
            } else {
                program.abort(*run);
                if (raised.matches(PyExc_KeyboardInterrupt))
                    PythonThread::interrupt_tasks(run.get());
            }
        }
        expect_interrupt(false);
        if (!stays)
            caller.reset();
    }
    if (take_interrupt() && !interrupt.is_valid()) {  // too late to stop anything
        PyErr_SetNone(PyExc_KeyboardInterrupt);
        throw nb::python_error();
    }
    if (interrupt.is_valid()) {
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(interrupt.ptr())), interrupt.ptr());
        throw nb::python_error();
    }
    if (!taken)
        return nb::none();
    if (run->trace || run->bad())
        return nb::cast(RunHandle{handle.program, run});
    if (begun != 0 && run->asked != Asked::kWhole) [[unlikely]]
        program.add_to_turn(run->limit(), monotonic_ns() - begun);
    return nb::int_(run->limit());
}

// Binds a method that makes a run and does something with it: `act(handle, run)`, the run null where another program
// has taken over.
template <class Act>
void def_run(nb::class_<ProgramHandle>& program, const char* name, bool waits, Asked asked, Act act, const char* text) {
    program.def(
        name,
        [waits, asked, act](ProgramHandle& handle, std::uint64_t steps, int priority, bool stop_on_error,
                            const nb::object& values, const nb::object& objects, const nb::object& given, bool traced) {
            if (waits)
                refuse_inside_tasks("replay");
            refuse_after_fork(*handle.program->machine);
            return act(handle, make_run(*handle.program, steps, priority, stop_on_error, values, objects, given, traced,
                                        asked));
        },
        "steps"_a, "priority"_a, "stop_on_error"_a, "values"_a.none(), "objects"_a.none(), "given"_a.none(), "traced"_a,
        text);
}

nb::object replay(ProgramHandle& handle, const std::shared_ptr<Run>& run) {
    std::optional<Caller> caller;
    return run ? take_part(handle, run, caller, [&] { return handle.program->submit(run); }) : nb::none();
}

// As replay, without options; None also where `steps` is no int that can be a number of steps.
nb::object replay_plainly(ProgramHandle& handle, nb::handle steps) {
    int overflow = 0;
    const long long wanted = PyLong_CheckExact(steps.ptr()) ? PyLong_AsLongLongAndOverflow(steps.ptr(), &overflow) : -1;
    if (wanted < 0 || wanted > kMostSteps)
        return nb::none();
    refuse_inside_tasks("replay");
    refuse_after_fork(*handle.program->machine);
    const nb::object none = nb::none();
    return replay(handle, make_run(*handle.program, static_cast<std::uint64_t>(wanted), 0, true, none, none, none,
                                   false, Asked::kWaiting));
}

nb::object replay_as_run(ProgramHandle& handle, const std::shared_ptr<Run>& run) {
    const nb::object ended = replay(handle, run);
    return ended.is_none() ? ended : nb::cast(RunHandle{handle.program, run});
}

std::optional<RunHandle> submit(ProgramHandle& handle, const std::shared_ptr<Run>& run) {
    return run && handle.program->submit(run) ? std::optional(RunHandle{handle.program, run}) : std::nullopt;
}

// The run, as `submit`; `NotImplemented` where Python code must look at what is given. `form`: as `Values.form`, and
// the names of the preconditions. `first`: the number of the run's first step, or -1.
nb::object submit_given(ProgramHandle& handle, std::uint64_t steps, int priority, bool stop_on_error,
                        const nb::tuple& form, const nb::object& after, const nb::dict& params, std::int64_t first) {
    refuse_after_fork(*handle.program->machine);
    PlainValues values;
    std::unique_ptr<RunOutside> outside;
    if (!read_params(values, form, params) || !read_after(outside, nb::borrow<nb::tuple>(form[4]), after))
        return nb::borrow(Py_NotImplemented);
    const nb::object none = nb::none();
    const std::shared_ptr<Run> run =
        make_run(*handle.program, steps, priority, stop_on_error, none, none, none, false, Asked::kWhole);
    if (!run)
        return none;
    run->values = std::move(values.numbers);
    run->outside = std::move(outside);
    if (run->python)
        run->python->values = std::move(values.objects);
    if (first >= 0)
        run->user_first = static_cast<std::uint64_t>(first);
    return handle.program->submit(run) ? nb::cast(RunHandle{handle.program, run}) : none;
}

nb::tuple activity(const MachineHandle& handle) {
    refuse_after_fork(*handle.machine);
    Machine& machine = *handle.machine;
    const std::int64_t now = IdleTime::clock();
    nb::list idle;
    for (const auto& slot : machine.slots())
        idle.append(slot->idle.until(now));
    // Before those in flight: a run that ends meanwhile may be left out, which the next look makes good.
    std::uint64_t steps = machine.steps_ended.load(std::memory_order_relaxed);
    const auto runs = machine.in_flight();
    for (const auto& [program, run] : runs)
        steps += run->done.load(std::memory_order_acquire) ? 0 : steps_of({program, run});
    return nb::make_tuple(now, idle, steps, runs.size() + machine.calls().in_flight().size());
}

nb::dict statistics(const ProgramHandle& handle) {
    refuse_after_fork(*handle.program->machine);
    const Program& program = *handle.program;
    std::uint64_t done = 0, blocked = 0;
    for (const auto& lane : program.lanes) {
        done += lane->timeline.value.load(std::memory_order_acquire) -
                program.schedule->first_step * lane->order->ops.size();
        blocked += lane->blocked_count.load(std::memory_order_relaxed);
    }
    const std::shared_ptr<Plan> plan = handle.program->plan();
    nb::dict result;
    result["operations"] = done;
    result["blocked"] = blocked;
    // The steps that were asked for together are one run.
    const std::uint64_t further = program.further_parts.load(std::memory_order_relaxed);
    const std::uint64_t submitted = program.frontier.value.load(std::memory_order_acquire);
    const std::uint64_t ended = program.completed.value.load(std::memory_order_acquire);
    result["runs_submitted"] = submitted - std::min(submitted, further);
    result["runs_done"] = ended - std::min(ended, further);
    result["core_bytes"] = program.schedule->bytes() + (plan ? plan->bytes() : 0) +
                           program.lanes.size() * sizeof(Lane) + program.history.bytes();
    return result;
}

}  // namespace

}  // namespace ostinato

void bind_runtime(nb::module_& module) {
    using namespace ostinato;
    nb::class_<MachineHandle>(module, "Machine", "Slots and their threads.")
        .def(
            "__init__",
            [](MachineHandle* self, const std::vector<int>& cores, bool crowded, const nb::object& init, bool watched) {
                new (self) MachineHandle{Machine::create(cores, crowded, hold(init), watched)};
            },
            "cores"_a, "crowded"_a, "init"_a.none(), "watched"_a = false)
        .def("close",
             [](MachineHandle& self) {
                 if (self.machine->forked())
                     return self.machine->abandon();
                 const nb::gil_scoped_release unlocked;
                 self.machine->close(true);
             })
        .def("in_flight",
             [](const MachineHandle& self) {
                 nb::list result;
                 for (auto& [program, run] : self.machine->in_flight())
                     result.append(RunHandle{program, run});
                 return result;
             })
        .def(
            "activity", &activity,
            "Of one that is watched: the time now, how long each slot has been idle, both in ns, how many steps it has "
            "run, and how many runs and spawned calls are in flight.")
        .def_prop_ro("forked", [](const MachineHandle& self) { return self.machine->forked(); })
        .def_prop_ro(
            "lanes_looked_at",
            [](const MachineHandle& self) { return self.machine->looked_at.load(std::memory_order_relaxed); },
            "How many lanes threads have looked at to know which programs have work.");
    nb::class_<CallerHandle>(module, "Caller", "A thread that takes part in several runs; used by no other.")
        .def(
            "__init__",
            [](CallerHandle* self, const MachineHandle& machine) {
                refuse_inside_tasks("replay");
                refuse_after_fork(*machine.machine);
                new (self) CallerHandle{machine.machine, std::nullopt};
                self->caller.emplace(*machine.machine);
            },
            "machine"_a)
        .def("leave", [](CallerHandle& self) { self.caller.reset(); });
    nb::class_<ProgramHandle> program(module, "Program", "A schedule with its lanes and its queue of runs.");
    program
        .def(
            "__init__",
            [](ProgramHandle* self, const MachineHandle& machine, const ScheduleHandle& schedule,
               const PlanHandle& plan, const std::string& runs) {
                new (self) ProgramHandle(machine.machine, schedule.schedule, plan.plan,
                                         runs == "pipelined" ? Runs::kPipelined
                                         : runs == "serial"  ? Runs::kSerial
                                                             : Runs::kIndependent);
            },
            "machine"_a, "schedule"_a, "plan"_a, "runs"_a)
        .def_prop_ro(
            "in_own_task", [](const ProgramHandle& self) { return program_of_this_thread() == self.program.get(); },
            "Whether the calling thread is in a task of this program that may block.")
        .def_prop_ro("idle", [](const ProgramHandle& self) { return self.program->idle(); })
        .def(
            "join", [](ProgramHandle& self, const TrafficHandle& traffic) { self.program->join(traffic.traffic); },
            "traffic"_a, "Let other ranks take part in its runs.")
        .def(
            "follow",
            [](ProgramHandle& self, const RunHandle& run) {
                std::optional<Caller> caller;
                return take_part(self, run.run, caller, [] { return true; });
            },
            "run"_a, "Take part until a run is done; as replay, of a run that was submitted.")
        .def(
            "make_passive", [](ProgramHandle& self) { self.program->make_passive(); },
            "Take no runs until it takes over.")
        .def(
            "switch_from",
            [](ProgramHandle& self, ProgramHandle& other) {
                refuse_after_fork(*self.program->machine);
                return self.program->switch_from(*other.program);
            },
            "other"_a, "Go on where another program of the same operations stands, if both are idle.")
        .def(
            "hold", [](ProgramHandle& self) { return self.program->hold(); },
            "Let all but the parts of one run wait; false while runs are in flight.")
        .def(
            "release", [](ProgramHandle& self) { self.program->release(); }, "End that.")
        .def(
            "advance", [](ProgramHandle& self, std::uint64_t step) { self.program->advance(step); }, "step"_a,
            "While it is held: another program has run the steps up to this one.")
        .def(
            "skip_held", [](ProgramHandle& self, const RunHandle& failed) { self.program->skip_held(failed.run); },
            "failed"_a, "End what is held without a step, since a run of such a program has failed.")
        .def(
            "begin_turn",
            [](ProgramHandle& self, std::uint64_t steps, bool timed) { self.program->begin_turn(steps, timed); },
            "steps"_a, "timed"_a, "Let threads wait for runs of so many steps in all.")
        .def_prop_ro(
            "turn",
            [](ProgramHandle& self) {
                const Turn turn = self.program->turn();
                return nb::make_tuple(turn.left, turn.steps, turn.ns, turn.disturbed);
            },
            "Of the present turn: steps left, steps done, ns that they took, whether other runs came between.")
        .def_prop_ro("takes_runs", [](const ProgramHandle& self) { return self.program->takes_runs(); })
        .def_prop_ro("steps_run", [](const ProgramHandle& self) { return self.program->steps_run(); })
        .def(
            "number_from",
            [](ProgramHandle& self, std::uint64_t step) {
                refuse_after_fork(*self.program->machine);
                return self.program->number_from(step);
            },
            "step"_a, "Give the next step this number; false while runs are in flight.")
        .def(
            "rebind", [](ProgramHandle& self, const PlanHandle& plan) { self.program->rebind(plan.plan); }, "plan"_a)
        .def("refuse_runs", [](ProgramHandle& self) { self.program->close(); })
        .def("in_flight",
             [](const ProgramHandle& self) {
                 nb::list runs;
                 for (const std::shared_ptr<Run>& run : self.program->in_flight())
                     runs.append(RunHandle{self.program, run});
                 return runs;
             })
        .def("close", &ProgramHandle::let_go)
        .def("statistics", &statistics);
    def_run(program, "replay", true, Asked::kWaiting, &replay,
            "Take part until the run is done; None where another program has taken over, or the turn is too short.");
    def_run(program, "replay_as_run", true, Asked::kWhole, &replay_as_run, "As replay, but the run however it ends.");
    def_run(program, "submit", false, Asked::kWhole, &submit, "The run; None where another program has taken over.");
    program.def("replay_plainly", &replay_plainly, "steps"_a.none(),
                "As replay, of so many steps and with no options; or None.");
    program.def("submit_given", &submit_given, "steps"_a, "priority"_a, "stop_on_error"_a, "form"_a, "after"_a.none(),
                "params"_a, "first"_a = -1,
                "As submit, of plain arguments; `NotImplemented` where they are not, or are wrong.");
    module.def("all_happened", &all_happened, "after"_a.none(),
               "Whether a run need not wait for any of these events; false where that takes a closer look.");
    program.def(
        "replay_part",
        [](ProgramHandle& handle, std::uint64_t steps, int priority, const nb::object& values,
           const nb::object& objects, bool traced, const std::optional<RunHandle>& before, bool last,
           CallerHandle& caller) {
            refuse_after_fork(*handle.program->machine);
            const std::shared_ptr<Run> run =
                make_run(*handle.program, steps, priority, true, values, objects, nb::none(), traced, Asked::kPart,
                         before ? before->run.get() : nullptr);
            run->last_part = last;
            take_part(handle, run, caller.caller, [&] { return handle.program->submit(run); });
            return RunHandle{handle.program, run};
        },
        "steps"_a, "priority"_a, "values"_a.none(), "objects"_a.none(), "traced"_a, "before"_a.none(), "last"_a,
        "caller"_a, "As replay_as_run, of a part of what is held.");
    module.def("end_all", &Machine::end_all, nb::call_guard<nb::gil_scoped_release>(),
               "Before the interpreter ends: cancels what still runs, and waits until no thread of ours is left.");
    module.def("leave_all", &keep_out_of_python,
               "Instead, when that would take for ever: threads that are left do not come back into Python.");
    module.def("waits_may_end", &EndingWaits::possible,
               "Whether waits of the calling thread end when its task is cancelled.");
    module.def("waits_are_over", &EndingWaits::due, "Whether they do now.");
    module.def(
        "serving", [] { return Worker::current() != nullptr; },
        "Whether the calling thread is serving lanes, so that its Python code is part of a task.");
}
