// Calls of tasks and kernels outside captures, without Python code between the caller and the function.
//
// Whatever is not plain is left to the Python method `_call`: captures, devices, containers, other arrays than
// ndarrays.
#include <Python.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/recording.h"
#include "ostinato.h"
#include "python/api.h"

namespace nb = nanobind;

namespace {

constexpr std::size_t kMostArguments = 16;
constexpr long kRead = 1, kWrite = 2;  // as in graph/operand.py

// What the calls know of Python's side; set once, when the tasks' module is imported.
struct Known {
    PyObject* recording = nullptr;  // the context variable of captures
    PyTypeObject* ndarray = nullptr;
    std::vector<PyTypeObject*> plain;  // types of values that need no look
    PyObject *at_once = nullptr, *modes_by_name = nullptr, *function = nullptr, *calls = nullptr, *dtype = nullptr;
    PyObject *view = nullptr, *setflags = nullptr, *call = nullptr, *failed = nullptr;
};
Known known;

// References that are dropped at the end of a scope.
class Owned {
public:
    Owned() = default;
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    ~Owned() {
        for (std::size_t i = 0; i < count_; ++i)
            Py_DECREF(objects_[i]);
    }
    PyObject* add(PyObject* object) {
        if (object != nullptr)
            objects_[count_++] = object;
        return object;
    }

private:
    std::array<PyObject*, kMostArguments + 2> objects_;
    std::size_t count_ = 0;
};

class Buffers {
public:
    Buffers() = default;
    Buffers(const Buffers&) = delete;
    Buffers& operator=(const Buffers&) = delete;
    ~Buffers() {
        for (std::size_t i = 0; i < count_; ++i)
            PyBuffer_Release(&buffers_[i]);
    }
    const Py_buffer* add(PyObject* array, bool written) {
        if (PyObject_GetBuffer(array, &buffers_[count_], written ? PyBUF_STRIDED : PyBUF_STRIDED_RO) == 0)
            return &buffers_[count_++];
        PyErr_Clear();  // of dtypes without a buffer format, and of read-only arrays
        return nullptr;
    }

private:
    std::array<Py_buffer, kMostArguments> buffers_;
    std::size_t count_ = 0;
};

// The capture that is open as far as can be told at a glance; it may be another thread's. None: there is none. A new
// reference; null: it cannot be told.
PyObject* find_capture() {
    PyObject* value = nullptr;
    if (ostinato::python_api.context_var_get(known.recording, nullptr, &value) != 0) {
        PyErr_Clear();
        return nullptr;
    }
    return value == nullptr ? Py_NewRef(Py_None) : value;
}

bool is_outside_captures() {
    PyObject* const capture = find_capture();
    Py_XDECREF(capture);
    return capture == Py_None;
}

// `objects`: the one that has the method, and the arguments.
template <std::size_t count>
PyObject* call_method(PyObject* name, PyObject* const (&objects)[count]) {
    return PyObject_VectorcallMethod(name, objects, count, nullptr);
}

PyObject* read_only_view(PyObject* array) {
    PyObject* const view = call_method(known.view, {array});
    if (view == nullptr)
        return nullptr;
    PyObject* const done = call_method(known.setflags, {view, Py_False});
    if (done == nullptr) {
        Py_DECREF(view);
        return nullptr;
    }
    Py_DECREF(done);
    return view;
}

bool is_plain(PyObject* value) {
    for (const PyTypeObject* type : known.plain)
        if (Py_TYPE(value) == type)
            return true;
    return false;
}

// Leaves a call to Python.
PyObject* call_in_python(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
    std::vector<PyObject*> all{self};
    all.insert(all.end(), args, args + count + named);
    return PyObject_VectorcallMethod(known.call, all.data(), static_cast<std::size_t>(count) + 1, names);
}

// Records a call, or leaves it to Python, where a capture is open.
PyObject* call_inside(PyObject* capture, PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    PyObject* const op = capture == nullptr ? nullptr : ostinato::record_call(capture, self, args, count, names);
    return op != nullptr || PyErr_Occurred() != nullptr ? op : call_in_python(self, args, count, names);
}

PyObject* call_native_task(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    Owned owned;
    PyObject* const capture = owned.add(find_capture());
    if (capture == Py_None)
        return call_in_python(self, args, count, names);
    return call_inside(capture, self, args, count, names);
}

PyObject* call_task(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
    Owned owned;
    PyObject* const capture = owned.add(find_capture());
    if (capture != Py_None)
        return call_inside(capture, self, args, count, names);
    PyObject* const modes = owned.add(PyObject_GetAttr(self, known.at_once));
    if (modes == nullptr)
        return nullptr;
    if (modes == Py_None || count > PyTuple_Size(modes) || count + named > Py_ssize_t{kMostArguments - 3})
        return call_in_python(self, args, count, names);
    PyObject* const by_name = named == 0 ? nullptr : owned.add(PyObject_GetAttr(self, known.modes_by_name));
    if (named != 0 && by_name == nullptr)
        return nullptr;
    std::array<PyObject*, kMostArguments + 1> passed;  // the first entry is the callee's to use
    for (Py_ssize_t i = 0; i < count + named; ++i) {
        PyObject* const value = args[i];
        PyObject* const mode =
            i < count ? PyTuple_GetItem(modes, i) : PyDict_GetItemWithError(by_name, PyTuple_GetItem(names, i - count));
        if (mode == nullptr) {  // an argument for **keywords, or one too many
            if (PyErr_Occurred() != nullptr)
                return nullptr;
            return call_in_python(self, args, count, names);
        }
        const long access = PyLong_AsLong(mode);
        if (access == 0 ? !is_plain(value) : Py_TYPE(value) != known.ndarray)
            return call_in_python(self, args, count, names);
        passed[static_cast<std::size_t>(i) + 1] = access == kRead ? owned.add(read_only_view(value)) : value;
        if (passed[static_cast<std::size_t>(i) + 1] == nullptr)
            return nullptr;
    }
    PyObject* const function = owned.add(PyObject_GetAttr(self, known.function));
    if (function == nullptr)
        return nullptr;
    return PyObject_Vectorcall(function, passed.data() + 1,
                               static_cast<std::size_t>(count) | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

// The compiled functions of a kernel, by the types of its arguments.
class KernelCalls {
public:
    struct Type {
        nb::object dtype;  // of an array; none of a scalar
        int ndim = 0;
        char layout = 'A';
        bool aligned = true;
        std::uintptr_t alignment = 1;
        bool is_float = false;  // of a scalar
    };
    struct Entry {
        std::vector<Type> types;
        ost_task function;
    };

    // `kinds`: by argument, the access of an array, or the declared type of a scalar, or None for any number.
    explicit KernelCalls(const nb::tuple& kinds) {
        for (nb::handle kind : kinds) {
            if (kind.is_none())
                kinds_.push_back({0, 0});
            else if (PyLong_Check(kind.ptr()))
                kinds_.push_back({nb::cast<long>(kind), 0});
            else
                kinds_.push_back({0, kind.ptr() == reinterpret_cast<PyObject*>(&PyFloat_Type) ? 'f' : 'i'});
        }
    }

    // `types`: by argument (dtype, ndim, layout, aligned), or float or int.
    void add(const nb::tuple& types, std::uintptr_t address) {
        Entry entry{{}, reinterpret_cast<ost_task>(address)};
        for (nb::handle type : types) {
            Type one;
            if (PyType_Check(type.ptr())) {
                one.is_float = type.ptr() == reinterpret_cast<PyObject*>(&PyFloat_Type);
            } else {
                one.dtype = nb::object(type[0]);
                one.ndim = nb::cast<int>(type[1]);
                one.layout = nb::cast<std::string>(type[2]).at(0);
                one.aligned = nb::cast<bool>(type[3]);
                one.alignment = nb::cast<std::uintptr_t>(one.dtype.attr("alignment"));
            }
            entry.types.push_back(std::move(one));
        }
        const nb::ft_lock_guard guard(mutex_);
        entries_.push_back(std::move(entry));
    }

    std::size_t count() const { return kinds_.size(); }

    struct Arguments {
        std::array<ost_array, kMostArguments> arrays;
        std::array<void*, kMostArguments> data;
        std::array<ost_scalar, kMostArguments> scalars;
        std::int32_t n_arrays = 0, n_scalars = 0;
    };

    // The function for these arguments, which it describes; null where none is known, or Python must look at them.
    ost_task find(std::span<PyObject* const> args, Buffers& buffers, Arguments& described) {
        std::array<Look, kMostArguments> looks;
        Owned owned;
        for (std::size_t i = 0; i < args.size(); ++i)
            if (!look(args[i], kinds_[i], buffers, owned, looks[i]))
                return nullptr;
        const nb::ft_lock_guard guard(mutex_);
        for (const Entry& entry : entries_) {
            bool same = true;
            for (std::size_t i = 0; same && i < args.size(); ++i)
                same = fits(looks[i], entry.types[i]);
            if (same) {
                describe({looks.data(), args.size()}, described);
                return entry.function;
            }
        }
        return nullptr;
    }

private:
    struct Kind {
        long access;
        char declared;  // of a scalar: 'f', 'i', or 0 for any number
    };
    struct Look {
        PyObject* dtype = nullptr;  // alive as long as the array has it
        const Py_buffer* buffer = nullptr;
        char layout = 'A';
        bool is_float = false;
        ost_scalar scalar{};
    };

    static bool look(PyObject* value, Kind kind, Buffers& buffers, Owned& owned, Look& found) {
        if (kind.access == 0)
            return look_at_scalar(value, kind.declared, found);
        if (Py_TYPE(value) != known.ndarray)
            return false;
        found.dtype = owned.add(PyObject_GetAttr(value, known.dtype));
        found.buffer = buffers.add(value, (kind.access & kWrite) != 0);
        if (found.dtype == nullptr || found.buffer == nullptr) {
            PyErr_Clear();
            return false;
        }
        found.layout = layout_of(*found.buffer);
        return true;
    }

    // As ArrayType of the kernel names it.
    static char layout_of(const Py_buffer& buffer) {
        if (PyBuffer_IsContiguous(&buffer, 'C') != 0)
            return 'C';
        if (PyBuffer_IsContiguous(&buffer, 'F') != 0)
            return 'F';
        if (buffer.strides[buffer.ndim - 1] == buffer.itemsize)
            return 'c';
        return buffer.strides[0] == buffer.itemsize ? 'f' : 'A';
    }

    static bool look_at_scalar(PyObject* value, char declared, Look& found) {
        if (PyFloat_Check(value) && declared != 'i') {
            found.is_float = true;
            found.scalar.f64 = PyFloat_AsDouble(value);
            return true;
        }
        if (!PyLong_Check(value))
            return false;
        found.is_float = declared == 'f';
        if (found.is_float)
            found.scalar.f64 = PyLong_AsDouble(value);
        else
            found.scalar.i64 = PyLong_AsLongLong(value);
        if (PyErr_Occurred() == nullptr)
            return true;
        PyErr_Clear();
        return false;
    }

    static bool fits(const Look& look, const Type& type) {
        if (look.buffer == nullptr)
            return !type.dtype.is_valid() && look.is_float == type.is_float;
        return look.dtype == type.dtype.ptr() && look.buffer->ndim == type.ndim && look.layout == type.layout &&
               is_aligned(*look.buffer, type.alignment) == type.aligned;
    }

    // As NumPy's flag says it.
    static bool is_aligned(const Py_buffer& buffer, std::uintptr_t alignment) {
        std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(buffer.buf);
        for (int axis = 0; axis < buffer.ndim; ++axis) {
            if (buffer.shape[axis] == 0)
                return true;
            if (buffer.shape[axis] > 1)
                bits |= static_cast<std::uintptr_t>(buffer.strides[axis]);
        }
        return bits % alignment == 0;
    }

    static void describe(std::span<const Look> looks, Arguments& to) {
        static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
        for (const Look& look : looks) {
            if (look.buffer == nullptr)
                to.scalars[static_cast<std::size_t>(to.n_scalars++)] = look.scalar;
            else {
                const auto at = static_cast<std::size_t>(to.n_arrays++);
                to.arrays[at] = {look.buffer->buf, look.buffer->ndim,
                                 reinterpret_cast<const std::int64_t*>(look.buffer->shape),
                                 reinterpret_cast<const std::int64_t*>(look.buffer->strides)};
                to.data[at] = look.buffer->buf;
            }
        }
    }

    std::vector<Kind> kinds_;
    std::vector<Entry> entries_;
    nb::ft_mutex mutex_;
};

PyObject* call_kernel(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    PyObject* const calls = PyObject_GetAttr(self, known.calls);
    if (calls == nullptr)
        return nullptr;
    KernelCalls& entries = *nb::inst_ptr<KernelCalls>(calls);
    Py_DECREF(calls);  // the kernel has it
    const auto size = static_cast<std::size_t>(count);
    if (names == nullptr && size == entries.count() && size <= kMostArguments && is_outside_captures()) {
        Buffers buffers;
        KernelCalls::Arguments arguments;
        const ost_task function = entries.find({args, size}, buffers, arguments);
        if (function != nullptr) {
            const ost_call call{.arrays = arguments.arrays.data(),
                                .scalars = arguments.scalars.data(),
                                .n_arrays = arguments.n_arrays,
                                .n_scalars = arguments.n_scalars,
                                .step = 0,
                                .user = nullptr,
                                .data = arguments.data.data()};
            std::int32_t code = 0;
            {
                const nb::gil_scoped_release unlocked;
                code = function(&call);
            }
            if (code == 0)
                Py_RETURN_NONE;
            PyObject* const number = PyLong_FromLong(code);
            PyObject* const result = number == nullptr ? nullptr : call_method(known.failed, {self, number});
            Py_XDECREF(number);
            return result;
        }
    }
    return call_in_python(self, args, count, names);
}

template <auto function>
constexpr PyMethodDef method(const char* text) {
    return {"__call__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)),
            METH_FASTCALL | METH_KEYWORDS, text};
}

PyMethodDef kTask = method<&call_task>("Run at once outside captures; be recorded inside.");
PyMethodDef kNative = method<&call_native_task>("Run at once outside captures; be recorded inside.");
PyMethodDef kKernel = method<&call_kernel>("Run at once outside captures; be recorded inside.");

nb::object of_any_object(PyMethodDef& definition) {
    return nb::steal(PyDescr_NewMethod(&PyBaseObject_Type, &definition));
}

}  // namespace

void bind_eager(nb::module_& module) {
    using namespace nb::literals;
    nb::class_<KernelCalls>(module, "KernelCalls", "The compiled functions of a kernel, by the types of its arguments.")
        .def(nb::init<const nb::tuple&>(), "kinds"_a)
        .def("add", &KernelCalls::add, "types"_a, "address"_a);
    module.def(
        "prepare_calls",
        [](const nb::object& recording, const nb::object& ndarray, const nb::tuple& plain) {
            known.recording = recording.inc_ref().ptr();
            known.ndarray = reinterpret_cast<PyTypeObject*>(ndarray.inc_ref().ptr());
            known.plain.clear();
            for (nb::handle type : plain)
                known.plain.push_back(reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr()));
            known.at_once = PyUnicode_InternFromString("modes_at_once");
            known.modes_by_name = PyUnicode_InternFromString("modes_by_name");
            known.function = PyUnicode_InternFromString("function");
            known.calls = PyUnicode_InternFromString("calls");
            known.dtype = PyUnicode_InternFromString("dtype");
            known.view = PyUnicode_InternFromString("view");
            known.setflags = PyUnicode_InternFromString("setflags");
            known.call = PyUnicode_InternFromString("_call");
            known.failed = PyUnicode_InternFromString("_failed");
        },
        "recording"_a, "ndarray"_a, "plain"_a, "Say what calls outside captures look for; before the first of them.");
    module.attr("call_task") = of_any_object(kTask);
    module.attr("call_native_task") = of_any_object(kNative);
    module.attr("call_kernel") = of_any_object(kKernel);
}
