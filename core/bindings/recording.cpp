// Records common calls: each argument is an array that was recorded before, a new view of an array that the capture
// holds, a number, or a plain value. Python records all other calls.
#include "bindings/recording.h"

#include <Python.h>
#include <nanobind/nanobind.h>
#include <tsl/robin_map.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/numpy.h"

namespace nb = nanobind;

namespace {

// Makes objects of a Python class by writing its __slots__. Calling the class would run its __init__, in Python.
class Maker {
public:
    Maker() = default;
    Maker(const nb::object& type, std::initializer_list<const char*> slots) : type_(type.inc_ref().ptr()) {
        for (const char* slot : slots)
            slots_.push_back(nb::object(type.attr(slot)).release().ptr());
        set_ = reinterpret_cast<descrsetfunc>(PyType_GetSlot(Py_TYPE(slots_[0]), Py_tp_descr_set));
    }

    // `values`: borrowed, one for each slot.
    nb::object make(std::initializer_list<PyObject*> values) const {
        nb::object made = nb::steal(PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(type_), 0));
        if (!made.is_valid())
            throw nb::python_error();
        auto slot = slots_.begin();
        for (PyObject* value : values)
            if (set_(*slot++, made.ptr(), value) != 0)
                throw nb::python_error();
        return made;
    }

private:
    PyObject* type_ = nullptr;
    std::vector<PyObject*> slots_;  // the descriptors
    descrsetfunc set_ = nullptr;
};

// What recording knows of Python's side, which lives as long as the interpreter; set once.
struct Classes {
    Maker operand, op, native_call, python_call;
    std::vector<PyObject*> plain;  // types of values that need no look
    PyObject* site_of = nullptr;   // gives the call site of a frame
    PyObject *array = nullptr, *ring = nullptr, *views = nullptr, *plain_form = nullptr, *name = nullptr,
             *last_instruction = nullptr, *calls = nullptr, *flags = nullptr, *writeable = nullptr;
    PyObject *nothing = nullptr, *zero = nullptr;  // an empty tuple, and the number
    std::array<PyObject*, 4> modes{};              // as numbers
};
Classes classes;

// How a task takes an argument.
enum class ArgumentKind : std::uint8_t { kPlain = 0, kRead = 1, kWrite = 2, kReadWrite = 3, kInt, kFloat };

ArgumentKind kind_of(nb::handle value) {
    if (PyLong_CheckExact(value.ptr()) != 0)
        return static_cast<ArgumentKind>(nb::cast<std::uint8_t>(value));
    return value.is(reinterpret_cast<PyObject*>(&PyFloat_Type)) ? ArgumentKind::kFloat : ArgumentKind::kInt;
}

bool is_access(ArgumentKind kind) { return ArgumentKind::kRead <= kind && kind <= ArgumentKind::kReadWrite; }

bool is_plain_value(PyObject* value) {
    return std::find(classes.plain.begin(), classes.plain.end(), reinterpret_cast<PyObject*>(Py_TYPE(value))) !=
           classes.plain.end();
}

bool is_number(PyObject* value, ArgumentKind kind) {
    if (kind == ArgumentKind::kFloat)
        return PyFloat_CheckExact(value) != 0;
    if (PyLong_CheckExact(value) == 0)
        return false;
    int overflow = 0;
    PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow == 0;
}

nb::object id_of(PyObject* object) {
    nb::object key = nb::steal(PyLong_FromVoidPtr(object));
    if (!key.is_valid())
        throw nb::python_error();
    return key;
}

nb::object get(nb::handle object, PyObject* name) {
    nb::object found = nb::steal(PyObject_GetAttr(object.ptr(), name));
    if (!found.is_valid())
        throw nb::python_error();
    return found;
}

// Python's collector does not look into arrays, so it need not look into what has nothing else.
void spare_collector(PyObject* object) { PyObject_GC_UnTrack(object); }

// Finds the operand that was made for an object and an access. An operand keeps its object alive.
class Operands {
public:
    struct Found {
        PyObject* operand;  // borrowed; null where there is none
        bool is_for_c;      // whether C code can read its arrays
    };
    static constexpr std::uintptr_t kForC = 1;

    Operands() { table_.max_load_factor(0.8F); }

    Found find(PyObject* value, ArgumentKind access) const {
        const auto known = table_.find(key(value, access));
        if (known == table_.end())
            return {nullptr, false};
        return {reinterpret_cast<PyObject*>(known->second & ~kForC), (known->second & kForC) != 0};
    }

    void keep(PyObject* value, ArgumentKind access, PyObject* operand, bool is_for_c) {
        PyObject* before = nullptr;
        const std::uintptr_t entry = reinterpret_cast<std::uintptr_t>(operand) | (is_for_c ? kForC : 0);
        const auto [known, fresh] = table_.try_emplace(key(value, access), entry);
        Py_INCREF(operand);
        if (!fresh) {
            before = reinterpret_cast<PyObject*>(known->second & ~kForC);
            known.value() = entry;
        }
        Py_XDECREF(before);
    }

    void forget() {
        Table gone;
        std::swap(gone, table_);
        for (const auto& [_, entry] : gone)
            Py_DECREF(reinterpret_cast<PyObject*>(entry & ~kForC));
        table_.max_load_factor(0.8F);
    }

    int visit(visitproc visit, void* arg) const {
        for (const auto& [_, entry] : table_)
            Py_VISIT(reinterpret_cast<PyObject*>(entry & ~kForC));
        return 0;
    }

private:
    struct Hash {
        std::size_t operator()(std::uintptr_t key) const { return (key * 0x9e3779b97f4a7c15u) >> 20; }
    };
    using Table = tsl::robin_map<std::uintptr_t, std::uintptr_t, Hash>;

    // Objects lie at multiples of 8 bytes at least.
    static std::uintptr_t key(PyObject* value, ArgumentKind access) {
        return reinterpret_cast<std::uintptr_t>(value) | static_cast<std::uintptr_t>(access);
    }

    Table table_;
};

bool is_for_c(nb::handle operand) {
    nb::object array = get(operand, classes.array);
    if (array.is_none()) {
        nb::object ring = get(operand, classes.ring);
        if (ring.is_none())
            return false;
        array = nb::object(get(ring, classes.views)[0]);
    }
    return ostinato::has_own_numbers(array.ptr());
}

// Records calls of tasks as ops of one graph.
class CallRecorder {
public:
    CallRecorder(nb::object graph, nb::list ops) : graph_(std::move(graph)), ops_(std::move(ops)) {}
    CallRecorder(const CallRecorder&) = delete;
    CallRecorder& operator=(const CallRecorder&) = delete;
    ~CallRecorder() { clear(); }

    nb::object find(nb::handle value, int mode) const {
        PyObject* const operand = operands_.find(value.ptr(), static_cast<ArgumentKind>(mode)).operand;
        return operand == nullptr ? nb::none() : nb::borrow(operand);
    }

    void keep(nb::handle value, int mode, nb::handle operand) {
        operands_.keep(value.ptr(), static_cast<ArgumentKind>(mode), operand.ptr(), is_for_c(operand));
        if (ostinato::is_exact_ndarray(value.ptr()) && get(operand, classes.array).is(value))
            spare_collector(operand.ptr());
    }

    // The calls of this thread are recorded. `held`, `views`: the tables of the capture's guard.
    void begin(nb::dict held, nb::list views) {
        thread_ = ostinato::Worker::current() == nullptr ? PyThread_get_thread_ident() : 0;
        held_ = std::move(held);
        views_ = std::move(views);
    }

    // From here on, there are new operands for arrays that are recorded again: the table is as large as the graph.
    void end() {
        thread_ = 0;
        held_.reset();
        views_.reset();
        last_base_ = nullptr;
        operands_.forget();
    }

    bool records_calls_of_this_thread() const {
        return thread_ != 0 && thread_ == PyThread_get_thread_ident() && ostinato::Worker::current() == nullptr;
    }

    // The op that records a call made in `frame`; not valid where Python must look at the call.
    nb::object record(PyObject* task, std::span<PyObject* const> args, PyObject* frame) {
        const Form* form = form_of(task);
        if (form == nullptr || form->kinds.size() != args.size())
            return {};
        const auto [arguments, operands] = bind(args, form->kinds, form->native);
        if (!arguments.is_valid())
            return {};
        nb::object body = form->native ? classes.native_call.make({task, arguments.ptr()})
                                       : classes.python_call.make({task, arguments.ptr(), classes.nothing, Py_None});
        nb::object site = site_of(frame);
        nb::object index = nb::steal(PyLong_FromSsize_t(PyList_Size(ops_.ptr())));
        if (!index.is_valid())
            throw nb::python_error();
        nb::object op = classes.op.make(
            {graph_.ptr(), index.ptr(), form->name, site.ptr(), body.ptr(), operands.ptr(), Py_None, classes.zero});
        ops_.append(op);
        return op;
    }

    // The arguments of a call as they are recorded, and its operands; not valid where Python must look at them.
    std::pair<nb::object, nb::object> bind(std::span<PyObject* const> args, std::span<const ArgumentKind> kinds,
                                           bool native) {
        nb::object arguments = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(args.size())));
        if (!arguments.is_valid())
            throw nb::python_error();
        Py_ssize_t n_operands = 0;
        bool any_tracked = false;
        for (std::size_t i = 0; i < args.size(); ++i) {
            PyObject* found = nullptr;
            if (is_access(kinds[i])) {
                const auto [operand, readable] = operand_of(args[i], kinds[i]);
                found = native && !readable ? nullptr : operand;
                ++n_operands;
            } else if (kinds[i] == ArgumentKind::kPlain ? is_plain_value(args[i]) : is_number(args[i], kinds[i])) {
                found = args[i];
            }
            if (found == nullptr)
                return {};
            any_tracked = any_tracked || PyObject_GC_IsTracked(found) != 0;
            PyTuple_SetItem(arguments.ptr(), static_cast<Py_ssize_t>(i), Py_NewRef(found));
        }
        if (n_operands == static_cast<Py_ssize_t>(args.size())) {
            if (!any_tracked)
                spare_collector(arguments.ptr());
            return {arguments, arguments};
        }
        nb::object operands = nb::steal(PyTuple_New(n_operands));
        if (!operands.is_valid())
            throw nb::python_error();
        Py_ssize_t at = 0;
        for (std::size_t i = 0; i < args.size(); ++i)
            if (is_access(kinds[i]))
                PyTuple_SetItem(operands.ptr(), at++,
                                Py_NewRef(PyTuple_GetItem(arguments.ptr(), static_cast<Py_ssize_t>(i))));
        return {arguments, operands};
    }

    // Where the call that runs in `frame` is in the user's code.
    nb::object site_of(PyObject* frame) {
        nb::object code =
            nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(reinterpret_cast<PyFrameObject*>(frame))));
        const Place place{code.ptr(), nb::cast<long>(get(frame, classes.last_instruction))};
        if (const auto known = sites_.find(place); known != sites_.end())
            return known->second;
        nb::object site = nb::steal(PyObject_CallFunctionObjArgs(classes.site_of, frame, nullptr));
        if (!site.is_valid())
            throw nb::python_error();
        return sites_.try_emplace(place, site).first->second;  // it keeps the code of users, and so its address
    }

    int visit(visitproc visit, void* arg) const {
        for (const nb::object* each : {&graph_, static_cast<const nb::object*>(&ops_), &held_, &views_})
            Py_VISIT(each->ptr());
        for (const auto& [task, _] : forms_)
            Py_VISIT(task);
        for (const auto& [_, site] : sites_)
            Py_VISIT(site.ptr());
        return operands_.visit(visit, arg);
    }

    void clear() {
        end();
        const auto forms = std::exchange(forms_, {});
        const auto sites = std::exchange(sites_, {});
        const nb::object graph = std::move(graph_), ops = std::move(ops_);
        for (const auto& [task, form] : forms) {
            Py_DECREF(form.name);
            Py_DECREF(task);
        }
    }

private:
    // How a task takes its arguments where each is given, by position.
    struct Form {
        std::vector<ArgumentKind> kinds;
        bool native;     // whether its calls are native ones
        PyObject* name;  // owned, as the key is
    };
    struct Place {
        PyObject* code;
        long instruction;
        bool operator==(const Place&) const = default;
    };
    struct PlaceHash {
        std::size_t operator()(const Place& place) const {
            return reinterpret_cast<std::uintptr_t>(place.code) / 16 + static_cast<std::size_t>(place.instruction);
        }
    };

    // Null: the task says that Python must look at its calls.
    const Form* form_of(PyObject* task) {
        if (const auto known = forms_.find(task); known != forms_.end())
            return &known->second;
        nb::object form = nb::steal(PyObject_CallMethodObjArgs(task, classes.plain_form, nullptr));
        if (!form.is_valid())
            throw nb::python_error();
        if (form.is_none())
            return nullptr;
        Form made{{}, nb::cast<bool>(form[1]), get(task, classes.name).release().ptr()};
        for (nb::handle kind : nb::object(form[0]))
            made.kinds.push_back(kind_of(kind));
        return &forms_.try_emplace(Py_NewRef(task), std::move(made)).first->second;
    }

    Operands::Found operand_of(PyObject* value, ArgumentKind access) {
        if (const Operands::Found known = operands_.find(value, access); known.operand != nullptr)
            return known;
        if (!held_.is_valid() || !ostinato::is_exact_ndarray(value) || !is_view(value))
            return {nullptr, false};
        ostinato::forbid_writing(value);
        const nb::object made =
            classes.operand.make({value, value, Py_None, classes.modes[static_cast<std::size_t>(access)]});
        spare_collector(made.ptr());
        const bool readable = ostinato::has_own_numbers(value);
        operands_.keep(value, access, made.ptr(), readable);
        if (PyList_Append(views_.ptr(), value) != 0)
            throw nb::python_error();
        return {made.ptr(), readable};  // the table has it
    }

    // Whether the capture holds the base of an array, which then can be made writable again, and is so but for that.
    // See Guard.hold in graph/context.py.
    bool is_view(PyObject* array) {
        PyObject* const base = ostinato::base_of(array);
        if (base == nullptr)
            return false;
        if (base != last_base_) {
            if (PyDict_Contains(held_.ptr(), id_of(base).ptr()) != 1)
                return false;
            last_base_ = base;
        }
        if (ostinato::is_writable(array))
            return true;
        const ostinato::ArrayFields fields = ostinato::fields_of(array);
        for (std::size_t axis = 0; axis < fields.shape.size(); ++axis)
            if (fields.strides[axis] == 0 && fields.shape[axis] > 1)
                return false;  // it repeats elements, and is read-only on its own account
        return true;
    }

    nb::object graph_;
    nb::list ops_;
    unsigned long thread_ = 0;  // whose calls are recorded; 0: nobody's
    nb::object held_, views_;
    PyObject* last_base_ = nullptr;  // one of `held_`
    Operands operands_;
    std::unordered_map<PyObject*, Form> forms_;
    std::unordered_map<Place, nb::object, PlaceHash> sites_;
};

int traverse_recorder(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    return nb::inst_ready(self) ? nb::inst_ptr<CallRecorder>(self)->visit(visit, arg) : 0;
}

int clear_recorder(PyObject* self) {
    nb::inst_ptr<CallRecorder>(self)->clear();
    return 0;
}

PyType_Slot recorder_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_recorder)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear_recorder)},
                                {0, nullptr}};

std::vector<PyObject*> entries_of(const nb::tuple& values) {
    std::vector<PyObject*> found;
    for (nb::handle value : values)
        found.push_back(value.ptr());
    return found;
}

}  // namespace

namespace ostinato {

PyObject* record_call(PyObject* recording, PyObject* task, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    if (names != nullptr)
        return nullptr;
    try {
        nb::object calls = get(recording, classes.calls);
        if (calls.is_none())
            return nullptr;
        const nb::ft_object_guard guard(calls);
        CallRecorder& recorder = *nb::inst_ptr<CallRecorder>(calls);
        PyObject* const frame = reinterpret_cast<PyObject*>(PyEval_GetFrame());
        if (frame == nullptr || !recorder.records_calls_of_this_thread())
            return nullptr;
        return recorder.record(task, {args, static_cast<std::size_t>(count)}, frame).release().ptr();
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

}  // namespace ostinato

void bind_recording(nb::module_& module) {
    using namespace nb::literals;
    module.def(
        "prepare_recording",
        [](const nb::object& operand, const nb::object& op, const nb::object& native_call,
           const nb::object& python_call, const nb::tuple& plain, const nb::object& site_of) {
            classes.operand = {operand, {"value", "array", "ring", "mode"}};
            classes.op = {op, {"graph", "index", "name", "call_site", "body", "operands", "on", "priority"}};
            classes.native_call = {native_call, {"task", "args"}};
            classes.python_call = {python_call, {"task", "args", "keywords", "packing"}};
            classes.plain = entries_of(plain);
            plain.inc_ref();
            classes.site_of = site_of.inc_ref().ptr();
            classes.array = PyUnicode_InternFromString("array");
            classes.ring = PyUnicode_InternFromString("ring");
            classes.views = PyUnicode_InternFromString("views");
            classes.plain_form = PyUnicode_InternFromString("plain_form");
            classes.name = PyUnicode_InternFromString("name");
            classes.last_instruction = PyUnicode_InternFromString("f_lasti");
            classes.calls = PyUnicode_InternFromString("calls");
            classes.flags = PyUnicode_InternFromString("flags");
            classes.writeable = PyUnicode_InternFromString("writeable");
            classes.nothing = PyTuple_New(0);
            classes.zero = PyLong_FromLong(0);
            for (std::size_t mode = 0; mode < classes.modes.size(); ++mode)
                classes.modes[mode] = PyLong_FromSize_t(mode);
        },
        "operand"_a, "op"_a, "native_call"_a, "python_call"_a, "plain"_a, "site_of"_a,
        "Say which classes recorded calls are made of; before the first of them.");
    nb::class_<CallRecorder>(module, "CallRecorder", nb::type_slots(recorder_slots),
                             "Records calls of tasks as ops of one graph.")
        .def(nb::init<nb::object, nb::list>(), "graph"_a, "ops"_a)
        .def("find", &CallRecorder::find, "value"_a.none(), "mode"_a, nb::lock_self(),
             nb::sig("def find(self, value: object, mode: int) -> typing.Any"),
             "The operand that exists for what the user passed, with this access; None where there is none.")
        .def("keep", &CallRecorder::keep, "value"_a.none(), "mode"_a, "operand"_a, nb::lock_self(),
             "Let `find` find an operand.")
        .def("begin", &CallRecorder::begin, "held"_a, "views"_a, nb::lock_self(),
             "Record the calls of this thread, in a capture whose guard has these tables.")
        .def("end", &CallRecorder::end, nb::lock_self(), "End what `begin` began, and forget all operands.")
        .def(
            "record",
            [](CallRecorder& self, nb::handle task, const nb::tuple& args, nb::handle frame) {
                nb::object op = self.record(task.ptr(), entries_of(args), frame.ptr());
                return op.is_valid() ? op : nb::none();
            },
            "task"_a, "args"_a, "frame"_a, nb::lock_self(),
            nb::sig("def record(self, task: object, args: tuple, frame: object) -> typing.Any"),
            "The op that records a call made in `frame`; None where Python must look at the call.")
        .def(
            "bind",
            [](CallRecorder& self, const nb::tuple& args, const nb::tuple& kinds, bool native) -> nb::object {
                std::vector<ArgumentKind> as_kinds;
                for (nb::handle kind : kinds)
                    as_kinds.push_back(kind_of(kind));
                if (args.size() != as_kinds.size())
                    return nb::none();
                const auto [arguments, operands] = self.bind(entries_of(args), as_kinds, native);
                return arguments.is_valid() ? nb::object(nb::make_tuple(arguments, operands)) : nb::none();
            },
            "args"_a, "kinds"_a, "native"_a, nb::lock_self(),
            nb::sig("def bind(self, args: tuple, kinds: tuple, native: bool) -> tuple[tuple, tuple] | None"),
            "The arguments and the operands of a call, or None where Python must look at them.\n\n"
            "By argument, `kinds` has the access of an array, 0 for a plain value, or the type of a number. A `native` "
            "call needs arrays that C code can read.")
        .def(
            "site_of", [](CallRecorder& self, nb::handle frame) { return self.site_of(frame.ptr()); }, "frame"_a,
            nb::lock_self(), nb::sig("def site_of(self, frame: object) -> typing.Any"),
            "Where the call that runs in `frame` is in the user's code.");
    module.def(
        "make_writable",
        [](nb::handle arrays) {
            for (nb::handle array : arrays) {
                if (ostinato::allow_writing(array.ptr()))
                    continue;
                nb::object flags = get(array, classes.flags);
                if (PyObject_SetAttr(flags.ptr(), classes.writeable, Py_True) == 0)
                    continue;
                if (PyErr_ExceptionMatches(PyExc_ValueError) == 0)
                    throw nb::python_error();
                PyErr_Clear();
            }
        },
        "arrays"_a, "Make arrays writable; leave those that NumPy refuses to make so.");
}
