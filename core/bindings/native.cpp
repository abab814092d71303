#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "bindings/bindings.h"
#include "ostinato.h"

namespace nb = nanobind;

namespace {

// Buffers of NumPy arrays for as long as a call lasts.
class Borrowed {
public:
    explicit Borrowed(const nb::sequence& arrays) {
        const std::size_t count = nb::len(arrays);
        buffers_.reserve(count);
        for (std::size_t i = 0; i < count; ++i) {
            Py_buffer buffer;
            if (PyObject_GetBuffer(nb::object(arrays[i]).ptr(), &buffer, PyBUF_STRIDED_RO) != 0)
                throw nb::python_error();
            buffers_.push_back(buffer);
        }
        static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
        for (const Py_buffer& buffer : buffers_)
            arrays_.push_back({buffer.buf, buffer.ndim, reinterpret_cast<const std::int64_t*>(buffer.shape),
                               reinterpret_cast<const std::int64_t*>(buffer.strides)});
    }
    ~Borrowed() {
        for (Py_buffer& buffer : buffers_)
            PyBuffer_Release(&buffer);
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;

    const std::vector<ost_array>& arrays() const { return arrays_; }

private:
    std::vector<Py_buffer> buffers_;
    std::vector<ost_array> arrays_;
};

std::int32_t call_native(std::uintptr_t address, std::uintptr_t user, const nb::sequence& arrays,
                         const nb::sequence& scalars, std::uint64_t step) {
    const Borrowed borrowed(arrays);
    std::vector<ost_scalar> numbers;
    for (nb::handle value : scalars) {
        ost_scalar number;
        if (PyFloat_Check(value.ptr()))
            number.f64 = PyFloat_AS_DOUBLE(value.ptr());
        else
            number.i64 = nb::cast<std::int64_t>(value);
        numbers.push_back(number);
    }
    const ost_call call{borrowed.arrays().data(),
                        numbers.data(),
                        static_cast<std::int32_t>(borrowed.arrays().size()),
                        static_cast<std::int32_t>(numbers.size()),
                        step,
                        reinterpret_cast<void*>(user)};
    const nb::gil_scoped_release unlocked;
    return reinterpret_cast<ost_task>(address)(&call);
}

}  // namespace

void bind_native(nb::module_& module) {
    using namespace nb::literals;
    module.def("call_native", &call_native, "address"_a, "user"_a, "arrays"_a, "scalars"_a, "step"_a = 0,
               "Call a native task now, without the GIL, and return its code.");
}
