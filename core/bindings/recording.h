// Calls of tasks inside captures, for the functions that tasks are called by.
#pragma once

#include <Python.h>

namespace ostinato {

// Records a call of `task` in the capture that is open, which `recording` describes. Returns the op, a new reference.
// Null: an error is set, or without one, Python must look at the call.
PyObject* record_call(PyObject* recording, PyObject* task, PyObject* const* args, Py_ssize_t count, PyObject* names);

}  // namespace ostinato
