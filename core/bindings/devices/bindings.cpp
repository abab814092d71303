#include "bindings/devices/bindings.h"

#include "bindings/bindings.h"

void bind_devices(nanobind::module_& module) {
    nanobind::module_ devices = module.def_submodule("devices", "What the core asks of devices.");
    ostinato::bind_failure(devices);
    ostinato::bind_device(devices);
    ostinato::bind_stream(devices);
    ostinato::bind_opencl_device(devices);
    ostinato::bind_cuda_device(devices);
}
