// Reads the operands of a graph's ops out of their Python objects.
#include <nanobind/nanobind.h>

#include <stdexcept>
#include <string>
#include <unordered_map>

#include "passes/bindings_arrays.h"
#include "passes/regions.h"

namespace nb = nanobind;

void bind_regions(nb::module_& m);

namespace ostinato::passes {

namespace {

Layout read_layout(nb::handle array) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_STRIDES) != 0)
        throw nb::python_error();
    static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));
    const auto n = static_cast<std::size_t>(buffer.ndim);
    Layout out = layout_of(reinterpret_cast<uintptr_t>(buffer.buf), buffer.itemsize,
                           {reinterpret_cast<const int64_t*>(buffer.shape), n},
                           {reinterpret_cast<const int64_t*>(buffer.strides), n});
    PyBuffer_Release(&buffer);
    return out;
}

class Reader {
public:
    explicit Reader(nb::handle ndarray) : ndarray_(ndarray) {}

    Operands read(nb::handle ops) {
        for (nb::handle op : ops) {
            bool any = false;
            for (nb::handle operand : nb::object(op.attr(operands_name_))) {
                add(operand);
                any = true;
            }
            // Tasks without an operand keep program order among themselves: they share a token of their own.
            if (!any)
                out_.accesses.push_back({out_.ops, token(nullptr), 3, Operands::Kind::kToken});
            ++out_.ops;
        }
        return std::move(out_);
    }

private:
    void add(nb::handle operand) {
        const auto [where, fresh] = operands_.try_emplace(operand.ptr());
        if (fresh)
            where->second = look_at(operand);
        where->second.op = out_.ops;
        out_.accesses.push_back(where->second);
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

    int32_t token(PyObject* identity) {
        const auto [where, fresh] = tokens_.try_emplace(identity, out_.tokens);
        if (fresh)
            ++out_.tokens;
        return where->second;
    }

    int32_t view(nb::handle array) {
        const auto [where, fresh] = views_.try_emplace(array.ptr(), static_cast<int32_t>(out_.views.size()));
        if (fresh)
            out_.views.push_back({read_layout(array), root(array)});
        return where->second;
    }

    int32_t root(nb::handle array) {
        nb::object at = nb::borrow(array);
        for (nb::object base = at.attr(base_); nb::isinstance(base, ndarray_); base = at.attr(base_))
            at = base;
        const auto [where, fresh] = roots_.try_emplace(at.ptr(), static_cast<int32_t>(out_.roots.size()));
        if (fresh)
            out_.roots.push_back(read_layout(at));
        return where->second;
    }

    int32_t element(nb::handle element) {
        const auto [where, fresh] = elements_.try_emplace(element.ptr(), static_cast<int32_t>(out_.elements.size()));
        if (!fresh)
            return where->second;
        Operands::Element e{ring(nb::object(element.attr("ring"))), nb::cast<int32_t>(element.attr("offset")), {}};
        for (nb::handle v : nb::object(element.attr("views")))
            e.views.push_back(view(v));
        out_.elements.push_back(std::move(e));
        return static_cast<int32_t>(out_.elements.size()) - 1;
    }

    int32_t ring(nb::handle ring) {
        const auto [where, fresh] = rings_.try_emplace(ring.ptr(), static_cast<int32_t>(out_.rings.size()));
        if (!fresh)
            return where->second;
        Operands::Ring r{{}, nb::cast<bool>(ring.attr("disjoint"))};
        for (nb::handle a : nb::object(ring.attr("arrays")))
            r.arrays.push_back(view(a));
        out_.rings.push_back(std::move(r));
        return static_cast<int32_t>(out_.rings.size()) - 1;
    }

    nb::handle ndarray_;
    nb::str mode_ = nb::str("mode"), array_ = nb::str("array"), ring_ = nb::str("ring"), value_ = nb::str("value"),
            base_ = nb::str("base"), operands_name_ = nb::str("operands");
    Operands out_;
    // The graph keeps all these objects alive meanwhile, so an address is an identity.
    std::unordered_map<PyObject*, Operands::Access> operands_;
    std::unordered_map<PyObject*, int32_t> tokens_, views_, roots_, elements_, rings_;
};

nb::dict accesses(nb::handle ops, nb::handle ndarray) {
    const Operands operands = Reader(ndarray).read(ops);
    Regions r = regions(operands);
    nb::dict out;
    out["op"] = give(std::move(r.op));
    out["mode"] = give(std::move(r.mode));
    out["group"] = give(std::move(r.group));
    out["period"] = give(std::move(r.period));
    out["phase"] = give(std::move(r.phase));
    out["shadow"] = give(std::move(r.shadow));
    out["box"] = give(std::move(r.box));
    out["lo"] = give(std::move(r.lo), static_cast<std::size_t>(r.dims));
    out["hi"] = give(std::move(r.hi), static_cast<std::size_t>(r.dims));
    out["groups"] = r.groups;
    return out;
}

// Bytes of all the arrays that each op accesses.
nb::object touched_bytes(nb::handle ops) {
    std::unordered_map<PyObject*, int64_t> known;
    std::vector<int64_t> out;
    const nb::str operands("operands"), arrays("arrays"), nbytes("nbytes");
    for (nb::handle op : ops) {
        int64_t sum = 0;
        for (nb::handle operand : nb::object(op.attr(operands))) {
            const auto [where, fresh] = known.try_emplace(operand.ptr(), 0);
            if (fresh)
                for (nb::handle array : nb::object(operand.attr(arrays))) {
                    where->second = nb::cast<int64_t>(array.attr(nbytes));
                    break;  // those of a ring take turns
                }
            sum += where->second;
        }
        out.push_back(sum);
    }
    return give(std::move(out));
}

}  // namespace

}  // namespace ostinato::passes

void bind_regions(nb::module_& m) {
    m.def("accesses", &ostinato::passes::accesses, nb::arg("ops"), nb::arg("ndarray"),
          "What every op accesses, as a dict of flat arrays.");
    m.def("touched_bytes", &ostinato::passes::touched_bytes, nb::arg("ops"),
          "How many bytes the arrays of every op have.");
}
