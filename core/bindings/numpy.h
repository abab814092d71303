// What the core reads of NumPy's arrays: through NumPy's own C interface, since a buffer, the way of Python's
// interface, takes longer, and leaves a description of the array behind that lives as long as the array.
#pragma once

#include <Python.h>

#include <cstdint>
#include <span>

namespace ostinato {

struct ArrayFields {
    void* data;
    std::span<const std::int64_t> shape, strides;  // Strides in bytes.
    std::int64_t itemsize;
};

// When the module is imported. False: there is no NumPy that fits, and an error is set.
bool find_numpy();

// Whether an object is an array, of a subclass too.
bool is_ndarray(PyObject* object);

// Whether an object is an array of the class ndarray itself.
bool is_exact_ndarray(PyObject* object);

bool is_writable(PyObject* array);
void forbid_writing(PyObject* array);

// Makes an array writable whose base is a writable array; false: that it is not, and nothing is done.
bool allow_writing(PyObject* array);

// Whether the elements of an array are numbers in this machine's byte order.
bool has_own_numbers(PyObject* array);

// Of an array; valid as long as its shape is not changed.
ArrayFields fields_of(PyObject* array);

// What the memory of an array belongs to; borrowed, null where that is the array itself.
PyObject* base_of(PyObject* array);

// A new array of the class ndarray over the memory of another; null: an error is set.
PyObject* view_array(PyObject* array, bool writable);

}  // namespace ostinato
