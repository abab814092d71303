#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "plan.h"
#include "schedule.h"

// What Python holds of a schedule and of a plan. Handles by value: a shared pointer that nanobind makes from a Python
// object would need the GIL wherever its last copy ends.
struct ScheduleHandle {
    std::shared_ptr<ostinato::Schedule> schedule;
};
struct PlanHandle {
    std::shared_ptr<ostinato::Plan> plan;
};

void bind_passes(nanobind::module_& module);
void bind_schedule(nanobind::module_& module);
void bind_native(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_runtime(nanobind::module_& module);
