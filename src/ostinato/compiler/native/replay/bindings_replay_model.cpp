#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "bindings/arrays.h"
#include "replay/replay_model.h"
#include "schedule/levels.h"

namespace nb = nanobind;

void bind_replay_model(nb::module_& m);

namespace ostinato::passes {

namespace {

nb::dict bind_replay(Flat<int64_t> lane_begin, Flat<int32_t> lane_ops, Flat<int32_t> affinity, Flat<uint8_t> pinned,
                     Flat<double> seconds, Flat<double> spread, Flat<uint8_t> manner, Flat<int64_t> wait_begin,
                     Flat<int32_t> wait_op, Flat<int32_t> wait_distance, Flat<double> wait_delay, int32_t until_op,
                     int32_t until_every, int32_t window_period, int32_t threads, int32_t threads_a_node,
                     double transfer, double poll, double switch_, double wake, double notify, double link_latency,
                     int32_t steps, int32_t shown, uint64_t seed) {
    const Replayed schedule{flat(lane_begin), flat(lane_ops),      flat(affinity),   flat(pinned),
                            flat(seconds),    flat(spread),        flat(manner),     flat(wait_begin),
                            flat(wait_op),    flat(wait_distance), flat(wait_delay), until_op,
                            until_every,      window_period,       threads,          threads_a_node};
    Answer answer;
    {
        const nb::gil_scoped_release others_run;
        answer = replay(schedule, {{transfer, poll, switch_, wake, notify}, link_latency, steps, shown, seed});
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

Out<int32_t> bind_levels(int32_t ops, Flat<int32_t> src, Flat<int32_t> dst, Flat<int32_t> distance) {
    return give(levels(ops, {flat(src), flat(dst), flat(distance)}));
}

}  // namespace

}  // namespace ostinato::passes

void bind_replay_model(nb::module_& m) {
    using namespace nb::literals;
    m.def("replay", &ostinato::passes::bind_replay, "lane_begin"_a, "lane_ops"_a, "affinity"_a, "pinned"_a, "seconds"_a,
          "spread"_a, "manner"_a, "wait_begin"_a, "wait_op"_a, "wait_distance"_a, "wait_delay"_a, "until_op"_a,
          "until_every"_a, "window_period"_a, "threads"_a, "threads_a_node"_a, "transfer"_a, "poll"_a, "switch"_a,
          "wake"_a, "notify"_a, "link_latency"_a, "steps"_a, "shown"_a, "seed"_a,
          "How a schedule would run on a machine, as a dict: see src/ostinato/compiler/native/replay/replay_model.h.");
    m.def("levels", &ostinato::passes::bind_levels, "ops"_a, "src"_a, "dst"_a, "distance"_a,
          "For each op, how many ops lead to it within a step, one after the other.");
}
