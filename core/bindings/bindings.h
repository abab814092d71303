#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "outside/barrier.h"
#include "outside/event.h"
#include "outside/reservation.h"
#include "program/plan.h"
#include "program/schedule.h"

// What Python holds of things of the core. Handles by value: a shared pointer that nanobind makes from a Python
// object would need the GIL wherever its last copy ends.
struct ScheduleHandle {
    std::shared_ptr<ostinato::Schedule> schedule;
};
struct PlanHandle {
    std::shared_ptr<ostinato::Plan> plan;
};
struct EventHandle {
    std::shared_ptr<ostinato::Event> event;
};
struct BarrierHandle {
    std::shared_ptr<ostinato::Barrier> barrier;
};
struct ReservationHandle {
    std::shared_ptr<ostinato::Reservation> reservation;
};

void bind_passes(nanobind::module_& module);
void bind_schedule(nanobind::module_& module);
void bind_native(nanobind::module_& module);
void bind_eager(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_events(nanobind::module_& module);
void bind_run(nanobind::module_& module);
void bind_runtime(nanobind::module_& module);
void bind_spawn(nanobind::module_& module);
void bind_machine_costs(nanobind::module_& module);
void bind_devices(nanobind::module_& module);
