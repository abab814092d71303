#pragma once

#include <nanobind/nanobind.h>

void bind_passes(nanobind::module_& module);
void bind_schedule(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_runtime(nanobind::module_& module);
