// The bindings of devices: each function adds its classes to the module `_core.devices`.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <stdexcept>

#include "devices/stream.h"

namespace ostinato {

// What Python holds of a device, by value: a shared pointer that nanobind makes from a Python object would need the GIL
// wherever its last copy ends.
struct DeviceHandle {
    std::shared_ptr<Device> device;
};

// A stream, held by value for the same reason.
struct StreamOwner {
    std::shared_ptr<Stream> stream;
};

// What a device has told by a code: in Python a `_core.devices.Failure`, with `usable`.
struct DeviceFailure : std::runtime_error {
    explicit DeviceFailure(const Device::Diagnosis& diagnosis)
        : std::runtime_error(diagnosis.message), usable(diagnosis.usable) {}
    bool usable;
};

// Asks the driver what the code means: without the GIL, like all methods of devices.
inline void throw_if(const Device& device, std::int32_t code) {
    if (code != 0)
        throw DeviceFailure(device.diagnose(code));
}

void bind_device(nanobind::module_& devices);
void bind_cuda_device(nanobind::module_& devices);

}  // namespace ostinato
