// CUDA devices for Python: memory, page-locking, and arrays by DLPack.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "bindings/devices/bindings.h"
#include "devices/cuda/device.h"

namespace nb = nanobind;

using namespace nb::literals;

namespace ostinato {

namespace {

using cuda::kSuccess;

struct CudaHandle : DeviceHandle {
    CudaDevice& cuda() const { return static_cast<CudaDevice&>(*device); }
};

std::shared_ptr<CudaDevice> shared(const CudaHandle& handle) {
    return std::static_pointer_cast<CudaDevice>(handle.device);
}

// Freeing waits for the device: without the GIL.
struct Memory {
    Memory(std::shared_ptr<CudaDevice> of, std::uint64_t bytes) : device(std::move(of)) {
        const nb::gil_scoped_release nogil;
        throw_if(*device, device->allocate(bytes, address));
    }
    ~Memory() {
        const nb::gil_scoped_release nogil;
        device->free(address);
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    const std::shared_ptr<CudaDevice> device;
    std::uint64_t address = 0;
};

struct Pinned {
    Pinned(std::shared_ptr<CudaDevice> of, std::uint64_t from) : device(std::move(of)), low(from) {}
    ~Pinned() {
        const nb::gil_scoped_release nogil;
        device->unpin(low);
    }
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;

    const std::shared_ptr<CudaDevice> device;
    const std::uint64_t low;
};

std::unique_ptr<Pinned> pin(const CudaHandle& self, std::uint64_t low, std::uint64_t high) {
    const nb::gil_scoped_release nogil;
    if (self.cuda().pin(low, high) != kSuccess)
        return nullptr;
    return std::make_unique<Pinned>(shared(self), low);
}

std::tuple<int, std::uint64_t, std::uint64_t> locate(const CudaHandle& self, std::uint64_t address) {
    int ordinal = 0;
    std::uint64_t low = 0, bytes = 0;
    const nb::gil_scoped_release nogil;
    throw_if(self.cuda(), self.cuda().locate(address, ordinal, low, bytes));
    return {ordinal, low, bytes};
}

// What others take by DLPack. `strides` in elements, as DLPack counts them.
nb::object dlpack(std::uint64_t address, const std::vector<std::size_t>& shape,
                  const std::vector<std::int64_t>& strides, int code, int bits, int ordinal, nb::object owner) {
    const nb::dlpack::dtype type{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1};
    return nb::cast(nb::ndarray<nb::array_api>(reinterpret_cast<void*>(address), shape.size(), shape.data(), owner,
                                               strides.data(), type, nb::device::cuda::value, ordinal));
}

// Address, shape, strides (in elements), type code, bits, lanes, number of the device, whether it is read-only.
using Described =
    std::tuple<std::uint64_t, std::vector<std::size_t>, std::vector<std::int64_t>, int, int, int, int, bool>;

// As DLPack 1.0 lays a capsule out: version (two of 32 bits), context, deleter, flags.
bool is_read_only(nb::handle capsule) {
    constexpr std::size_t kFlags = 24;
    constexpr std::uint64_t kReadOnly = 1;
    if (!PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned"))
        return false;
    const auto* const tensor = static_cast<const char*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    std::uint64_t flags = 0;
    std::memcpy(&flags, tensor + kFlags, sizeof flags);
    return (flags & kReadOnly) != 0;
}

Described described(nb::capsule capsule) {
    const bool read_only = is_read_only(capsule);
    const auto array = nb::cast<nb::ndarray<nb::ro>>(capsule);
    std::vector<std::size_t> shape;
    std::vector<std::int64_t> strides;
    for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
        shape.push_back(array.shape(axis));
        strides.push_back(array.stride(axis));
    }
    const nb::dlpack::dtype type = array.dtype();
    return {reinterpret_cast<std::uint64_t>(array.data()),
            shape,
            strides,
            type.code,
            type.bits,
            type.lanes,
            array.device_id(),
            read_only};
}

}  // namespace

void bind_cuda_device(nb::module_& devices) {
    nb::class_<Memory>(devices, "CudaMemory", "Memory of a CUDA device; freed when nothing refers to it.")
        .def_ro("address", &Memory::address, "Where it is: a CUdeviceptr.");
    nb::class_<Pinned>(devices, "CudaPinned", "Page-locked host memory, while it lives.");
    nb::class_<CudaHandle, DeviceHandle>(devices, "CudaDevice", "A CUDA device, by its primary context.")
        .def_prop_ro(
            "ordinal", [](const CudaHandle& self) { return self.cuda().ordinal(); }, "CUDA's number of it.")
        .def_prop_ro(
            "model", [](const CudaHandle& self) { return self.cuda().name(); }, "What it is.")
        .def_prop_ro(
            "identity", [](const CudaHandle& self) { return self.cuda().identity(); },
            "Its UUID, as nvidia-smi -L lists it; empty where the driver tells none.")
        .def_prop_ro(
            "driver", [](const CudaHandle& self) { return self.cuda().driver_version(); },
            "The version of CUDA that the driver is for: 12040 is 12.4.")
        .def(
            "allocate",
            [](const CudaHandle& self, std::uint64_t bytes) { return std::make_unique<Memory>(shared(self), bytes); },
            "bytes"_a, "Allocate memory.")
        .def(
            "memory",
            [](const CudaHandle& self) {
                std::uint64_t free = 0, total = 0;
                const nb::gil_scoped_release nogil;
                throw_if(self.cuda(), self.cuda().free_memory(free, total));
                return std::make_tuple(free, total);
            },
            "The free and all bytes of its memory.")
        .def("pin", &pin, "low"_a, "high"_a, nb::sig("def pin(self, low: int, high: int) -> CudaPinned | None"),
             "Page-lock host memory from one address to before another; None: cannot be.")
        .def("locate", &locate, "address"_a,
             "The number of the device that an address is of, and the begin and the size of the allocation around it.")
        .def(
            "finish",
            [](const CudaHandle& self) {
                const nb::gil_scoped_release nogil;
                throw_if(self.cuda(), self.cuda().finish());
            },
            "Wait for all of its work.");
    devices.def(
        "cuda_devices",
        [](const std::string& library) {
            std::string why;
            std::vector<std::shared_ptr<CudaDevice>> found;
            {
                const nb::gil_scoped_release nogil;
                found = CudaDevice::all(library, why);
            }
            std::vector<CudaHandle> handles;
            for (auto& each : found)
                handles.push_back({{std::move(each)}});
            return std::make_tuple(handles, why);
        },
        "library"_a, "The devices of a CUDA driver, and what is wrong with it: empty where there is none.");
    devices.def("dlpack", &dlpack, "address"_a, "shape"_a, "strides"_a, "code"_a, "bits"_a, "ordinal"_a, "owner"_a,
                "Something with __dlpack__, of CUDA memory.");
    devices.def("described", &described, "capsule"_a, "What a capsule of DLPack says, which is used up.");
}

}  // namespace ostinato
