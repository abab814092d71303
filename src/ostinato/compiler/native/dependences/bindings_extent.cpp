// Where arrays are: the Python ways to ask take microseconds.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <utility>

namespace nb = nanobind;

void bind_extent(nb::module_& m);

namespace ostinato::passes {

namespace {

// The first element of an array.
uintptr_t address(nb::handle array) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_STRIDES) != 0)
        throw nb::python_error();
    const auto at = reinterpret_cast<uintptr_t>(buffer.buf);
    PyBuffer_Release(&buffer);
    return at;
}

// The first byte of an array, and what is behind its last.
std::pair<uintptr_t, uintptr_t> extent(nb::handle array) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_STRIDES) != 0)
        throw nb::python_error();
    auto low = reinterpret_cast<uintptr_t>(buffer.buf);
    uintptr_t high = low + static_cast<uintptr_t>(buffer.itemsize);
    for (int axis = 0; axis < buffer.ndim; ++axis) {
        if (buffer.shape[axis] == 0) {
            high = low = reinterpret_cast<uintptr_t>(buffer.buf);
            break;
        }
        const Py_ssize_t reach = buffer.strides[axis] * (buffer.shape[axis] - 1);
        (reach < 0 ? low : high) += static_cast<uintptr_t>(reach);
    }
    PyBuffer_Release(&buffer);
    return {low, high};
}

}  // namespace

}  // namespace ostinato::passes

void bind_extent(nb::module_& m) {
    m.def("address", &ostinato::passes::address, nb::arg("array"), "The address of the first element of an array.");
    m.def("extent", &ostinato::passes::extent, nb::arg("array"),
          "The address of the first byte of an array, and the one behind its last.");
}
