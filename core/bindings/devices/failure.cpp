// What Python catches where a device tells of a failure.
#include <Python.h>
#include <nanobind/nanobind.h>

#include <exception>

#include "bindings/devices/bindings.h"

namespace nb = nanobind;

namespace ostinato {

namespace {

void raise_failure(const std::exception_ptr& thrown, void* type) {
    try {
        std::rethrow_exception(thrown);
    } catch (const DeviceFailure& failure) {
        PyObject* const error = PyObject_CallFunction(static_cast<PyObject*>(type), "s", failure.what());
        if (error == nullptr)
            return;
        if (PyObject_SetAttrString(error, "usable", failure.usable ? Py_True : Py_False) == 0)
            PyErr_SetObject(static_cast<PyObject*>(type), error);
        Py_DECREF(error);
    }
}

}  // namespace

void bind_failure(nb::module_& devices) {
    nb::dict attributes;
    attributes["usable"] = true;
    const nb::object type = nb::steal(PyErr_NewExceptionWithDoc(
        "ostinato._core.devices.Failure",
        "What a device has told, in its driver's words; `usable`: whether it can be used afterwards.",
        PyExc_RuntimeError, attributes.ptr()));
    devices.attr("Failure") = type;
    nb::register_exception_translator(raise_failure, type.ptr());
}

}  // namespace ostinato
