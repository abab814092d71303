// The arguments of calls that are recorded, as far as there is nothing to be said about them: arrays that were recorded
// before, new views of arrays that the capture holds, numbers, plain values. All other calls are left to Python.
#include <Python.h>
#include <nanobind/nanobind.h>

#include <algorithm>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/numpy.h"

namespace nb = nanobind;

namespace {

class RecordedArguments {
public:
    // `operand`: the class of operands. `plain`: types of values that need no look.
    RecordedArguments(nb::object operand, const nb::tuple& plain) : operand_(std::move(operand)) {
        for (nb::handle type : plain)
            plain_.push_back(type.ptr());
    }

    // By argument, `kinds` has the access of an array, 0 for a plain value, or the type of a number. `known`: by
    // access, the operands by the `id` of arrays. `held`, `views`: the tables of the capture's guard, or None.
    // `native`: whether C code must be able to read the arrays. Returns (arguments, operands), or None where Python
    // must look at them.
    nb::object bind(const nb::tuple& args, const nb::tuple& kinds, const nb::tuple& known, nb::handle held,
                    nb::handle views, bool native) {
        const std::size_t count = args.size();
        if (count != kinds.size())
            return nb::none();
        std::size_t n_operands = 0;
        nb::object arguments = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
        if (!arguments.is_valid())
            throw nb::python_error();
        for (std::size_t i = 0; i < count; ++i) {
            nb::handle value = args[i], kind = kinds[i];
            nb::object found;
            if (PyLong_CheckExact(kind.ptr()) == 0) {
                found = is_number(value, kind) ? nb::borrow(value) : nb::object();
            } else if (const long access = PyLong_AsLong(kind.ptr()); access == 0) {
                found = is_plain_value(value) ? nb::borrow(value) : nb::object();
            } else {
                found =
                    operand_of(value, kind, nb::borrow<nb::dict>(known[static_cast<std::size_t>(access)]), held, views);
                if (found.is_valid() && native && !is_for_c(found))
                    found.reset();
                n_operands += found.is_valid() ? 1 : 0;
            }
            if (!found.is_valid())
                return nb::none();
            PyTuple_SetItem(arguments.ptr(), static_cast<Py_ssize_t>(i), found.release().ptr());
        }
        if (n_operands == count)
            return nb::make_tuple(arguments, arguments);
        nb::list operands;
        for (std::size_t i = 0; i < count; ++i)
            if (const nb::handle kind = kinds[i]; PyLong_CheckExact(kind.ptr()) != 0 && PyLong_AsLong(kind.ptr()) != 0)
                operands.append(nb::borrow<nb::tuple>(arguments)[i]);
        return nb::make_tuple(arguments, nb::tuple(operands));
    }

private:
    bool is_plain_value(nb::handle value) const {
        return std::find(plain_.begin(), plain_.end(), value.type().ptr()) != plain_.end();
    }

    static bool is_number(nb::handle value, nb::handle type) {
        if (type.is(reinterpret_cast<PyObject*>(&PyFloat_Type)))
            return PyFloat_CheckExact(value.ptr()) != 0;
        if (!type.is(reinterpret_cast<PyObject*>(&PyLong_Type)) || PyLong_CheckExact(value.ptr()) == 0)
            return false;
        int overflow = 0;
        PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
        return overflow == 0;
    }

    nb::object operand_of(nb::handle value, nb::handle access, const nb::dict& known, nb::handle held,
                          nb::handle views) const {
        nb::object key = id_of(value.ptr());
        if (PyObject* const found = PyDict_GetItemWithError(known.ptr(), key.ptr()))
            return nb::borrow(found);
        if (PyErr_Occurred() != nullptr)
            throw nb::python_error();
        if (held.is_none() || !ostinato::is_exact_ndarray(value.ptr()) || !is_view(value.ptr(), held))
            return {};
        ostinato::forbid_writing(value.ptr());
        nb::object made = operand_(value, value, nb::none(), access);
        if (PyDict_SetItem(known.ptr(), key.ptr(), made.ptr()) != 0 || PyList_Append(views.ptr(), value.ptr()) != 0)
            throw nb::python_error();
        return made;
    }

    // Whether the capture holds the base of an array, which then can be made writable again, and is so but for that.
    // See Guard.hold in graph/context.py.
    static bool is_view(PyObject* array, nb::handle held) {
        PyObject* const base = ostinato::base_of(array);
        if (base == nullptr || PyDict_Contains(held.ptr(), id_of(base).ptr()) != 1)
            return false;
        if (ostinato::is_writable(array))
            return true;
        const ostinato::ArrayFields fields = ostinato::fields_of(array);
        for (std::size_t axis = 0; axis < fields.shape.size(); ++axis)
            if (fields.strides[axis] == 0 && fields.shape[axis] > 1)
                return false;  // it repeats elements, and is read-only on its own account
        return true;
    }

    bool is_for_c(const nb::object& operand) const {
        nb::object array = operand.attr(array_);
        if (array.is_none()) {
            nb::object ring = operand.attr(ring_);
            if (ring.is_none())
                return false;
            array = nb::object(ring.attr(views_))[0];
        }
        return ostinato::has_own_numbers(array.ptr());
    }

    static nb::object id_of(PyObject* object) {
        nb::object key = nb::steal(PyLong_FromVoidPtr(object));
        if (!key.is_valid())
            throw nb::python_error();
        return key;
    }

    nb::object operand_;
    nb::str array_ = nb::str("array"), ring_ = nb::str("ring"), views_ = nb::str("views");
    std::vector<PyObject*> plain_;  // Types live as long as the interpreter.
};

}  // namespace

void bind_recording(nb::module_& module) {
    using namespace nb::literals;
    nb::class_<RecordedArguments>(module, "RecordedArguments", "Turns the arguments of recorded calls into operands.")
        .def(nb::init<nb::object, const nb::tuple&>(), "operand"_a, "plain"_a)
        .def("bind", &RecordedArguments::bind, "args"_a, "kinds"_a, "known"_a, "held"_a.none(), "views"_a.none(),
             "native"_a,
             nb::sig("def bind(self, args: tuple, kinds: tuple, known: tuple, held: object | None, "
                     "views: object | None, native: bool) -> tuple[tuple, tuple] | None"),
             "The arguments and the operands of a call, or None where Python must look at them.");
}
