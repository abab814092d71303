#include "python/api.h"

#include <dlfcn.h>

namespace ostinato {

PythonApi python_api{};

namespace {

template <class Function>
bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
}

template <class Function>
bool need(Function& function, const char* name) {
    if (find(function, name))
        return true;
    PyErr_Format(PyExc_ImportError,
                 "this Python has no function %s, which Ostinato needs: use a version of Python that Ostinato's "
                 "documentation names",
                 name);
    return false;
}

}  // namespace

bool find_python_api() {
    return need(python_api.context_copy_current, "PyContext_CopyCurrent") &&
           need(python_api.context_copy, "PyContext_Copy") && need(python_api.context_enter, "PyContext_Enter") &&
           need(python_api.context_exit, "PyContext_Exit") && need(python_api.context_var_get, "PyContextVar_Get") &&
           need(python_api.gil_state_check, "PyGILState_Check") &&
           // Since 3.13; before that it was private.
           (find(python_api.is_finalizing, "Py_IsFinalizing") || need(python_api.is_finalizing, "_Py_IsFinalizing"));
}

}  // namespace ostinato
