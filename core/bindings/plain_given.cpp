// Reads the arguments of a run in the core, without Python code in between.
//
// Python code (runtime/arguments.py) reads all other arguments: numbers of another type, mappings that are no dicts,
// and wrong arguments, for which it has the messages.
#include <bit>
#include <utility>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace ostinato {

namespace {

PyObject* item(const nb::handle& tuple, Py_ssize_t index) { return PyTuple_GetItem(tuple.ptr(), index); }

// A new reference; null where the dict lacks the key.
nb::object find(const nb::dict& dict, PyObject* key) {
    nb::object found = nb::borrow(PyDict_GetItemWithError(dict.ptr(), key));
    if (!found.is_valid() && PyErr_Occurred() != nullptr)
        throw nb::python_error();
    return found;
}

bool read_number(std::vector<std::uint64_t>& bits, const nb::object& value, bool is_float) {
    if (is_float) {
        if (!PyFloat_CheckExact(value.ptr()))
            return false;
        bits.push_back(std::bit_cast<std::uint64_t>(PyFloat_AsDouble(value.ptr())));
        return true;
    }
    if (!PyLong_CheckExact(value.ptr()))
        return false;
    int overflow = 0;
    bits.push_back(static_cast<std::uint64_t>(PyLong_AsLongLongAndOverflow(value.ptr(), &overflow)));
    return overflow == 0;
}

// Null: it is no event, but perhaps a run.
std::shared_ptr<Event> event_of(const nb::handle& value) {
    static const nb::object& core_name = *new nb::object(nb::str("_core"));  // for ever: modules outlive no interpreter
    const nb::object core = nb::steal(PyObject_GetAttr(value.ptr(), core_name.ptr()));
    if (!core.is_valid()) {
        PyErr_Clear();
        return nullptr;
    }
    EventHandle* handle = nullptr;
    return nb::try_cast<EventHandle*>(core, handle) && handle != nullptr ? handle->event : nullptr;
}

}  // namespace

std::shared_ptr<Event> pending(RunOutside& outside, const std::shared_ptr<Event>& given) {
    for (std::shared_ptr<Grant>& grant : given->grants())
        outside.grants.push_back(std::move(grant));
    return given->done() && !given->poisoned() ? nullptr : given;
}

bool read_params(PlainValues& values, const nb::tuple& form, const nb::dict& given) {
    const nb::handle names = item(form, 0), required = item(form, 1), numbers = item(form, 2), objects = item(form, 3);
    const std::size_t n_given = given.size();
    if (n_given != 0) {
        std::size_t known = 0;
        for (std::size_t i = 0; i < nb::len(names); ++i)
            known += find(given, item(names, static_cast<Py_ssize_t>(i))).is_valid();
        if (known != n_given)
            return false;
    }
    for (std::size_t i = 0; i < nb::len(required); ++i)
        if (!find(given, item(required, static_cast<Py_ssize_t>(i))).is_valid())
            return false;
    const auto value_of = [&](PyObject* entry) {  // its name and default come first
        const nb::object found = find(given, item(entry, 0));
        return found.is_valid() ? found : nb::borrow(item(entry, 1));
    };
    const std::size_t n_numbers = nb::len(numbers), n_objects = nb::len(objects);
    values.numbers.reserve(n_numbers);
    for (std::size_t i = 0; i < n_numbers; ++i) {
        PyObject* const entry = item(numbers, static_cast<Py_ssize_t>(i));
        if (!read_number(values.numbers, value_of(entry), item(entry, 2) == Py_True))
            return false;
    }
    values.objects.reserve(n_objects);
    for (std::size_t i = 0; i < n_objects; ++i)
        values.objects.emplace_back(value_of(item(objects, static_cast<Py_ssize_t>(i))).ptr());
    return true;
}

bool read_after(std::unique_ptr<RunOutside>& outside, const nb::tuple& names, const nb::object& after) {
    const std::size_t n_names = names.size();
    if (after.is_none())
        return n_names == 0;
    auto read = std::make_unique<RunOutside>();
    if (n_names == 0) {
        const std::shared_ptr<Event> event = event_of(after);
        if (!event)
            return false;
        read->after = pending(*read, event);
    } else {
        if (!PyDict_CheckExact(after.ptr()) || static_cast<std::size_t>(PyDict_Size(after.ptr())) != n_names)
            return false;
        const auto events = nb::borrow<nb::dict>(after);
        read->preconditions.reserve(n_names);
        for (std::size_t i = 0; i < n_names; ++i) {
            const nb::object found = find(events, item(names, static_cast<Py_ssize_t>(i)));
            const std::shared_ptr<Event> event = found.is_valid() ? event_of(found) : nullptr;
            if (!event)
                return false;
            read->preconditions.push_back(pending(*read, event));
        }
    }
    outside = std::move(read);
    return true;
}

bool all_happened(const nb::object& after) {
    const auto happened = [](const nb::handle& value) {
        const std::shared_ptr<Event> event = event_of(value);
        return event && event->done();
    };
    if (after.is_none())
        return true;
    if (!PyDict_CheckExact(after.ptr()))
        return happened(after);
    for (const auto& [name, value] : nb::borrow<nb::dict>(after))
        if (!happened(value))
            return false;
    return true;
}

}  // namespace ostinato
