#include "bindings/devices/stream.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "bindings/devices/bindings.h"

namespace nb = nanobind;

namespace ostinato {

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
            nb::arg("device"), nb::arg("name"), nb::arg("processor"))
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

}  // namespace ostinato
