#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <tuple>

#include "bindings/bindings.h"
#include "bindings/machine.h"
#include "ostinato.h"
#include "replay/machine_costs.h"

namespace nb = nanobind;

namespace ostinato {

namespace {

std::tuple<double, double, double, double, double> bind_measure(const MachineHandle& handle, int first_core,
                                                                int second_core) {
    const nb::gil_scoped_release released;
    const MachineCosts costs = measure_machine(*handle.machine, first_core, second_core);
    return {costs.transfer, costs.poll, costs.switch_, costs.wake, costs.notify};
}

std::int32_t nothing(const ost_call*) { return 0; }

}  // namespace

}  // namespace ostinato

void bind_machine_costs(nb::module_& m) {
    m.def("measure_machine", &ostinato::bind_measure, nb::arg("machine"), nb::arg("first_core"), nb::arg("second_core"),
          "Seconds of a transfer, a look, taking up a lane, a wake and a ring; less than 0 where it could not be "
          "measured.");
    m.def(
        "nothing_address", [] { return reinterpret_cast<std::uintptr_t>(&ostinato::nothing); },
        "Address of a native task that does nothing.");
}
