#include "python/events.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace ostinato {

namespace {

nb::object borrow(const PythonObjectHandle& object) { return object ? nb::borrow(object->object.get()) : nb::none(); }

// Whoever goes on with it, now or when it happens, may be in the parent.
Event& usable(const EventHandle& handle) {
    refuse_after_fork(handle.event->made.forked() && !handle.event->done(), "event");
    return *handle.event;
}

Barrier& usable(const BarrierHandle& handle) {
    refuse_after_fork(handle.barrier->made.forked(), "barrier");
    return *handle.barrier;
}

Reservation& usable(const ReservationHandle& handle) {
    refuse_after_fork(handle.reservation->made.forked(), "reservation");
    return *handle.reservation;
}

// What only this handle keeps alive is garbage if the handle is: a callback of an event that refers to it, say.
template <class Handle, class Visit>
int traverse(PyObject* self, visitproc visit, void* arg, Visit visit_own) {
    Py_VISIT(Py_TYPE(self));
    return nb::inst_ready(self) ? visit_own(*nb::inst_ptr<Handle>(self), visit, arg) : 0;
}

int traverse_event(PyObject* self, visitproc visit, void* arg) {
    return traverse<EventHandle>(self, visit, arg, [](const EventHandle& handle, visitproc visit, void* arg) {
        if (handle.event.use_count() == 1) {
            for (const PythonObjectHandle& callback : handle.event->callbacks())
                Py_VISIT(callback->object.get());
        }
        return 0;
    });
}

int traverse_barrier(PyObject* self, visitproc visit, void* arg) {
    return traverse<BarrierHandle>(self, visit, arg, [](const BarrierHandle& handle, visitproc visit, void* arg) {
        if (handle.barrier.use_count() == 1 && handle.barrier->combine)
            Py_VISIT(handle.barrier->combine->object.get());
        return 0;
    });
}

PyType_Slot event_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_event)}, {0, nullptr}};
PyType_Slot barrier_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_barrier)}, {0, nullptr}};

bool wait_for_event(const EventHandle& handle, double timeout) {
    refuse_inside_tasks("waiting for an event");
    Event& event = usable(handle);
    return wait_for(event, timeout, [&] { return event.done(); });
}

EventHandle merge_events(const std::vector<EventHandle>& handles, bool ignore_poison) {
    std::vector<std::shared_ptr<Event>> events;
    for (const EventHandle& handle : handles) {
        (void)usable(handle);
        events.push_back(handle.event);
    }
    auto merged = std::make_shared<Event>();
    merge(events, ignore_poison, merged);
    return {merged};
}

void keep_promise(const BarrierHandle& handle, std::uint64_t phase, std::uint64_t count, const nb::object& value) {
    if (const ExceptionHandle raised = keep_with_value(*handle.barrier, phase, count, value.ptr())) {
        PyObject* const exception = raised->object.get();
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
        throw nb::python_error();
    }
}

}  // namespace

}  // namespace ostinato

void bind_events(nb::module_& module) {
    using namespace nb::literals;
    using namespace ostinato;
    nb::class_<EventHandle>(module, "Event", nb::type_slots(event_slots),
                            "Something that happens once, or is poisoned.")
        .def("__init__", [](EventHandle* self) { new (self) EventHandle{std::make_shared<Event>()}; })
        .def_prop_ro("done", [](const EventHandle& self) { return self.event->done(); })
        .def_prop_ro("poisoned", [](const EventHandle& self) { return self.event->poisoned(); })
        .def("trigger", [](const EventHandle& self) { return usable(self).trigger(); })
        .def(
            "poison",
            [](const EventHandle& self, const nb::object& reason) { return usable(self).poison(hold(reason)); },
            "reason"_a.none())
        .def("wait", &wait_for_event, "timeout"_a,
             "Whether it has happened within so many seconds; negative: no limit.")
        .def_static("check_wait", [] { refuse_inside_tasks("waiting for an event"); })
        .def(
            "call_back",
            [](const EventHandle& self, const nb::object& function) { return call_back(usable(self), hold(function)); },
            "function"_a, "Have it called when the event happens; false when it has.")
        .def(
            "withdraw",
            [](const EventHandle& self, const nb::object& function) {
                (void)self.event->withdraw(
                    [&](const PythonObjectHandle& callback) { return callback->object.get() == function.ptr(); });
            },
            "function"_a, "Do not have it called after all.")
        .def(
            "retrieve", [](const EventHandle& self) { self.event->retrieve(); }, "The user is told of its poison.")
        .def_prop_ro(
            "reason", [](const EventHandle& self) { return borrow(self.event->source().reason()); },
            "The exception it was poisoned with, or None.")
        .def_prop_ro(
            "origin", [](const EventHandle& self) { return borrow(self.event->source().origin()); },
            "A function that returns the exception that what it stands for ended with, or None.")
        .def_static("merge", &merge_events, "events"_a, "ignore_poison"_a);
    nb::class_<BarrierHandle>(module, "Barrier", nb::type_slots(barrier_slots),
                              "Phases, each complete when so many arrivals have been made.")
        .def(
            "__init__",
            [](BarrierHandle* self, std::uint64_t arrivals, const nb::object& combine) {
                new (self) BarrierHandle{std::make_shared<Barrier>(arrivals, hold(combine))};
            },
            "arrivals"_a, "combine"_a.none())
        .def_prop_ro("arrivals", [](const BarrierHandle& self) { return self.barrier->arrivals(); })
        .def_prop_ro("phase", [](const BarrierHandle& self) { return self.barrier->phase(); })
        .def(
            "left", [](const BarrierHandle& self, std::uint64_t phase) { return usable(self).left(phase); }, "phase"_a)
        .def(
            "promise", [](const BarrierHandle& self, std::uint64_t count) { return usable(self).promise(count); },
            "count"_a, "So many arrivals in the present phase, which is returned; None when they are too many.")
        .def(
            "keep",
            [](const BarrierHandle& self, std::uint64_t phase, std::uint64_t count) {
                self.barrier->keep(phase, count);
            },
            "phase"_a, "count"_a)
        .def("keep_with_value", &keep_promise, "phase"_a, "count"_a, "value"_a.none())
        .def(
            "withdraw",
            [](const BarrierHandle& self, std::uint64_t phase, std::uint64_t count) {
                self.barrier->withdraw(phase, count);
            },
            "phase"_a, "count"_a)
        .def(
            "arrive_after",
            [](const BarrierHandle& self, const EventHandle& after, std::uint64_t count) {
                return usable(self).arrive_after(usable(after), count);
            },
            "after"_a, "count"_a)
        .def(
            "event",
            [](const BarrierHandle& self, std::uint64_t phase) { return EventHandle{usable(self).event(phase)}; },
            "phase"_a);
    nb::class_<ReservationHandle>(module, "Reservation", "A lock that is granted by events.")
        .def("__init__", [](ReservationHandle* self) { new (self) ReservationHandle{std::make_shared<Reservation>()}; })
        .def(
            "acquire",
            [](const ReservationHandle& self, bool exclusive, const EventHandle* after) {
                Reservation& reservation = usable(self);
                return EventHandle{after == nullptr ? reservation.acquire(exclusive)
                                                    : reservation.acquire(exclusive, usable(*after))};
            },
            "exclusive"_a, "after"_a.none())
        .def(
            "release",
            [](const ReservationHandle& self, const EventHandle* after) {
                Reservation& reservation = usable(self);
                return after == nullptr ? reservation.release() : reservation.release(usable(*after));
            },
            "after"_a.none())
        .def_prop_ro("holders", [](const ReservationHandle& self) { return usable(self).holders(); })
        .def_prop_ro("waiting", [](const ReservationHandle& self) { return usable(self).waiting(); });
}
