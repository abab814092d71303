#include "devices/cpu.h"

#include "bindings/devices/bindings.h"

namespace nb = nanobind;

namespace ostinato {

namespace {

struct CpuHandle : DeviceHandle {};

}  // namespace

void bind_cpu_device(nb::module_& devices) {
    nb::class_<CpuHandle, DeviceHandle>(devices, "CpuDevice", "The CPU behind the protocol of devices.")
        .def("__init__", [](CpuHandle* self) { new (self) CpuHandle{{std::make_shared<CpuDevice>()}}; });
}

}  // namespace ostinato
