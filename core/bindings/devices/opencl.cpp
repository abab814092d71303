#include <nanobind/stl/string.h>

#include "bindings/devices/bindings.h"
#include "devices/opencl/device.h"

namespace nb = nanobind;

namespace ostinato {

namespace {

// By value in Python, like all devices.
struct OpenCLHandle : DeviceHandle {
    OpenCLDevice& opencl() const { return static_cast<OpenCLDevice&>(*device); }
};

}  // namespace

void bind_opencl_device(nb::module_& devices) {
    nb::class_<OpenCLHandle, DeviceHandle>(devices, "OpenCLDevice", "A device of OpenCL, in a context.")
        .def(
            "__init__",
            [](OpenCLHandle* self, const std::string& library, std::uint64_t context, std::uint64_t device) {
                new (self) OpenCLHandle{{std::make_shared<OpenCLDevice>(library, context, device)}};
            },
            nb::arg("library"), nb::arg("context"), nb::arg("device"),
            "From the path of a loaded library that is linked with OpenCL's loader, and two of OpenCL's handles.")
        .def(
            "finish",
            [](const OpenCLHandle& self) {
                const nb::gil_scoped_release nogil;
                throw_if(self.opencl(), self.opencl().finish());
            },
            "Wait for all that was enqueued on its streams.");
}

}  // namespace ostinato
