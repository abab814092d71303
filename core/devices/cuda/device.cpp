#include "devices/cuda/device.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <utility>

#include "devices/cuda/copies.h"

namespace ostinato {

namespace {

using cuda::handle_of;
using cuda::kSuccess;
using cuda::stream_of;

// After these, as CUDA says, the context, or the device, does no more work in this process.
constexpr std::array<std::int32_t, 25> kUnusable = {
    3,    // NOT_INITIALIZED: in a forked child
    4,    // DEINITIALIZED
    46,   // DEVICE_UNAVAILABLE
    100,  // NO_DEVICE
    101,  // INVALID_DEVICE
    214,  // ECC_UNCORRECTABLE
    220,  // NVLINK_UNCORRECTABLE
    226,  // CONTAINED
    700,  // ILLEGAL_ADDRESS
    702,  // LAUNCH_TIMEOUT
    709,  // CONTEXT_IS_DESTROYED
    710,  // ASSERT
    714,  // HARDWARE_STACK_ERROR
    715,  // ILLEGAL_INSTRUCTION
    716,  // MISALIGNED_ADDRESS
    717,  // INVALID_ADDRESS_SPACE
    718,  // INVALID_PC
    719,  // LAUNCH_FAILED
    721,  // TENSOR_MEMORY_LEAK
    802,  // SYSTEM_NOT_READY
    807,  // MPS_SERVER_NOT_READY
    806,  // MPS_RPC_FAILURE
    810,  // MPS_CLIENT_TERMINATED
    911,  // EXTERNAL_DEVICE
    999,  // UNKNOWN
};

}  // namespace

class CudaEvent final : public DeviceEvent {
public:
    CudaEvent(std::shared_ptr<CudaDevice> of, cuda::Event recorded) : device(std::move(of)), event(recorded) {}
    ~CudaEvent() override {
        device->call_driver([this] { return device->api_->event_destroy(event); });
    }
    CudaEvent(const CudaEvent&) = delete;
    CudaEvent& operator=(const CudaEvent&) = delete;

    const std::shared_ptr<CudaDevice> device;
    const cuda::Event event;
};

std::vector<std::shared_ptr<CudaDevice>> CudaDevice::all(const std::string& library, std::string& why) {
    bool broken = false;
    const auto api = cuda::Api::load(library, broken, why);
    if (!broken)
        why.clear();
    std::vector<std::shared_ptr<CudaDevice>> devices;
    if (!api)
        return devices;
    int count = 0;
    if (const cuda::Result code = api->device_count(&count); code != kSuccess)
        why = "cuDeviceGetCount: " + api->words(code);
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        cuda::Number number = 0;
        if (const cuda::Result code = api->device_get(&number, ordinal); code != kSuccess)
            why = "cuDeviceGet: " + api->words(code);
        else
            devices.push_back(std::make_shared<CudaDevice>(api, ordinal, number));
    }
    return devices;
}

CudaDevice::CudaDevice(std::shared_ptr<const cuda::Api> api, int ordinal, cuda::Number number)
    : api_(std::move(api)), ordinal_(ordinal), number_(number), watcher_(std::make_unique<cuda::Watcher>(api_)) {}

CudaDevice::~CudaDevice() {
    if (made_.forked())
        static_cast<void>(watcher_.release());  // its thread is the parent's
}

// The primary context, kept from the first use to the end of the process: others may rely on it too.
std::int32_t CudaDevice::enter(cuda::Context& context) {
    if (made_.forked())
        return cuda::kNotInitialized;
    context = context_.load(std::memory_order_acquire);
    if (context != nullptr)
        return kSuccess;
    const std::lock_guard<std::mutex> lock(mutex_);
    context = context_.load(std::memory_order_relaxed);
    if (context != nullptr)
        return kSuccess;
    if (const cuda::Result code = api_->primary_retain(&context, number_); code != kSuccess)
        return code;
    if (!watcher_->start(context))
        return cuda::kOperatingSystem;
    context_.store(context, std::memory_order_release);
    return kSuccess;
}

std::int32_t CudaDevice::open(StreamHandle& stream) {
    cuda::Stream made = nullptr;
    const std::int32_t code = call_driver([&] { return api_->stream_create(&made, cuda::kStreamNonBlocking); });
    if (code == kSuccess)
        stream = handle_of(made);
    return code;
}

void CudaDevice::close(StreamHandle stream) {
    const Current current(*this);
    if (current.code != kSuccess)
        return;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (const auto found = recorders_.extract(stream))
            spare_.insert(spare_.end(), found.mapped().begin(), found.mapped().end());
    }
    api_->stream_destroy(stream_of(stream));
}

std::int32_t CudaDevice::copy(StreamHandle stream, const Transfer& transfer) {
    return call_driver([&] { return cuda::enqueue(*api_, stream_of(stream), transfer); });
}

std::int32_t CudaDevice::fill(StreamHandle stream, const Pattern& pattern) {
    return call_driver([&] { return cuda::enqueue(*api_, stream_of(stream), pattern); });
}

std::int32_t CudaDevice::record(StreamHandle stream, std::unique_ptr<DeviceEvent>& recorded) {
    return call_driver([&] {
        if (!recorded) {
            cuda::Event event = nullptr;
            if (const cuda::Result code = api_->event_create(&event, cuda::kEventDisableTiming); code != kSuccess)
                return code;
            recorded = std::make_unique<CudaEvent>(shared_from_this(), event);
        }
        return api_->event_record(static_cast<CudaEvent&>(*recorded).event, stream_of(stream));
    });
}

std::int32_t CudaDevice::wait(StreamHandle stream, const DeviceEvent& recorded) {
    return call_driver(
        [&] { return api_->stream_wait(stream_of(stream), static_cast<const CudaEvent&>(recorded).event, 0); });
}

void CudaDevice::notify(const DeviceEvent& recorded, Done done, void* with) {
    const cuda::Event event = static_cast<const CudaEvent&>(recorded).event;
    const std::int32_t code = call_driver([&] {
        const cuda::Relaxed relaxed(*api_);
        return cuda::ask(*api_, event);
    });
    if (code == cuda::kNotReady)
        watcher_->watch(event, done, with);
    else
        done(with, code);
}

Device::Diagnosis CudaDevice::diagnose(std::int32_t code) const {
    if (made_.forked())
        return {"CUDA cannot be used in a process forked after its first use", false};
    return {api_->words(code), std::ranges::find(kUnusable, code) == kUnusable.end()};
}

std::string CudaDevice::name() const {
    std::array<char, 256> name{};
    api_->device_name(name.data(), static_cast<int>(name.size()) - 1, number_);
    return name.data();
}

std::string CudaDevice::identity() const {
    cuda::Uuid uuid{}, whole{};
    if (api_->device_uuid_v2(&uuid, number_) != kSuccess)
        return "";
    std::string identity = "GPU-";
    if (api_->device_uuid != nullptr && api_->device_uuid(&whole, number_) == kSuccess &&
        !std::equal(std::begin(uuid.bytes), std::end(uuid.bytes), std::begin(whole.bytes)))
        identity = "MIG-";
    for (std::size_t at = 0; at < sizeof uuid.bytes; ++at) {
        std::array<char, 3> digits{};
        std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned>(uuid.bytes[at]));
        identity += at == 4 || at == 6 || at == 8 || at == 10 ? "-" : "";
        identity += digits.data();
    }
    return identity;
}

int CudaDevice::driver_version() const {
    int version = 0;
    api_->driver_version(&version);
    return version;
}

std::int32_t CudaDevice::allocate(std::uint64_t bytes, std::uint64_t& address) {
    cuda::Pointer pointer = 0;
    const std::int32_t code = call_driver([&] { return api_->allocate(&pointer, bytes); });
    address = pointer;
    return code;
}

void CudaDevice::free(std::uint64_t address) {
    call_driver([&] { return api_->free(address); });
}

std::int32_t CudaDevice::free_memory(std::uint64_t& free, std::uint64_t& total) {
    std::size_t unused = 0, all = 0;
    const std::int32_t code = call_driver([&] { return api_->memory_info(&unused, &all); });
    free = unused;
    total = all;
    return code;
}

std::int32_t CudaDevice::pin(std::uint64_t low, std::uint64_t high) {
    return call_driver(
        [&] { return api_->host_register(reinterpret_cast<void*>(low), high - low, cuda::kRegisterPortable); });
}

void CudaDevice::unpin(std::uint64_t low) {
    call_driver([&] { return api_->host_unregister(reinterpret_cast<void*>(low)); });
}

std::int32_t CudaDevice::locate(std::uint64_t address, int& ordinal, std::uint64_t& low, std::uint64_t& bytes) {
    const Current current(*this);
    cuda::Pointer start = 0;
    std::size_t size = 0;
    std::int32_t code = current.code;
    if (code == kSuccess)
        code = api_->pointer_attribute(&ordinal, cuda::kPointerOrdinal, address);
    // Of memory that was mapped piece by piece the driver may tell no range.
    if (code == kSuccess && api_->pointer_attribute(&start, cuda::kPointerRangeStart, address) == kSuccess &&
        api_->pointer_attribute(&size, cuda::kPointerRangeSize, address) == kSuccess) {
        low = start;
        bytes = size;
    } else {
        low = address;
        bytes = 0;
    }
    return code;
}

std::int32_t CudaDevice::finish() {
    return call_driver([&] { return api_->context_synchronize(); });
}

std::int32_t CudaDevice::finish(StreamHandle stream) {
    return call_driver([&] {
        const cuda::Relaxed relaxed(*api_);
        return api_->stream_synchronize(stream_of(stream));
    });
}

}  // namespace ostinato
