// Reads the operands of a graph's ops out of their Python objects.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <tsl/robin_map.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "at.h"
#include "bindings/arrays.h"
#include "bindings/numpy.h"
#include "dependences/regions.h"
#include "operand_hash.h"

namespace nb = nanobind;

void bind_regions(nb::module_& m);

namespace ostinato::passes {

namespace {

// Numbers for Python objects by identity.
using Identities = tsl::robin_map<const void*, int32_t, OperandHash>;

uintptr_t address(nb::handle array) { return reinterpret_cast<uintptr_t>(fields_of(array.ptr()).data); }

Layout read_layout(nb::handle array, Layouts& layouts) {
    const ArrayFields fields = fields_of(array.ptr());
    return layouts.add(reinterpret_cast<uintptr_t>(fields.data), fields.itemsize, fields.shape, fields.strides);
}

// The first byte of an array, and what is behind its last.
std::pair<uintptr_t, uintptr_t> extent(nb::handle array) {
    const ArrayFields fields = fields_of(array.ptr());
    uintptr_t low = address(array), high = low + static_cast<uintptr_t>(fields.itemsize);
    for (std::size_t axis = 0; axis < fields.shape.size(); ++axis) {
        if (fields.shape[axis] == 0)
            return {address(array), address(array)};
        const int64_t reach = fields.strides[axis] * (fields.shape[axis] - 1);
        (reach < 0 ? low : high) += static_cast<uintptr_t>(reach);
    }
    return {low, high};
}

class Reader {
public:
    explicit Reader(nb::handle tasks) : tasks_(tasks) {}

    Operands read(nb::handle ops) {
        for (nb::handle op : ops) {
            bool any = false;
            for (nb::handle operand : nb::object(op.attr(operands_name_))) {
                add(operand);
                any = true;
            }
            end_op(op, !any);
        }
        return std::move(out_);
    }

    // The same with the numbers of operands that the summary of the ops has.
    Operands read(nb::handle ops, std::span<const int32_t> numbers, std::span<const int32_t> first) {
        for (nb::handle op : ops) {
            const auto begin = at(first[at(out_.ops)]), end = at(first[at(out_.ops) + 1]);
            const auto own = numbers.subspan(begin, end - begin);
            // Numbers count operands in the order in which they come first.
            if (std::any_of(own.begin(), own.end(), [&](int32_t each) { return at(each) >= looked_at_.size(); })) {
                std::size_t position = begin;
                for (nb::handle operand : nb::object(op.attr(operands_name_)))
                    if (at(numbers[position++]) == looked_at_.size())
                        looked_at_.push_back(look_at(operand));
            }
            for (const int32_t each : own) {
                out_.accesses.push_back(looked_at_[at(each)]);
                out_.accesses.back().op = out_.ops;
            }
            end_op(op, own.empty());
        }
        return std::move(out_);
    }

    Operands read_views(nb::handle arrays) {
        for (nb::handle array : arrays)
            view(array);
        return std::move(out_);
    }

private:
    // Tasks without an operand keep program order among themselves: they share a token of their own.
    void end_op(nb::handle op, bool is_alone) {
        if (is_alone && nb::isinstance(nb::object(op.attr(body_)), tasks_))
            out_.accesses.push_back({out_.ops, token(this), 3, Operands::Kind::kToken});
        ++out_.ops;
    }

    void add(nb::handle operand) {
        const auto [known, fresh] = operands_.try_emplace(operand.ptr(), static_cast<int32_t>(looked_at_.size()));
        if (fresh)
            looked_at_.push_back(look_at(operand));
        out_.accesses.push_back(looked_at_[at(known->second)]);
        out_.accesses.back().op = out_.ops;
    }

    Operands::Access look_at(nb::handle operand) {
        const auto mode = nb::cast<uint8_t>(operand.attr(mode_));
        if (nb::object array = operand.attr(array_); !array.is_none())
            return {0, view(array), mode, Operands::Kind::kArray};
        if (nb::object ring = operand.attr(ring_); !ring.is_none())
            return {0, element(ring), mode, Operands::Kind::kElement};
        nb::object value = operand.attr(value_);
        return {0, token(value.ptr()), mode, Operands::Kind::kToken};
    }

    int32_t token(const void* identity) {
        const auto [known, fresh] = tokens_.try_emplace(identity, out_.tokens);
        out_.tokens += fresh ? 1 : 0;
        return known->second;
    }

    int32_t view(nb::handle array) {
        out_.views.push_back({read_layout(array, out_.layouts), root(array.ptr())});
        return static_cast<int32_t>(out_.views.size()) - 1;
    }

    int32_t root(PyObject* array) {
        while (base_of(array) != nullptr && is_ndarray(base_of(array)))
            array = base_of(array);
        const auto [known, fresh] = roots_.try_emplace(array, static_cast<int32_t>(out_.roots.size()));
        if (fresh)
            out_.roots.push_back(read_layout(array, out_.layouts));
        return known->second;
    }

    int32_t element(nb::handle element) {
        Operands::Element e{ring(nb::object(element.attr("ring"))), nb::cast<int32_t>(element.attr("offset")), {}};
        for (nb::handle v : nb::object(element.attr("views")))
            e.views.push_back(view(v));
        out_.elements.push_back(std::move(e));
        return static_cast<int32_t>(out_.elements.size()) - 1;
    }

    int32_t ring(nb::handle ring) {
        const auto [known, fresh] = rings_.try_emplace(ring.ptr(), static_cast<int32_t>(out_.rings.size()));
        if (!fresh)
            return known->second;
        Operands::Ring r{{}, nb::cast<bool>(ring.attr("disjoint"))};
        for (nb::handle a : nb::object(ring.attr("arrays")))
            r.arrays.push_back(view(a));
        out_.rings.push_back(std::move(r));
        return known->second;
    }

    nb::handle tasks_;
    nb::str mode_ = nb::str("mode"), array_ = nb::str("array"), ring_ = nb::str("ring"), value_ = nb::str("value"),
            operands_name_ = nb::str("operands"), body_ = nb::str("body");
    Operands out_;
    // The graph keeps all these objects alive meanwhile, so an address is an identity.
    Identities operands_, tokens_, roots_, rings_;
    std::vector<Operands::Access> looked_at_;
};

nb::tuple as_columns(const Operands& operands) {
    Regions r = regions(operands);
    return nb::make_tuple(give(std::move(r.op)), give(std::move(r.mode)), give(std::move(r.group)),
                          give(std::move(r.period)), give(std::move(r.phase)), give(std::move(r.alias)),
                          give(std::move(r.box)), give_rows(std::move(r.lo), at(r.dims)),
                          give_rows(std::move(r.hi), at(r.dims)), r.groups);
}

nb::tuple accesses(nb::handle ops, nb::handle tasks) { return as_columns(Reader(tasks).read(ops)); }

nb::tuple accesses_of_summary(nb::handle ops, nb::handle tasks, const Flat<int32_t>& numbers,
                              const Flat<int32_t>& first) {
    return as_columns(Reader(tasks).read(ops, flat(numbers), flat(first)));
}

nb::dict boxes_of(nb::handle arrays) {
    const Operands operands = Reader(nb::handle()).read_views(arrays);
    Boxes b = boxes(operands);
    const auto dims = static_cast<std::size_t>(b.dims);
    nb::dict out;
    out["allocation"] = give(std::move(b.allocation));
    out["lo"] = give_rows(std::move(b.lo), dims);
    out["hi"] = give_rows(std::move(b.hi), dims);
    out["low"] = give(std::move(b.low));
    out["stride"] = give_rows(std::move(b.stride), dims);
    return out;
}

}  // namespace

}  // namespace ostinato::passes

void bind_regions(nb::module_& m) {
    m.def("address", &ostinato::passes::address, nb::arg("array"), "The address of the first element of an array.");
    m.def("extent", &ostinato::passes::extent, nb::arg("array"),
          "The address of the first byte of an array, and the one behind its last.");
    m.def("accesses", &ostinato::passes::accesses, nb::arg("ops"), nb::arg("tasks"),
          "What every op accesses, as the fields of Accesses.");
    m.def("accesses_of_summary", &ostinato::passes::accesses_of_summary, nb::arg("ops"), nb::arg("tasks"),
          nb::arg("operands"), nb::arg("first_operand"),
          "The same, by columns of a summary that say which operands are the same.");
    m.def("boxes", &ostinato::passes::boxes_of, nb::arg("arrays"),
          "Where each array is in its allocation, as a dict of flat arrays.");
}
