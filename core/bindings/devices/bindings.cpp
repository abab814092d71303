// Failures, streams, and the devices that need no more than the protocol; the submodule of them all.
#include "bindings/devices/bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <exception>
#include <tuple>

#include "bindings/bindings.h"
#include "devices/opencl/device.h"

namespace nb = nanobind;

using namespace nb::literals;

namespace ostinato {

namespace {

void raise_failure(const std::exception_ptr& thrown, void* type) {
    try {
        std::rethrow_exception(thrown);
    } catch (const DeviceFailure& failure) {
        PyObject* const error = PyObject_CallFunction(static_cast<PyObject*>(type), "s", failure.what());
        if (error == nullptr)
            return;
        if (PyObject_SetAttrString(error, "usable", failure.usable ? Py_True : Py_False) == 0)
            PyErr_SetObject(static_cast<PyObject*>(type), error);
        Py_DECREF(error);
    }
}

void bind_failure(nb::module_& devices) {
    nb::dict attributes;
    attributes["usable"] = true;
    const nb::object type = nb::steal(PyErr_NewExceptionWithDoc(
        "ostinato._core.devices.Failure",
        "What a device has told, in its driver's words; `usable`: whether it can be used afterwards.",
        PyExc_RuntimeError, attributes.ptr()));
    devices.attr("Failure") = type;
    nb::register_exception_translator(raise_failure, type.ptr());
}

void bind_stream(nb::module_& devices) {
    nb::class_<StreamOwner>(devices, "Stream",
                            "A stream, open while something refers to it. `name` says whose it is; `processor` is the "
                            "device's number in records, after those of the slots.")
        .def(
            "__init__",
            [](StreamOwner* self, const DeviceHandle& device, std::string name, std::uint32_t processor) {
                std::shared_ptr<Stream> stream;
                {
                    const nb::gil_scoped_release unlocked;
                    StreamHandle handle = 0;
                    throw_if(*device.device, device.device->open(handle));
                    stream = std::make_shared<Stream>(device.device, handle, std::move(name), processor);
                }
                new (self) StreamOwner{std::move(stream)};
            },
            "device"_a, "name"_a, "processor"_a)
        .def_prop_ro(
            "counts",
            [](const StreamOwner& self) {
                const auto read = [](const Stream::Count& count) {
                    return count.value.load(std::memory_order_relaxed);
                };
                const Stream& stream = *self.stream;
                return std::make_tuple(read(stream.calls), read(stream.copies), read(stream.bytes),
                                       read(stream.launches));
            },
            "What was enqueued: tasks and fills, copies, and the bytes of these; how often several as one.")
        .def_prop_ro("handle", [](const StreamOwner& self) { return self.stream->handle; }, "The driver's handle.");
}

struct OpenCLHandle : DeviceHandle {
    OpenCLDevice& opencl() const { return static_cast<OpenCLDevice&>(*device); }
};

void bind_opencl_device(nb::module_& devices) {
    nb::class_<OpenCLHandle, DeviceHandle>(devices, "OpenCLDevice", "A device of OpenCL, in a context.")
        .def(
            "__init__",
            [](OpenCLHandle* self, const std::string& library, std::uint64_t context, std::uint64_t device) {
                new (self) OpenCLHandle{{std::make_shared<OpenCLDevice>(library, context, device)}};
            },
            "library"_a, "context"_a, "device"_a,
            "From the path of a loaded library that is linked with OpenCL's loader, and two of OpenCL's handles.")
        .def(
            "finish",
            [](const OpenCLHandle& self) {
                const nb::gil_scoped_release nogil;
                throw_if(self.opencl(), self.opencl().finish());
            },
            "Wait for all that was enqueued on its streams.");
}

}  // namespace

}  // namespace ostinato

void bind_devices(nb::module_& module) {
    nb::module_ devices = module.def_submodule("devices", "What the core asks of devices.");
    ostinato::bind_failure(devices);
    ostinato::bind_device(devices);  // before those that extend its class
    ostinato::bind_stream(devices);
    ostinato::bind_opencl_device(devices);
    ostinato::bind_cuda_device(devices);
}
