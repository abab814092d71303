#include "bindings/bindings.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "bindings/arrays.h"
#include "dependences/dependences.h"
#include "replay/machine_costs.h"
#include "replay/replay_model.h"
#include "schedule/schedule.h"

namespace nb = nanobind;

void bind_nodes(nb::module_& m);
void bind_regions(nb::module_& m);

namespace ostinato::passes {

namespace {

using Ints = Flat<int32_t>;
using Longs = Flat<int64_t>;
using Bytes = Flat<uint8_t>;
using Doubles = Flat<double>;
using Rows = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// In the order of `ostinato.compiler.ir.Edges` and of `ostinato.compiler.dependences.Accesses`.
using EdgeTuple = std::tuple<Ints, Ints, Ints>;
using AccessTuple = std::tuple<Ints, Bytes, Ints, Ints, Ints, Ints, Ints, Rows, Rows, int32_t>;
// transfer, poll, switch_, wake, notify
using ModelTuple = std::tuple<double, double, double, double, double>;

// In the order of `ostinato.compiler.schedule.caches.Footprints`.
using FootprintTuple = std::tuple<Longs, Ints, Longs, int32_t>;

Footprints footprints_of(const FootprintTuple& footprints) {
    const auto& [start, cell, bytes, cells] = footprints;
    return {flat(start), flat(cell), flat(bytes), cells};
}

EdgeSpan edges_of(const EdgeTuple& edges) {
    const auto& [src, dst, distance] = edges;
    return {flat(src), flat(dst), flat(distance)};
}

template <class... T>
std::tuple<Out<T>...> give_all(std::vector<T>&&... vectors) {
    return {give(std::move(vectors))...};
}

auto give_edges(Edges&& e) { return give_all(std::move(e.src), std::move(e.dst), std::move(e.distance)); }

auto bind_inferred(int32_t ops, const AccessTuple& accesses, const Ints& apart, const EdgeTuple& given) {
    const auto& [op, mode, group, period, phase, alias, box, lo, hi, groups] = accesses;
    return give_edges(inferred(ops, {flat(op),
                                     flat(mode),
                                     flat(group),
                                     flat(period),
                                     flat(phase),
                                     flat(alias),
                                     flat(box),
                                     {lo.data(), lo.size()},
                                     {hi.data(), hi.size()},
                                     static_cast<int32_t>(lo.shape(1)),
                                     groups,
                                     flat(apart),
                                     edges_of(given)}));
}

nb::dict bind_replay(const Longs& lane_begin, const Ints& lane_ops, const Ints& affinity, const Bytes& pinned,
                     const Doubles& seconds, const Doubles& spread, const Bytes& manner, const Longs& wait_begin,
                     const Ints& wait_op, const Ints& wait_distance, const Doubles& wait_delay, int32_t until_op,
                     int32_t until_every, int32_t window_period, int32_t threads, int32_t threads_a_node,
                     const ModelTuple& model, double link_latency, int32_t steps, int32_t shown, uint64_t seed) {
    const Replayed schedule{flat(lane_begin), flat(lane_ops),      flat(affinity),   flat(pinned),
                            flat(seconds),    flat(spread),        flat(manner),     flat(wait_begin),
                            flat(wait_op),    flat(wait_distance), flat(wait_delay), until_op,
                            until_every,      window_period,       threads,          threads_a_node};
    Answer answer;
    {
        const nb::gil_scoped_release others_run;
        answer = replay(schedule, {std::make_from_tuple<MachineModel>(model), link_latency, steps, shown, seed});
    }
    const std::size_t ops = schedule.seconds.size();
    nb::dict out;
    out["step_seconds"] = answer.step_seconds;
    out["span"] = answer.span;
    out["lane_busy"] = give(std::move(answer.lane_busy));
    out["lane_queued"] = give(std::move(answer.lane_queued));
    out["thread_busy"] = give(std::move(answer.thread_busy));
    out["start"] = give_rows(std::move(answer.start), ops);
    out["end"] = give_rows(std::move(answer.end), ops);
    out["thread"] = give_rows(std::move(answer.thread), ops);
    out["chain"] = give(std::move(answer.chain));
    return out;
}

}  // namespace

}  // namespace ostinato::passes

void bind_passes(nb::module_& module) {
    using namespace ostinato::passes;
    using namespace nb::literals;
    using ostinato::flat, ostinato::give;
    nb::module_ m = module.def_submodule("passes", "The loops of the compile passes.");
    bind_regions(m);
    bind_nodes(m);
    m.def("inferred", &bind_inferred, "ops"_a, "accesses"_a, "apart"_a, "given"_a,
          "The edges that follow from accesses.");
    m.def(
        "sorted_unique", [](int32_t ops, EdgeTuple edges) { return give_edges(sorted_unique(ops, edges_of(edges))); },
        "ops"_a, "edges"_a, "The same edges sorted by (dst, distance, src), each once.");
    m.def(
        "find_cycle", [](int32_t ops, EdgeTuple edges) { return give(find_cycle(ops, edges_of(edges))); }, "ops"_a,
        "edges"_a, "The ops of a cycle of distance 0; empty if there is none.");
    m.def(
        "levels",
        [](int32_t ops, EdgeTuple edges) {
            const EdgeSpan all = edges_of(edges);
            return give(levels(predecessors(ops, all), topological(ops, all)));
        },
        "ops"_a, "edges"_a, "For each op, how many ops lead to it within a step, one after the other.");
    m.def(
        "iteration_distances",
        [](int32_t ops, EdgeTuple edges, Ints sources) {
            IterationDistances found = iteration_distances(ops, edges_of(edges), flat(sources));
            return give_all(std::move(found.start), std::move(found.op), std::move(found.steps_back));
        },
        "ops"_a, "edges"_a, "sources"_a,
        "Per source, the ops that depend on it, and how many steps back at least, as (start, op, steps_back).");
    m.def(
        "place",
        [](EdgeTuple edges, Doubles seconds, Doubles shared, int32_t threads, Ints thread_of, Bytes gil_bound,
           bool spread, bool known, bool steady, ModelTuple model) {
            Placement p = place({edges_of(edges), flat(seconds), flat(shared), flat(thread_of), flat(gil_bound),
                                 std::make_from_tuple<MachineModel>(model), threads, spread, known, steady});
            return std::tuple_cat(give_all(std::move(p.lane), std::move(p.affinity), std::move(p.pinned)),
                                  std::tuple(p.step_seconds));
        },
        "edges"_a, "seconds"_a, "shared"_a, "threads"_a, "thread_of"_a, "gil_bound"_a, "spread"_a, "known"_a,
        "steady"_a, "model"_a,
        "Lane of every op, affinity thread and pinnedness of every lane, estimated seconds a step.");
    m.def(
        "order",
        [](EdgeTuple edges, Doubles seconds, Ints lane, Ints affinity, Bytes pinned, Ints priority, Bytes gil_bound,
           ModelTuple model) {
            return give(order({edges_of(edges),
                               flat(seconds),
                               {flat(lane), flat(affinity), flat(pinned)},
                               std::make_from_tuple<MachineModel>(model)},
                              flat(priority), flat(gil_bound)));
        },
        "edges"_a, "seconds"_a, "lane"_a, "affinity"_a, "pinned"_a, "priority"_a, "gil_bound"_a, "model"_a,
        "The ops in the order of one linear extension.");
    m.def(
        "order_for_caches",
        [](EdgeTuple edges, Doubles seconds, Ints lane, Ints affinity, Bytes pinned, ModelTuple model,
           FootprintTuple footprints, int64_t capacity) {
            return give(order_for_caches({edges_of(edges),
                                          flat(seconds),
                                          {flat(lane), flat(affinity), flat(pinned)},
                                          std::make_from_tuple<MachineModel>(model)},
                                         footprints_of(footprints), capacity));
        },
        "edges"_a, "seconds"_a, "lane"_a, "affinity"_a, "pinned"_a, "model"_a, "footprints"_a, "capacity"_a,
        "The ops in a linear extension in which lanes prefer data that are in their caches.");
    m.def(
        "fetched_bytes",
        [](Ints lane, Ints order, FootprintTuple footprints, int64_t capacity) {
            return fetched_bytes(flat(lane), flat(order), footprints_of(footprints), capacity);
        },
        "lane"_a, "order"_a, "footprints"_a, "capacity"_a, "How many bytes the caches of lanes fetch in a step.");
    m.def(
        "waits",
        [](EdgeTuple edges, Ints lane, Ints order) {
            Waits w = waits(edges_of(edges), flat(lane), flat(order));
            return give_all(std::move(w.start), std::move(w.op), std::move(w.distance), std::move(w.published));
        },
        "edges"_a, "lane"_a, "order"_a,
        "Per op the ops of other lanes to wait for, as (start, op, distance, published).");
    m.def(
        "stuck",
        [](EdgeTuple edges, Ints lane, Ints order) { return give(stuck(edges_of(edges), flat(lane), flat(order))); },
        "edges"_a, "lane"_a, "order"_a,
        "The ops that could never run with these lane orders; empty if a step can run.");
    m.def("replay", &bind_replay, "lane_begin"_a, "lane_ops"_a, "affinity"_a, "pinned"_a, "seconds"_a, "spread"_a,
          "manner"_a, "wait_begin"_a, "wait_op"_a, "wait_distance"_a, "wait_delay"_a, "until_op"_a, "until_every"_a,
          "window_period"_a, "threads"_a, "threads_a_node"_a, "model"_a, "link_latency"_a, "steps"_a, "shown"_a,
          "seed"_a,
          "How a schedule would run on a machine, as a dict: see src/ostinato/compiler/native/replay/replay_model.h.");
}

void bind_machine_costs(nb::module_& m) {
    using namespace nb::literals;
    m.def(
        "measure_machine",
        [](const ostinato::MachineHandle& handle, int first_core, int second_core) {
            const nb::gil_scoped_release released;
            const ostinato::MachineCosts c = ostinato::measure_machine(*handle.machine, first_core, second_core);
            return std::tuple(c.transfer, c.poll, c.switch_, c.wake, c.notify);
        },
        "machine"_a, "first_core"_a, "second_core"_a,
        "Seconds of a transfer, a look, taking up a lane, a wake and a ring; less than 0 where it could not be "
        "measured.");
    m.def(
        "nothing_address", [] { return reinterpret_cast<std::uintptr_t>(&ostinato::nothing); },
        "Address of a native task that does nothing.");
}
