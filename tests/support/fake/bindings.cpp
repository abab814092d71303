// The fake device for Python: what a driver's users would have of it, and the tests' controls.
#include "bindings/devices/bindings.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "device.h"
#include "park/threads.h"

namespace nb = nanobind;

using namespace ostinato;

namespace {

constexpr const char* kMethodNames[] = {"open",   "close",  "copy",    "fill",   "call",     "record", "wait",
                                        "notify", "finish", "capture", "launch", "allocate", "work"};

// By value in Python, like all devices.
struct FakeHandle : DeviceHandle {
    FakeDevice& fake() const { return static_cast<FakeDevice&>(*device); }
};

FakeDevice::Method method_of(const std::string& name) {
    for (std::size_t i = 0; i < FakeDevice::kMethods; ++i)
        if (name == kMethodNames[i])
            return static_cast<FakeDevice::Method>(i);
    throw nb::value_error(("a device has no method '" + name + "'").c_str());
}

// A Python function as a piece of work: where its last copy ends, nobody may hold the lock.
FakeDevice::Function work_of(const FakeHandle& self, const nb::callable& function) {
    const std::shared_ptr<PyObject> held(nb::object(function).release().ptr(), [](PyObject* object) {
        const nb::gil_scoped_acquire gil;
        Py_DECREF(object);
    });
    FakeDevice* const device = &self.fake();  // runs its work while it lives
    return [held, device]() -> std::int32_t {
        const nb::gil_scoped_acquire gil;
        std::string message;
        try {
            nb::handle(held.get())();
            return 0;
        } catch (nb::python_error& error) {
            message = nb::cast<std::string>(nb::repr(error.value()));
        }
        const nb::gil_scoped_release nogil;
        device->set_message(std::move(message));
        return FakeDevice::kRaised;
    };
}

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

nb::dict counters_of(const FakeHandle& self) {
    FakeDevice::Counters counters;
    {
        const nb::gil_scoped_release nogil;
        counters = self.fake().counters();
    }
    nb::dict result;
    for (std::size_t i = 0; i + 1 < FakeDevice::kMethods; ++i)
        result[kMethodNames[i]] = counters.calls[i];
    result["copies"] = counters.copies;
    result["to_device"] = counters.to_device;
    result["to_host"] = counters.to_host;
    result["within"] = counters.within;
    result["largest_in_flight"] = counters.largest_in_flight;
    return result;
}

// Loses all devices if the machines have not ended a second after the interpreter began to.
struct Loser {
    std::mutex mutex;
    std::condition_variable changed;
    bool ended = false;
    std::thread thread;
};
Loser* loser = nullptr;

void start_loser() {
    loser = new Loser;
    loser->thread = std::thread([] {
        std::unique_lock lock(loser->mutex);
        if (!loser->changed.wait_for(lock, std::chrono::seconds(1), [] { return loser->ended; })) {
            lock.unlock();
            FakeDevice::lose_all();
        }
    });
}

void end_loser() {
    if (loser == nullptr)
        return;
    {
        const std::lock_guard lock(loser->mutex);
        loser->ended = true;
    }
    loser->changed.notify_all();
    loser->thread.join();
}

using Log = std::vector<std::tuple<std::string, StreamHandle, std::int32_t>>;

}  // namespace

NB_MODULE(ostinato_fake_device, module) {
    nb::module_::import_("ostinato._core");  // the interface of devices
    nb::set_leak_warnings(false);
    nb::class_<FakeHandle, DeviceHandle> fake(module, "FakeDevice", "A device that is none, for tests.");
    fake.def(
        "__init__", [](FakeHandle* self, bool manual) { new (self) FakeHandle{{FakeDevice::make(manual)}}; },
        nb::arg("manual") = false, "Manual: its work is done by step, run and finish alone.");
    fake.attr("INVALID") = static_cast<int>(FakeDevice::kInvalid);
    fake.attr("OUT_OF_MEMORY") = static_cast<int>(FakeDevice::kOutOfMemory);
    fake.attr("RAISED") = static_cast<int>(FakeDevice::kRaised);
    fake.attr("FAILED") = static_cast<int>(FakeDevice::kFailed);
    fake.attr("STICKY") = static_cast<int>(FakeDevice::kSticky);
    fake.attr("LOST") = static_cast<int>(FakeDevice::kLost);

    // Its driver.
    fake.def(
            "allocate",
            [](const FakeHandle& self, std::int64_t nbytes) {
                const nb::gil_scoped_release nogil;
                std::uint64_t base = 0;
                throw_if(self.fake(), self.fake().allocate(nbytes, base));
                return base;
            },
            nb::arg("nbytes"), "Allocate memory of the device; its handle.")
        .def(
            "release", [](const FakeHandle& self, std::uint64_t base) { self.fake().release(base); }, nb::arg("base"),
            nb::call_guard<nb::gil_scoped_release>(), "Give memory back; work in flight keeps it.")
        .def(
            "address",
            [](const FakeHandle& self, std::uint64_t base) {
                return reinterpret_cast<std::uintptr_t>(self.fake().memory(base));
            },
            nb::arg("base"), nb::call_guard<nb::gil_scoped_release>(),
            "Where an allocation's bytes really are; 0: there is none.")
        .def(
            "call",
            [](const FakeHandle& self, StreamHandle stream, const nb::callable& function, double delay,
               std::string what) {
                FakeDevice::Function work = work_of(self, function);
                const nb::gil_scoped_release nogil;
                throw_if(self.fake(), self.fake().call(stream, std::move(work), nanoseconds(delay), std::move(what)));
            },
            nb::arg("stream"), nb::arg("function"), nb::arg("delay") = 0.0, nb::arg("what") = "function",
            "Enqueue a Python function, which the device calls when `delay` seconds of its time have passed.")
        .def(
            "call_native",
            [](const FakeHandle& self, StreamHandle stream, std::uintptr_t function, std::uintptr_t user, double delay,
               std::string what) {
                const nb::gil_scoped_release nogil;
                const auto native = reinterpret_cast<std::int32_t (*)(void*)>(function);
                FakeDevice::Function work = [] { return 0; };
                if (native != nullptr)
                    work = [native, user] { return native(reinterpret_cast<void*>(user)); };
                throw_if(self.fake(), self.fake().call(stream, std::move(work), nanoseconds(delay), std::move(what)));
            },
            nb::arg("stream"), nb::arg("function"), nb::arg("user") = 0, nb::arg("delay") = 0.0,
            nb::arg("what") = "function", "Enqueue a C function `int32_t f(void *)`; address 0: nothing but the delay.")
        .def_prop_ro(
            "pointer", [](const FakeHandle& self) { return reinterpret_cast<std::uintptr_t>(&self.fake()); },
            "The device, for `enqueue_address`.")
        .def_prop_ro_static(
            "enqueue_address", [](const nb::handle&) { return reinterpret_cast<std::uintptr_t>(&enqueue_on_fake); },
            "int32_t f(void *device, uint64_t stream, int32_t (*function)(void *), void *user, int64_t delay_ns)")
        .def(
            "finish", [](const FakeHandle& self) { self.fake().finish(); }, nb::call_guard<nb::gil_scoped_release>(),
            "Wait until nothing is in flight.");

    // The test's word.
    fake.def(
            "fail",
            [](const FakeHandle& self, const std::string& method, std::uint64_t nth, std::int32_t code) {
                const auto which = method_of(method);
                const nb::gil_scoped_release nogil;
                self.fake().fail_call(which, nth, code);
            },
            nb::arg("method"), nb::arg("nth") = 1, nb::arg("code") = static_cast<int>(FakeDevice::kFailed),
            "The `nth` next call of a method fails at once; 'work': of copy, fill, call or launch.")
        .def(
            "fail_piece",
            [](const FakeHandle& self, std::uint64_t nth, std::int32_t code) { self.fake().fail_piece(nth, code); },
            nb::arg("nth") = 1, nb::arg("code") = static_cast<int>(FakeDevice::kFailed),
            nb::call_guard<nb::gil_scoped_release>(), "The `nth` piece of work that ends fails then.")
        .def(
            "lose", [](const FakeHandle& self) { self.fake().lose(); }, nb::call_guard<nb::gil_scoped_release>(),
            "The device is gone: what is in flight fails, and so does all that comes.")
        .def(
            "set_manual", [](const FakeHandle& self, bool manual) { self.fake().set_manual(manual); },
            nb::arg("manual"), nb::call_guard<nb::gil_scoped_release>())
        .def(
            "set_delays",
            [](const FakeHandle& self, double copy, double fill) {
                self.fake().set_delays({nanoseconds(copy), nanoseconds(fill)});
            },
            nb::arg("copy") = 0.0, nb::arg("fill") = 0.0, nb::call_guard<nb::gil_scoped_release>(),
            "How long copies and fills take, in seconds.")
        .def(
            "set_capacity", [](const FakeHandle& self, std::int64_t bytes) { self.fake().set_capacity(bytes); },
            nb::arg("nbytes"), nb::call_guard<nb::gil_scoped_release>(), "How much memory there is.")
        .def(
            "set_captures", [](const FakeHandle& self, bool captures) { self.fake().set_captures(captures); },
            nb::arg("captures"), nb::call_guard<nb::gil_scoped_release>(), "Whether it can capture.")
        .def(
            "step", [](const FakeHandle& self, StreamHandle stream) { return self.fake().step(stream); },
            nb::arg("stream") = 0, nb::call_guard<nb::gil_scoped_release>(),
            "Do the next piece of work of a stream, or the one enqueued first; its name, or None.")
        .def(
            "run", [](const FakeHandle& self) { return self.fake().run(); }, nb::call_guard<nb::gil_scoped_release>(),
            "Do all that can be done; how many pieces.")
        .def_prop_ro("counters", counters_of, "Calls of each method, bytes moved each way, copies, most in flight.")
        .def_prop_ro(
            "log",
            [](const FakeHandle& self) {
                Log log;
                for (FakeDevice::Entry& entry : self.fake().log())
                    log.emplace_back(std::move(entry.what), entry.stream, entry.code);
                return log;
            },
            nb::call_guard<nb::gil_scoped_release>(), "(what, stream, code) of each piece that has ended, in order.")
        .def(
            "clear_log", [](const FakeHandle& self) { self.fake().clear_log(); },
            nb::call_guard<nb::gil_scoped_release>(), "Forget the log, and set the counters to zero.")
        .def_prop_ro(
            "in_flight", [](const FakeHandle& self) { return self.fake().in_flight(); },
            nb::call_guard<nb::gil_scoped_release>(), "Pieces of work enqueued and not ended.")
        .def_prop_ro(
            "streams", [](const FakeHandle& self) { return self.fake().streams(); },
            nb::call_guard<nb::gil_scoped_release>(), "Streams that are open, or have work in flight.")
        .def_prop_ro(
            "allocated", [](const FakeHandle& self) { return self.fake().allocated(); },
            nb::call_guard<nb::gil_scoped_release>(), "Bytes allocated.");

    // Called last registered first: machines end, whose programs wait for devices; a device that is held would keep
    // them for ever, so devices are lost after a while; then the devices' threads have nothing to tell any more.
    const nb::module_ atexit = nb::module_::import_("atexit");
    const nb::object end_machines = nb::module_::import_("ostinato.process").attr("_end");
    atexit.attr("unregister")(end_machines);
    atexit.attr("register")(nb::cpp_function(
        [] {
            end_loser();
            wait_for_threads();
        },
        nb::call_guard<nb::gil_scoped_release>()));
    atexit.attr("register")(end_machines);
    atexit.attr("register")(nb::cpp_function(&start_loser));
    pthread_atfork(nullptr, nullptr, forget_threads);
}
