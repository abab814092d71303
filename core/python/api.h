// Functions of Python's C interface that its stable part (abi3) lacks. They are looked up by name, so that one wheel
// serves all versions from 3.12 on. All but `is_finalizing` are documented, and have not changed since Python 3.7.
#pragma once

#include <Python.h>

namespace ostinato {

struct PythonApi {
    PyObject* (*context_copy_current)();
    PyObject* (*context_copy)(PyObject* context);
    int (*context_enter)(PyObject* context);
    int (*context_exit)(PyObject* context);
    int (*context_var_get)(PyObject* variable, PyObject* fallback, PyObject** value);
    int (*gil_state_check)();
    int (*is_finalizing)();
};

extern PythonApi python_api;

// When the module is imported. False: this Python lacks one, and an error is set.
bool find_python_api();

}  // namespace ostinato
