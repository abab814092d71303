#include <nanobind/stl/string.h>

#include "devices/bindings.h"
#include "devices/opencl.h"

namespace nb = nanobind;

namespace ostinato {

void bind_opencl_device(nb::module_& devices) {
    devices.def(
        "opencl",
        [](const std::string& library, std::uint64_t context, std::uint64_t device) {
            return DeviceHandle{std::make_shared<OpenCLDevice>(library, context, device)};
        },
        nb::arg("library"), nb::arg("context"), nb::arg("device"),
        "A device of OpenCL: its context and device as numbers, and the path of a loaded library linked with OpenCL.");
}

}  // namespace ostinato
