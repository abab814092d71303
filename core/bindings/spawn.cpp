#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace ostinato {

namespace {

struct SpawnedHandle {
    std::shared_ptr<SpawnedCall> call;
};

SpawnedCall& usable(const SpawnedHandle& handle) {
    refuse_after_fork(handle.call->machine->forked(), "machine");
    return *handle.call;
}

SpawnedHandle spawn(const MachineHandle& machine, const nb::object& function, const nb::tuple& arguments,
                    const EventHandle* after, int priority, int slot, bool blocking) {
    refuse_after_fork(machine.machine->forked(), "machine");
    const auto call = std::make_shared<SpawnedCall>();
    call->machine = machine.machine;
    call->body.reset(new SpawnedBody);
    call->body->function = PythonReference(function.ptr());
    call->function = function.ptr();
    call->body->arguments = PythonReference(arguments.ptr());
    const nb::object context = nb::steal(python_api.context_copy_current());
    if (!context.is_valid())
        throw nb::python_error();
    call->body->context = PythonReference(context.ptr());
    call->priority = priority;
    call->slot = slot;
    call->blocking = blocking;
    call->floating_point = FloatingPointMode::current();
    machine.machine->calls().spawn(call, after == nullptr ? nullptr : after->event);
    return {call};
}

bool wait_for_call(const SpawnedHandle& handle, double timeout) {
    refuse_inside_tasks("waiting for a spawned task");
    SpawnedCall& call = usable(handle);
    const auto done = [&] { return call.done.load(std::memory_order_acquire); };
    Machine& machine = *call.machine;
    if (timeout >= 0 || done() || call.slot != kAnySlot || call.blocking || !may_visit(machine))
        return wait_for(call, timeout, done);
    const std::int64_t begun = monotonic_ns();
    if (machine.calls().begin_wait(call)) {
        {
            Caller caller(machine, Caller::Visit::kCall);
            caller.visit(call);
        }
        raise_interrupt();
    }
    const bool ended = wait_for(call, timeout, done);
    machine.calls().end_wait(call, monotonic_ns() - begun);
    return ended;
}

bool set_callback_of_call(const SpawnedHandle& handle, const nb::object& function) {
    SpawnedCall& call = usable(handle);
    call.body->callback = PythonReference(function.ptr());
    const bool wanted = call.machine->calls().want_callback(call);
    if (!wanted)
        call.body->callback = PythonReference();
    return wanted;
}

nb::object borrow(const PythonReference& reference) {
    return reference.get() != nullptr ? nb::borrow(reference.get()) : nb::none();
}

const char* state_of(const SpawnedHandle& handle) {
    SpawnedCall& call = usable(handle);
    switch (call.machine->calls().state_of(call)) {
        case SpawnedCall::State::kWaiting:
            return "waiting";
        case SpawnedCall::State::kReady:
        case SpawnedCall::State::kTaken:
            return "ready";
        case SpawnedCall::State::kRunning:
            return "running";
        case SpawnedCall::State::kEnded:
            break;
    }
    return "ended";
}

}  // namespace

}  // namespace ostinato

void bind_spawn(nb::module_& module) {
    using namespace nb::literals;
    using namespace ostinato;
    nb::class_<SpawnedHandle>(module, "Spawned", "A single task outside programs.")
        .def("wait", &wait_for_call, "timeout"_a, "Whether it has ended within so many seconds; negative: no limit.")
        .def("cancel", [](const SpawnedHandle& self) { return self.call->machine->calls().cancel(usable(self)); })
        .def(
            "interrupt", [](const SpawnedHandle& self) { PythonThread::interrupt_tasks(self.call.get()); },
            "Raise KeyboardInterrupt inside it, if it runs on another thread.")
        .def("set_callback", &set_callback_of_call, "function"_a,
             "Have it called when the task has ended; false when it has.")
        .def(
            "event",
            [](const SpawnedHandle& self, const nb::object& origin) {
                SpawnedCall& call = usable(self);
                return EventHandle{call.machine->calls().end_of(call, hold(origin))};
            },
            "origin"_a, "An event for its end; `origin` is called for the exception that it ended with.")
        .def_prop_ro("done", [](const SpawnedHandle& self) { return self.call->done.load(std::memory_order_acquire); })
        .def(
            "retrieve",
            [](const SpawnedHandle& self) {
                self.call->retrieved.store(true, std::memory_order_relaxed);
                if (self.call->done.load(std::memory_order_acquire) && self.call->poisoned_by)
                    self.call->poisoned_by->retrieve();
            },
            "The user is told how it ended.")
        .def_prop_ro(
            "unretrieved",
            [](const SpawnedHandle& self) {
                const SpawnedCall& call = *self.call;
                return !call.machine->forked() && call.done.load(std::memory_order_acquire) && !call.cancelled &&
                       call.bad() && !call.retrieved.load(std::memory_order_relaxed) &&
                       !(call.poisoned_by && call.poisoned_by->retrieved());
            },
            "Whether it has failed and the user was not told.")
        .def_prop_ro("state", &state_of)
        // Once it is done:
        .def_prop_ro("cancelled", [](const SpawnedHandle& self) { return self.call->cancelled; })
        .def_prop_ro("result", [](const SpawnedHandle& self) { return borrow(self.call->body->result); })
        .def_prop_ro("exception", [](const SpawnedHandle& self) { return borrow(self.call->body->exception); })
        .def_prop_ro(
            "poisoned_by",
            [](const SpawnedHandle& self) {
                return self.call->poisoned_by ? std::optional(EventHandle{self.call->poisoned_by}) : std::nullopt;
            },
            "The event that it came after, if that was poisoned.");
    module.def("spawn", &spawn, "machine"_a, "function"_a, "arguments"_a, "after"_a.none(), "priority"_a, "slot"_a,
               "blocking"_a, "`slot`: its number, or -1.");
    module.def(
        "spawned",
        [](const MachineHandle& machine) {
            std::vector<SpawnedHandle> handles;
            for (auto& call : machine.machine->calls().in_flight())
                handles.push_back({std::move(call)});
            return handles;
        },
        "machine"_a, "The spawned tasks that have not ended.");
    module.def("refuse_spawns", [](const MachineHandle& machine) { machine.machine->calls().refuse(); }, "machine"_a);
    module.def(
        "on_own_thread", [](const MachineHandle& machine) { return machine.machine->blocking_pool().here(); },
        "machine"_a, "Whether this is a thread of the machine's for tasks that may block.");
}
