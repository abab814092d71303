#include <nanobind/ndarray.h>

#include "bindings/arrays.h"
#include "bindings/bindings.h"

namespace nb = nanobind;

namespace ostinato {

namespace {

ScheduleHandle make_schedule(const Flat<std::int64_t>& lane_begin, const Flat<std::int32_t>& lane_ops,
                             const Flat<std::int32_t>& affinity, const Flat<std::uint8_t>& pinned,
                             const Flat<std::uint8_t>& kind, const Flat<std::int64_t>& wait_begin,
                             const Flat<std::int32_t>& wait_op, const Flat<std::int32_t>& wait_distance,
                             const Flat<std::uint8_t>& published, const Flat<std::int64_t>& pred_begin,
                             const Flat<std::int32_t>& pred_op, const Flat<std::int32_t>& pred_distance,
                             const Flat<std::int32_t>& periods, std::int64_t until_op, std::int64_t until_every,
                             std::uint64_t largest_distance, std::uint32_t n_posts, std::uint32_t n_holdings,
                             std::uint32_t unrolled) {
    return {build_schedule({flat(lane_begin), flat(lane_ops), flat(affinity), flat(pinned), flat(kind),
                            flat(wait_begin), flat(wait_op), flat(wait_distance), flat(published), flat(pred_begin),
                            flat(pred_op), flat(pred_distance), flat(periods), until_op, until_every, largest_distance,
                            n_posts, n_holdings, unrolled})};
}

std::uint64_t window(const ScheduleHandle& handle) { return 2 * handle.schedule->window_period; }

}  // namespace

}  // namespace ostinato

void bind_schedule(nb::module_& module) {
    using namespace nb::literals;
    using namespace ostinato;
    nb::enum_<Kind>(module, "Kind", nb::is_arithmetic(), "How lanes run an operation.")
        .value("NOTHING", Kind::kNothing)
        .value("NATIVE", Kind::kNative)
        .value("PYTHON", Kind::kPython)
        .value("UNTIL", Kind::kUntil)
        .value("EXTERNAL", Kind::kExternal, "Another thread or a device does it.")
        .value("PRECONDITION", Kind::kPrecondition, "External, in a run's first step only.")
        .value("POSTCONDITION", Kind::kPostcondition, "External, in a run's last step only.")
        .value("DEVICE", Kind::kDevice, "The lane enqueues it on its stream.");
    nb::class_<ScheduleHandle>(module, "Schedule", "Lanes, their order and their waits.")
        .def_static("build", &make_schedule, "lane_begin"_a, "lane_ops"_a, "affinity"_a, "pinned"_a, "kind"_a,
                    "wait_begin"_a, "wait_op"_a, "wait_distance"_a, "published"_a, "pred_begin"_a, "pred_op"_a,
                    "pred_distance"_a, "periods"_a, "until_op"_a, "until_every"_a, "largest_distance"_a, "n_posts"_a,
                    "n_holdings"_a, "unrolled"_a = 1)
        .def_prop_ro("window", &window, "No lane gets so many steps ahead of another.");
}
