// The bindings of devices, one function a kind; each adds its classes to the module `_core.devices`.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "devices/device.h"

namespace ostinato {

// What Python holds of a device, by value: a shared pointer that nanobind makes from a Python object would need the GIL
// wherever its last copy ends.
struct DeviceHandle {
    std::shared_ptr<Device> device;
};

void bind_device(nanobind::module_& devices);  // the protocol, before all others
void bind_stream(nanobind::module_& devices);
void bind_cpu_device(nanobind::module_& devices);
void bind_fake_device(nanobind::module_& devices);
void bind_opencl_device(nanobind::module_& devices);
void bind_cuda_device(nanobind::module_& devices);

}  // namespace ostinato
