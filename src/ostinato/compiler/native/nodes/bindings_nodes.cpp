// What passes ask of every node of a step, as columns; and the calls of a step as the tables of a plan.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <tsl/robin_map.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "at.h"
#include "bindings/arrays.h"
#include "bindings/numpy.h"
#include "operand_hash.h"

namespace nb = nanobind;

void bind_nodes(nb::module_& m);

namespace ostinato::passes {

namespace {

using Ints = Flat<int32_t>;

// By identity of objects that the nodes keep alive.
template <class T>
using ByObject = tsl::robin_map<PyObject*, T, OperandHash>;

struct Names {
    nb::str operands = nb::str("operands"), body = nb::str("body"), on = nb::str("on"), index = nb::str("index"),
            priority = nb::str("priority"), task = nb::str("task"), args = nb::str("args"), array = nb::str("array"),
            ring = nb::str("ring"), views = nb::str("views"), offset = nb::str("offset"), mode = nb::str("mode"),
            value = nb::str("value"), address = nb::str("address"), user_address = nb::str("user_address"),
            function = nb::str("function"), keywords = nb::str("keywords"), packing = nb::str("packing"),
            blocking = nb::str("blocking"), dtype = nb::str("dtype");
};

// Types of values that are passed as they are.
class PlainTypes {
public:
    explicit PlainTypes(const nb::tuple& types) {
        for (nb::handle type : types)
            types_.push_back(type.ptr());
    }
    bool has(nb::handle value) const {
        return std::find(types_.begin(), types_.end(), value.type().ptr()) != types_.end();
    }

private:
    std::vector<PyObject*> types_;
};

int64_t bytes_of(PyObject* array) {
    const ArrayFields fields = fields_of(array);
    return std::accumulate(fields.shape.begin(), fields.shape.end(), fields.itemsize, std::multiplies<>());
}

// The columns of compiler/nodes.py: `Summary`.
nb::tuple summarize(nb::handle nodes, const nb::tuple& calls, nb::handle operand_type, const nb::tuple& plain) {
    struct Use {
        int64_t bytes;
        int32_t period;
    };
    const Names names;
    ByObject<int32_t> operand_numbers;
    std::vector<Use> looks;
    ByObject<int32_t> numbers;
    nb::list tasks;
    const PlainTypes plain_types(plain);
    std::vector<int32_t> task, first, others, varied, bound, priority, period, operands, first_operand{0};
    std::vector<int64_t> bytes;
    std::vector<uint8_t> simple;
    const auto look_at = [&](nb::handle operand) -> Use {
        if (nb::object array = operand.attr(names.array); !array.is_none())
            return {bytes_of(array.ptr()), 1};
        nb::object ring = operand.attr(names.ring);
        if (ring.is_none())
            return {0, 1};
        nb::object views = ring.attr(names.views);
        return {bytes_of(nb::object(views[0]).ptr()), static_cast<int32_t>(nb::len(views))};
    };
    for (nb::handle node : nodes) {
        const auto index = static_cast<int32_t>(task.size());
        nb::object body = node.attr(names.body);
        simple.push_back(body.type().is(calls[0]) ? 1 : 0);
        if (body.type().is(calls[0]) || body.type().is(calls[1])) {
            nb::object called = body.attr(names.task);
            const auto [known, fresh] = numbers.try_emplace(called.ptr(), static_cast<int32_t>(first.size()));
            if (fresh) {
                tasks.append(called);
                first.push_back(index);
            }
            task.push_back(known->second);
            for (nb::handle arg : nb::object(body.attr(names.args))) {
                if (nb::isinstance(arg, operand_type))
                    continue;
                simple.back() = 0;
                if (!plain_types.has(arg)) {
                    varied.push_back(index);
                    break;
                }
            }
        } else {
            task.push_back(-1);
            others.push_back(index);
        }
        if (!nb::object(node.attr(names.on)).is_none())
            bound.push_back(index);
        priority.push_back(nb::cast<int32_t>(node.attr(names.priority)));
        int32_t own_period = 1;
        int64_t own_bytes = 0;
        for (nb::handle operand : nb::object(node.attr(names.operands))) {
            const auto [known, fresh] = operand_numbers.try_emplace(operand.ptr(), static_cast<int32_t>(looks.size()));
            if (fresh)
                looks.push_back(look_at(operand));
            operands.push_back(known->second);
            const Use& use = looks[at(known->second)];
            own_bytes += use.bytes;
            if (use.period != 1)
                own_period = std::lcm(own_period, use.period);
        }
        first_operand.push_back(static_cast<int32_t>(operands.size()));
        period.push_back(own_period);
        bytes.push_back(own_bytes);
    }
    return nb::make_tuple(give(std::move(task)), tasks, give(std::move(first)), give(std::move(others)),
                          give(std::move(varied)), give(std::move(bound)), give(std::move(priority)),
                          give(std::move(period)), give(std::move(bytes)), give(std::move(operands)),
                          give(std::move(first_operand)), give(std::move(simple)));
}

struct WordsHash {
    std::size_t operator()(const std::vector<int64_t>& words) const {
        uint64_t hash = words.size();
        for (const int64_t word : words)
            hash = (std::rotl(hash, 5) ^ static_cast<uint64_t>(word)) * 0x9e3779b97f4a7c15u;
        return hash >> 16;
    }
};

// Numbers the different calls: of one task, on arrays of one dtype and shape, with equal numbers and with other values
// of one type. Returns the number of each node, -1 for what is no call, and for each number the first node.
class DifferentCalls {
public:
    DifferentCalls(const nb::tuple& calls, nb::handle operand) : calls_(calls), operand_(operand) {}

    nb::tuple number(nb::handle nodes) {
        std::vector<int32_t> found, first;
        for (nb::handle node : nodes) {
            nb::object body = node.attr(names_.body);
            if (!body.type().is(calls_[0]) && !body.type().is(calls_[1])) {
                found.push_back(-1);
                continue;
            }
            look_.assign({word(nb::object(body.attr(names_.task)))});
            for (nb::handle arg : nb::object(body.attr(names_.args)))
                nb::isinstance(arg, operand_) ? look_.push_back(-1 - look_at(arg)) : add_value(arg);
            const auto [known, fresh] = numbers_.try_emplace(look_, static_cast<int32_t>(first.size()));
            if (fresh)
                first.push_back(static_cast<int32_t>(found.size()));
            found.push_back(known->second);
        }
        return nb::make_tuple(give(std::move(found)), give(std::move(first)));
    }

private:
    static int64_t word(nb::handle object) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(object.ptr())); }

    // The number of what an operand looks like.
    int32_t look_at(nb::handle operand) {
        const auto [known, fresh] = operands_.try_emplace(operand.ptr());
        if (!fresh)
            return known->second;
        nb::object array = operand.attr(names_.array);
        if (nb::object ring = operand.attr(names_.ring); array.is_none() && !ring.is_none())
            array = nb::object(ring.attr(names_.views))[0];
        std::vector<int64_t> look;
        if (!array.is_none()) {
            look.push_back(word(nb::object(array.attr(names_.dtype))));
            const ArrayFields fields = fields_of(array.ptr());
            look.insert(look.end(), fields.shape.begin(), fields.shape.end());
        }
        return known.value() = looks_.try_emplace(std::move(look), static_cast<int32_t>(looks_.size())).first->second;
    }

    void add_value(nb::handle value) {
        look_.push_back(word(value.type()));
        int overflow = 0;
        if (PyFloat_CheckExact(value.ptr()) != 0)
            look_.push_back(std::bit_cast<int64_t>(PyFloat_AsDouble(value.ptr())));
        else if (PyBool_Check(value.ptr()) != 0 || PyLong_CheckExact(value.ptr()) != 0)
            look_.push_back(PyLong_AsLongLongAndOverflow(value.ptr(), &overflow));
        if (overflow != 0)
            look_.push_back(word(value));
    }

    const Names names_;
    const nb::tuple calls_;
    const nb::handle operand_;
    ByObject<int32_t> operands_;
    std::vector<int64_t> look_;
    tsl::robin_map<std::vector<int64_t>, int32_t, WordsHash> looks_, numbers_;
};

template <class T>
using Column = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Lowers calls of which nothing is to be said but what they call, on which arrays, with which numbers or plain objects.
class Calls {
public:
    // Columns of the nodes' summary.
    struct Summary {
        std::span<const int32_t> task, operands, first_operand;
        std::span<const uint8_t> simple;
        nb::list tasks;
    };

    Calls(const nb::tuple& kinds, const nb::tuple& plain, const nb::handle operand, const Ints& periods,
          const Ints& period_class, Summary summary)
        : native_(kinds[0]), python_(kinds[1]), operand_(operand), plain_(plain), periods_(flat(periods)),
          class_(flat(period_class)), summary_(std::move(summary)), called_(summary_.tasks.size()) {
        const auto& numbers = summary_.operands;
        turns_of_.resize(numbers.empty() ? 0 : at(*std::max_element(numbers.begin(), numbers.end())) + 1);
    }

    struct Columns {
        Column<uint64_t> function, user;
        Column<int32_t> n_arrays, n_scalars, period;
        Column<int64_t> table_begin, scalar_begin;
    };

    // Fills the columns, and returns (table, scalars, views, Python entries, nodes that are left).
    nb::tuple lower(nb::handle nodes, const Columns& to) {
        nb::list left;
        std::size_t index = 0;
        for (nb::handle node : nodes) {
            if (summary_.simple[index] != 0) {
                add_native(node, index, to);
                ++index;
                continue;
            }
            nb::object body = node.attr(names_.body);
            const bool done = body.type().is(native_)   ? add_native(node, body, index, to)
                              : body.type().is(python_) ? add_python(node, body, index)
                                                        : false;
            if (!done)
                left.append(node);
            ++index;
        }
        return nb::make_tuple(give(std::move(table_)), give(std::move(scalars_)), views_, entries_, left);
    }

private:
    struct Turns {  // The views of an operand that take turns; none: nobody has looked yet.
        int32_t first = 0, count = 0, offset = 0;
    };
    struct Called {
        uint64_t function, user;
        bool known = false;
    };

    bool add_native(nb::handle node, const nb::object& body, std::size_t index, const Columns& to) {
        for (nb::handle arg : nb::object(body.attr(names_.args))) {
            if (nb::isinstance(arg, operand_))
                continue;
            if (PyFloat_CheckExact(arg.ptr()) != 0)
                numbers_.push_back(std::bit_cast<int64_t>(PyFloat_AsDouble(arg.ptr())));
            else if (PyLong_CheckExact(arg.ptr()) != 0)
                numbers_.push_back(nb::cast<int64_t>(arg));
            else {
                numbers_.clear();
                return false;
            }
        }
        add_native(node, index, to);
        return true;
    }

    // Adds a call with the numbers that were found.
    void add_native(nb::handle node, std::size_t index, const Columns& to) {
        Called& called = called_[at(summary_.task[index])];
        if (!called.known) {
            nb::object task = summary_.tasks[at(summary_.task[index])];
            called = {nb::cast<uint64_t>(task.attr(names_.address)), nb::cast<uint64_t>(task.attr(names_.user_address)),
                      true};
        }
        to.function.data()[index] = called.function;
        to.user.data()[index] = called.user;
        to.scalar_begin.data()[index] = static_cast<int64_t>(scalars_.size());
        to.n_scalars.data()[index] = static_cast<int32_t>(numbers_.size());
        scalars_.insert(scalars_.end(), numbers_.begin(), numbers_.end());
        numbers_.clear();
        const std::size_t begin = at(summary_.first_operand[index]), end = at(summary_.first_operand[index + 1]);
        const auto numbers = summary_.operands.subspan(begin, end - begin);
        if (std::any_of(numbers.begin(), numbers.end(), [&](int32_t each) { return turns_of_[at(each)].count == 0; }))
            look_at(node, numbers);
        to.n_arrays.data()[index] = static_cast<int32_t>(numbers.size());
        to.table_begin.data()[index] = static_cast<int64_t>(table_.size());
        to.period.data()[index] = class_[index];
        for (int32_t phase = 0; phase < periods_[at(class_[index])]; ++phase)
            for (const int32_t each : numbers) {
                const Turns& turns = turns_of_[at(each)];
                table_.push_back(turns.first + (phase + turns.offset) % turns.count);
            }
    }

    // Adds the views of the operands of a node that are new.
    void look_at(nb::handle node, std::span<const int32_t> numbers) {
        std::size_t position = 0;
        for (nb::handle operand : nb::object(node.attr(names_.operands))) {
            Turns& turns = turns_of_[at(numbers[position++])];
            if (turns.count != 0)
                continue;
            turns = {static_cast<int32_t>(nb::len(views_)), 1, 0};
            nb::object ring = operand.attr(names_.ring);
            if (ring.is_none()) {
                views_.append(operand.attr(names_.array));
                continue;
            }
            nb::object views = ring.attr(names_.views);
            turns.count = static_cast<int32_t>(nb::len(views));
            turns.offset = offset_of(ring, turns.count);
            for (nb::handle view : views)
                views_.append(view);
        }
    }

    int32_t offset_of(const nb::object& ring, int32_t count) const {
        const auto offset = nb::cast<int32_t>(ring.attr(names_.offset)) % count;
        return offset < 0 ? offset + count : offset;
    }

    bool add_python(nb::handle node, const nb::object& body, std::size_t index) {
        nb::object task = body.attr(names_.task), args = body.attr(names_.args);
        const auto [known, fresh] = function_.try_emplace(task.ptr());
        if (fresh && !nb::cast<bool>(task.attr(names_.blocking)))
            known.value() = nb::object(task.attr(names_.function));
        if (!known->second.is_valid() || !nb::object(body.attr(names_.packing)).is_none())
            return false;
        for (nb::handle arg : args)
            if (!nb::isinstance(arg, operand_) && !plain_.has(arg))
                return false;
        nb::list rows;
        for (int32_t phase = 0; phase < periods_[at(class_[index])]; ++phase) {
            nb::list row;
            for (nb::handle arg : args)
                row.append(nb::isinstance(arg, operand_) ? argument(arg, phase) : nb::borrow(arg));
            rows.append(nb::tuple(row));
        }
        nb::object keywords = body.attr(names_.keywords);
        entries_.append(nb::make_tuple(node.attr(names_.index), known->second,
                                       nb::len(keywords) == 0 ? nb::object(nb::none()) : keywords, nb::tuple(rows),
                                       class_[index], nb::tuple(), nb::tuple()));
        return true;
    }

    // A token, and an array of another library, as it was passed; of others a view.
    nb::object argument(nb::handle operand, int32_t phase) const {
        nb::object array = operand.attr(names_.array), value = operand.attr(names_.value);
        if (nb::object ring = operand.attr(names_.ring); !ring.is_none()) {
            nb::object views = ring.attr(names_.views);
            const auto count = static_cast<int32_t>(nb::len(views));
            array = nb::object(views[static_cast<std::size_t>((phase + offset_of(ring, count)) % count)]);
        } else if (array.is_none() || !is_ndarray(value.ptr())) {
            return value;
        }
        const auto mode = nb::cast<int>(operand.attr(names_.mode));
        nb::object view = nb::steal(view_array(array.ptr(), mode != kRead));
        if (!view.is_valid())
            throw nb::python_error();
        return view;
    }

    static constexpr int kRead = 1;  // As in graph/arrays.py.

    const Names names_;
    const nb::handle native_, python_, operand_;
    const PlainTypes plain_;
    const std::span<const int32_t> periods_, class_;
    const Summary summary_;
    std::vector<Turns> turns_of_;  // by operand
    std::vector<Called> called_;   // by task
    ByObject<nb::object> function_;
    std::vector<int64_t> numbers_;  // those of the call that is being added
    std::vector<int32_t> table_;
    std::vector<int64_t> scalars_;
    nb::list views_, entries_;
};

}  // namespace

}  // namespace ostinato::passes

void bind_nodes(nb::module_& m) {
    using namespace ostinato::passes;
    using namespace nb::literals;
    m.def("summarize", &summarize, "nodes"_a, "calls"_a, "operand"_a, "plain"_a,
          "What passes ask of every node, as the fields of Summary.");
    m.def(
        "different_calls",
        [](nb::handle nodes, const nb::tuple& calls, nb::handle operand) {
            return DifferentCalls(calls, operand).number(nodes);
        },
        "nodes"_a, "calls"_a, "operand"_a,
        "By node, the number of the call among those that look different, or -1; and the first node of each.");
    m.def(
        "lower_calls",
        [](nb::handle nodes, const nb::tuple& kinds, const nb::tuple& plain, nb::handle operand, const Ints& periods,
           const Ints& period_class, const Ints& task, const nb::list& tasks, const Ints& operands,
           const Ints& first_operand, const ostinato::Flat<uint8_t>& simple, const Column<uint64_t>& function,
           const Column<uint64_t>& user, const Column<int32_t>& n_arrays, const Column<int32_t>& n_scalars,
           const Column<int32_t>& period, const Column<int64_t>& table_begin, const Column<int64_t>& scalar_begin) {
            Calls::Summary summary{ostinato::flat(task), ostinato::flat(operands), ostinato::flat(first_operand),
                                   ostinato::flat(simple), tasks};
            return Calls(kinds, plain, operand, periods, period_class, std::move(summary))
                .lower(nodes, {function, user, n_arrays, n_scalars, period, table_begin, scalar_begin});
        },
        "nodes"_a, "kinds"_a, "plain"_a, "operand"_a, "periods"_a, "period_class"_a, "task"_a, "tasks"_a, "operands"_a,
        "first_operand"_a, "simple"_a, "function"_a, "user"_a, "n_arrays"_a, "n_scalars"_a, "period"_a, "table_begin"_a,
        "scalar_begin"_a,
        "Fill the columns of a plan for native and Python calls with plain arguments; return table, scalars, views, "
        "Python entries, and the nodes that are left.");
}
