#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "bindings/arrays.h"
#include "dependences/dependences.h"
#include "dependences/edges.h"
#include "dependences/iteration_distances.h"
#include "schedule/order.h"
#include "schedule/placement.h"
#include "schedule/waits.h"

namespace nb = nanobind;

void bind_extent(nb::module_& m);
void bind_passes(nb::module_& m);
void bind_regions(nb::module_& m);
void bind_replay_model(nb::module_& m);

namespace ostinato::passes {

namespace {

using OutEdges = std::tuple<Out<int32_t>, Out<int32_t>, Out<int32_t>>;

// Edges come as three arrays, and go as a tuple of three.
EdgeSpan edges_of(const Flat<int32_t>& src, const Flat<int32_t>& dst, const Flat<int32_t>& distance) {
    return {flat(src), flat(dst), flat(distance)};
}

OutEdges give_edges(Edges&& e) { return {give(std::move(e.src)), give(std::move(e.dst)), give(std::move(e.distance))}; }

// A model comes as a tuple of what it says: transfer, poll, switch_, wake, notify.
using ModelTuple = std::tuple<double, double, double, double, double>;

MachineModel model_of(const ModelTuple& model) {
    const auto [transfer, poll, switch_, wake, notify] = model;
    return {transfer, poll, switch_, wake, notify};
}

OutEdges bind_inferred(int32_t ops, Flat<int32_t> op, Flat<uint8_t> mode, Flat<int32_t> group, Flat<int32_t> period,
                       Flat<int32_t> phase, Flat<int32_t> alias, Flat<int32_t> box, Flat<int64_t> lo, Flat<int64_t> hi,
                       int32_t dims, int32_t groups, Flat<int32_t> apart, Flat<int32_t> src, Flat<int32_t> dst,
                       Flat<int32_t> distance) {
    return give_edges(
        inferred(ops, {flat(op), flat(mode), flat(group), flat(period), flat(phase), flat(alias), flat(box), flat(lo),
                       flat(hi), dims, groups, flat(apart), edges_of(src, dst, distance)}));
}

OutEdges bind_sorted_unique(int32_t ops, Flat<int32_t> src, Flat<int32_t> dst, Flat<int32_t> distance) {
    return give_edges(sorted_unique(ops, edges_of(src, dst, distance)));
}

Out<int32_t> bind_find_cycle(int32_t ops, Flat<int32_t> src, Flat<int32_t> dst, Flat<int32_t> distance) {
    return give(find_cycle(ops, edges_of(src, dst, distance)));
}

std::tuple<Out<int32_t>, Out<int32_t>, Out<uint8_t>, double> bind_place(Flat<int32_t> src, Flat<int32_t> dst,
                                                                        Flat<int32_t> distance, Flat<double> seconds,
                                                                        int32_t threads, Flat<int32_t> thread_of,
                                                                        Flat<uint8_t> gil_bound, bool spread,
                                                                        bool known, bool steady, ModelTuple model) {
    Placement p = place({edges_of(src, dst, distance), flat(seconds), flat(thread_of), flat(gil_bound), model_of(model),
                         threads, spread, known, steady});
    return {give(std::move(p.lane)), give(std::move(p.affinity)), give(std::move(p.pinned)), p.step_seconds};
}

Out<int32_t> bind_order(Flat<int32_t> src, Flat<int32_t> dst, Flat<int32_t> distance, Flat<double> seconds,
                        Flat<int32_t> lane, Flat<int32_t> affinity, Flat<uint8_t> pinned, Flat<int32_t> priority,
                        Flat<uint8_t> gil_bound, ModelTuple model) {
    return give(
        order({edges_of(src, dst, distance), flat(seconds), flat(lane), flat(affinity), flat(pinned), model_of(model)},
              flat(priority), flat(gil_bound)));
}

std::tuple<Out<int64_t>, Out<int32_t>, Out<int32_t>, Out<uint8_t>> bind_waits(Flat<int32_t> src, Flat<int32_t> dst,
                                                                              Flat<int32_t> distance,
                                                                              Flat<int32_t> lane, Flat<int32_t> order) {
    Waits w = waits(edges_of(src, dst, distance), flat(lane), flat(order));
    return {give(std::move(w.start)), give(std::move(w.op)), give(std::move(w.distance)), give(std::move(w.published))};
}

std::tuple<Out<int64_t>, Out<int32_t>, Out<int32_t>> bind_iteration_distances(int32_t ops, Flat<int32_t> src,
                                                                              Flat<int32_t> dst, Flat<int32_t> distance,
                                                                              Flat<int32_t> sources) {
    IterationDistances found = iteration_distances(ops, edges_of(src, dst, distance), flat(sources));
    return {give(std::move(found.start)), give(std::move(found.op)), give(std::move(found.steps_back))};
}

Out<int32_t> bind_stuck(Flat<int32_t> src, Flat<int32_t> dst, Flat<int32_t> distance, Flat<int32_t> lane,
                        Flat<int32_t> order) {
    return give(stuck(edges_of(src, dst, distance), flat(lane), flat(order)));
}

}  // namespace

}  // namespace ostinato::passes

void bind_passes(nb::module_& module) {
    using namespace ostinato::passes;
    nb::module_ m = module.def_submodule("passes", "The loops of the compile passes.");
    bind_extent(m);
    bind_regions(m);
    bind_replay_model(m);
    m.def("inferred", &bind_inferred, nb::arg("ops"), nb::arg("op"), nb::arg("mode"), nb::arg("group"),
          nb::arg("period"), nb::arg("phase"), nb::arg("alias"), nb::arg("box"), nb::arg("lo"), nb::arg("hi"),
          nb::arg("dims"), nb::arg("groups"), nb::arg("apart"), nb::arg("src"), nb::arg("dst"), nb::arg("distance"),
          "The edges that follow from accesses.");
    m.def("sorted_unique", &bind_sorted_unique, nb::arg("ops"), nb::arg("src"), nb::arg("dst"), nb::arg("distance"),
          "The same edges sorted by (dst, distance, src), each once.");
    m.def("find_cycle", &bind_find_cycle, nb::arg("ops"), nb::arg("src"), nb::arg("dst"), nb::arg("distance"),
          "The ops of a cycle of distance 0; empty if there is none.");
    m.def("place", &bind_place, nb::arg("src"), nb::arg("dst"), nb::arg("distance"), nb::arg("seconds"),
          nb::arg("threads"), nb::arg("thread_of"), nb::arg("gil_bound"), nb::arg("spread"), nb::arg("known"),
          nb::arg("steady"), nb::arg("model"),
          "Lane of every op, affinity thread and pinnedness of every lane, estimated seconds a step.");
    m.def("order", &bind_order, nb::arg("src"), nb::arg("dst"), nb::arg("distance"), nb::arg("seconds"),
          nb::arg("lane"), nb::arg("affinity"), nb::arg("pinned"), nb::arg("priority"), nb::arg("gil_bound"),
          nb::arg("model"), "The ops in the order of one linear extension.");
    m.def("waits", &bind_waits, nb::arg("src"), nb::arg("dst"), nb::arg("distance"), nb::arg("lane"), nb::arg("order"),
          "Per op the ops of other lanes to wait for, as (start, op, distance, published).");
    m.def("iteration_distances", &bind_iteration_distances, nb::arg("ops"), nb::arg("src"), nb::arg("dst"),
          nb::arg("distance"), nb::arg("sources"),
          "Per source, the ops that depend on it, and how many steps back at least, as (start, op, steps_back).");
    m.def("stuck", &bind_stuck, nb::arg("src"), nb::arg("dst"), nb::arg("distance"), nb::arg("lane"), nb::arg("order"),
          "The ops that could never run with these lane orders; empty if a step can run.");
}
