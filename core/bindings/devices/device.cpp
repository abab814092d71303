// The protocol of devices for Python: plans of transfers, streams, and each method by itself, for the conformance
// tests.
#include "devices/device.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>

#include <atomic>
#include <optional>

#include "bindings/devices/bindings.h"

namespace nb = nanobind;

using namespace nb::literals;

namespace ostinato {

namespace {

Bytes bytes_of(const std::tuple<std::uint64_t, std::int64_t, bool>& address) {
    return {std::get<0>(address), std::get<1>(address), std::get<2>(address)};
}

std::vector<Block> blocks_of(const std::vector<std::vector<std::int64_t>>& rows) {
    std::vector<Block> blocks;
    for (const auto& row : rows) {
        if (row.size() != 9)
            throw nb::value_error(
                "a block is nine numbers: width, rows, slices, source offset, row and slice pitch, "
                "target offset, row and slice pitch");
        blocks.push_back({row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8]});
    }
    return blocks;
}

// A device event as Python holds it.
struct HeldEvent {
    std::unique_ptr<DeviceEvent> event;
};

const DeviceEvent& recorded(const HeldEvent& held) {
    if (!held.event)
        throw nb::value_error("this event stands for nothing: it was never recorded");
    return *held.event;
}

// A method of devices that returns a code.
template <class... Arguments>
auto without_gil(std::int32_t (Device::*method)(Arguments...)) {
    return [method](const DeviceHandle& self, Arguments... arguments) {
        const nb::gil_scoped_release nogil;
        throw_if(*self.device, ((*self.device).*method)(arguments...));
    };
}

// Python functions that devices are yet to call, or are calling: the interpreter must not end before. In a forked
// child, nobody will.
std::atomic<std::uint32_t> callbacks{0};
std::atomic<bool> ended{false};  // from now on the interpreter may be gone

void call_done(void* with, std::int32_t code) {
    if (!ended.load(std::memory_order_acquire)) {
        const nb::gil_scoped_acquire gil;
        const auto function = nb::steal<nb::object>(static_cast<PyObject*>(with));
        try {
            function(code);
        } catch (nb::python_error& error) {
            error.discard_as_unraisable("a function called when a device is done");
        }
    }
    callbacks.fetch_sub(1, std::memory_order_release);
    callbacks.notify_all();
}

void end_callbacks_of_devices() {
    while (const std::uint32_t left = callbacks.load(std::memory_order_acquire))
        callbacks.wait(left, std::memory_order_acquire);
    ended.store(true, std::memory_order_release);
}

}  // namespace

void bind_device(nb::module_& devices) {
    pthread_atfork(nullptr, nullptr, [] { callbacks.store(0, std::memory_order_relaxed); });
    devices.def("end", end_callbacks_of_devices, nb::call_guard<nb::gil_scoped_release>(),
                "Before the interpreter ends: waits until devices have called all functions that they were given.");
    using Address = std::tuple<std::uint64_t, std::int64_t, bool>;
    using Rows = std::vector<std::vector<std::int64_t>>;
    nb::class_<Transfer>(devices, "Transfer", "A copy, planned once: addresses (base, offset, on_device) and blocks.")
        .def(
            "__init__",
            [](Transfer* self, const Address& source, const Address& target, const Rows& blocks) {
                new (self) Transfer{bytes_of(source), bytes_of(target), blocks_of(blocks), 0};
                for (const Block& block : self->blocks)
                    self->bytes += block.width * block.rows * block.slices;
            },
            "source"_a, "target"_a, "blocks"_a)
        .def_ro("bytes", &Transfer::bytes, "The bytes that move.");
    nb::class_<Pattern>(devices, "Pattern", "A fill, planned once.")
        .def(
            "__init__",
            [](Pattern* self, const Address& target, const Rows& blocks, nb::bytes pattern) {
                const auto* begin = static_cast<const std::uint8_t*>(pattern.data());
                new (self) Pattern{bytes_of(target), blocks_of(blocks), {begin, begin + pattern.size()}};
            },
            "target"_a, "blocks"_a, "pattern"_a);
    nb::class_<HeldEvent>(devices, "DeviceEvent", "What was enqueued on a stream when it was recorded.")
        .def(nb::init<>());
    nb::class_<Sequence>(devices, "Sequence", "Work that was captured once, and is enqueued as one.");
    nb::class_<DeviceHandle>(devices, "Device", "What the core asks of a device. Methods raise Failure.")
        .def(
            "open",
            [](const DeviceHandle& self) {
                StreamHandle stream = 0;
                nb::gil_scoped_release nogil;
                const std::int32_t code = self.device->open(stream);
                throw_if(*self.device, code);
                return stream;
            },
            "Open a stream.")
        .def(
            "close", [](const DeviceHandle& self, StreamHandle stream) { self.device->close(stream); }, "stream"_a,
            nb::call_guard<nb::gil_scoped_release>(), "Close a stream.")
        .def("copy", without_gil(&Device::copy), "stream"_a, "transfer"_a)
        .def("fill", without_gil(&Device::fill), "stream"_a, "pattern"_a)
        .def(
            "record",
            [](const DeviceHandle& self, StreamHandle stream, HeldEvent& event) {
                nb::gil_scoped_release nogil;
                throw_if(*self.device, self.device->record(stream, event.event));
            },
            "stream"_a, "event"_a)
        .def(
            "wait",
            [](const DeviceHandle& self, StreamHandle stream, const HeldEvent& event) {
                const DeviceEvent& known = recorded(event);
                nb::gil_scoped_release nogil;
                throw_if(*self.device, self.device->wait(stream, known));
            },
            "stream"_a, "event"_a)
        .def("finish_stream", without_gil(&Device::finish), "stream"_a, "Wait for all that was enqueued on a stream.")
        .def(
            "notify",
            [](const DeviceHandle& self, const HeldEvent& event, nb::callable done) {
                const DeviceEvent& known = recorded(event);
                PyObject* const with = nb::object(done).release().ptr();
                callbacks.fetch_add(1, std::memory_order_relaxed);
                nb::gil_scoped_release nogil;
                self.device->notify(known, call_done, with);
            },
            "event"_a, "done"_a, "Call done(code) when the event's work has ended.")
        .def(
            "capture",
            [](const DeviceHandle& self, StreamHandle stream, nb::callable enqueue,
               const std::vector<std::vector<std::uint32_t>>& after) -> std::unique_ptr<Sequence> {
                for (std::uint32_t part = 0; part < after.size(); ++part)
                    for (const std::uint32_t before : after[part])
                        if (before >= part)
                            throw nb::value_error("a part comes after earlier ones");
                std::optional<nb::python_error> raised;
                const auto enqueue_part = [&](std::uint32_t part, StreamHandle recording) -> std::int32_t {
                    const nb::gil_scoped_acquire gil;
                    try {
                        after.empty() ? enqueue(recording) : enqueue(recording, part);
                        return 0;
                    } catch (nb::python_error& error) {
                        raised.emplace(std::move(error));
                        return -1;
                    }
                };
                std::int32_t code = 0;
                std::unique_ptr<Sequence> sequence;
                {
                    nb::gil_scoped_release nogil;
                    sequence = self.device->capture(
                        stream, {after.empty() ? std::vector<std::vector<std::uint32_t>>(1) : after, enqueue_part},
                        code);
                }
                if (raised)
                    throw nb::python_error(std::move(*raised));
                throw_if(*self.device, code);
                return sequence;
            },
            "stream"_a, "enqueue"_a, "after"_a = std::vector<std::vector<std::uint32_t>>(),
            "Capture what enqueue(recording) enqueues; None: cannot. With `after`, in parts, by enqueue(recording, "
            "part): which earlier parts each comes after.")
        .def(
            "launch",
            [](const DeviceHandle& self, StreamHandle stream, Sequence& sequence) {
                nb::gil_scoped_release nogil;
                throw_if(*self.device, sequence.launch(stream));
            },
            "stream"_a, "sequence"_a)
        .def(
            "diagnose",
            [](const DeviceHandle& self, std::int32_t code) {
                const Device::Diagnosis diagnosis = self.device->diagnose(code);
                return std::make_tuple(diagnosis.message, diagnosis.usable);
            },
            "code"_a, "What a code means, and whether the device can be used afterwards.");
}

}  // namespace ostinato
