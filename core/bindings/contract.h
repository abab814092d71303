// What Python may not do where it stands.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <stdexcept>
#include <string>

#include "lanes/worker.h"

namespace ostinato {

// Whether there is something to wait for or not: a task must not hang on luck.
inline void refuse_inside_tasks(const char* what) {
    if (Worker::current() == nullptr)
        return;
    const nanobind::object error = nanobind::module_::import_("ostinato.errors").attr("ContractError");
    PyErr_Format(error.ptr(), "%s inside a task: a task on a lane must not wait, the lane would stand still", what);
    throw nanobind::python_error();
}

// For events, barriers and reservations (`what`).
inline void refuse_after_fork(bool forked, const char* what) {
    if (forked)
        throw std::runtime_error(std::string("this process was forked after the ") + what +
                                 " was made; make another in the child");
}

}  // namespace ostinato
