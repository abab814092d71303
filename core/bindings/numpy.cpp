#include "bindings/numpy.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

namespace ostinato {

namespace {

PyArrayObject* as_array(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

std::span<const std::int64_t> numbers(const npy_intp* first, int count) {
    static_assert(sizeof(npy_intp) == sizeof(std::int64_t));
    return {reinterpret_cast<const std::int64_t*>(first), static_cast<std::size_t>(count)};
}

}  // namespace

// Not by PyArray_ImportNumPyAPI, which prints what was raised, such as KeyboardInterrupt, and raises ImportError for
// it.
bool find_numpy() { return PyArray_API != nullptr || _import_array() == 0; }

bool is_ndarray(PyObject* object) { return PyArray_Check(object) != 0; }

bool is_exact_ndarray(PyObject* object) { return PyArray_CheckExact(object) != 0; }

bool is_writable(PyObject* array) { return PyArray_ISWRITEABLE(as_array(array)) != 0; }

void forbid_writing(PyObject* array) { PyArray_CLEARFLAGS(as_array(array), NPY_ARRAY_WRITEABLE); }

bool allow_writing(PyObject* array) {
    PyObject* const base = base_of(array);
    if (base == nullptr || !is_ndarray(base) || !is_writable(base))
        return false;
    PyArray_ENABLEFLAGS(as_array(array), NPY_ARRAY_WRITEABLE);
    return true;
}

bool has_own_numbers(PyObject* array) {
    const PyArray_Descr* const type = PyArray_DESCR(as_array(array));
    return (PyTypeNum_ISNUMBER(type->type_num) || PyTypeNum_ISBOOL(type->type_num)) &&
           PyArray_ISNBO(type->byteorder) != 0;
}

ArrayFields fields_of(PyObject* array) {
    PyArrayObject* const a = as_array(array);
    const int axes = PyArray_NDIM(a);
    return {PyArray_DATA(a), numbers(PyArray_DIMS(a), axes), numbers(PyArray_STRIDES(a), axes), PyArray_ITEMSIZE(a)};
}

PyObject* base_of(PyObject* array) { return PyArray_BASE(as_array(array)); }

PyObject* view_array(PyObject* array, bool writable) {
    PyObject* const view = PyArray_View(as_array(array), nullptr, &PyArray_Type);
    if (view != nullptr && !writable)
        PyArray_CLEARFLAGS(as_array(view), NPY_ARRAY_WRITEABLE);
    return view;
}

}  // namespace ostinato
