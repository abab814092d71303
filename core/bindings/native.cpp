#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "bindings/bindings.h"
#include "ostinato.h"

namespace nb = nanobind;

namespace {

using Buffer = std::unique_ptr<Py_buffer, decltype([](Py_buffer* buffer) {
                                   PyBuffer_Release(buffer);
                                   delete buffer;
                               })>;

std::int32_t call_native(std::uintptr_t address, std::uintptr_t user, const nb::sequence& arrays,
                         const nb::sequence& scalars, std::uint64_t step) {
    std::vector<Buffer> buffers;  // of the arrays, as long as the call lasts
    std::vector<ost_array> views;
    std::vector<void*> data;
    for (nb::handle array : arrays) {
        auto buffer = std::make_unique<Py_buffer>();
        if (PyObject_GetBuffer(array.ptr(), buffer.get(), PyBUF_STRIDED_RO) != 0)
            throw nb::python_error();
        static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
        views.push_back({buffer->buf, buffer->ndim, reinterpret_cast<const std::int64_t*>(buffer->shape),
                         reinterpret_cast<const std::int64_t*>(buffer->strides)});
        data.push_back(buffer->buf);
        buffers.emplace_back(buffer.release());
    }
    std::vector<ost_scalar> numbers;
    for (nb::handle value : scalars) {
        ost_scalar number;
        if (PyFloat_Check(value.ptr()))
            number.f64 = PyFloat_AsDouble(value.ptr());
        else
            number.i64 = nb::cast<std::int64_t>(value);
        numbers.push_back(number);
    }
    const ost_call call{.arrays = views.data(),
                        .scalars = numbers.data(),
                        .n_arrays = static_cast<std::int32_t>(views.size()),
                        .n_scalars = static_cast<std::int32_t>(numbers.size()),
                        .step = step,
                        .user = reinterpret_cast<void*>(user),
                        .data = data.data()};
    const nb::gil_scoped_release unlocked;
    return reinterpret_cast<ost_task>(address)(&call);
}

}  // namespace

void bind_native(nb::module_& module) {
    using namespace nb::literals;
    module.def("call_native", &call_native, "address"_a, "user"_a, "arrays"_a, "scalars"_a, "step"_a = 0,
               "Call a native task now, without the GIL, and return its code.");
}
