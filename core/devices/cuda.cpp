#include "devices/cuda.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <utility>

#include "devices/cuda_copies.h"

namespace ostinato {

namespace {

using cuda::kSuccess;

constexpr std::size_t kMostRetired = 16;  // executable graphs hold memory of the device

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

cuda::Stream stream_of(StreamHandle handle) { return reinterpret_cast<cuda::Stream>(handle); }
StreamHandle handle_of(cuda::Stream stream) { return reinterpret_cast<StreamHandle>(stream); }

// What may be launched but not captured.
bool cannot_be_captured(std::int32_t code) {
    return code >= cuda::kCaptureUnsupported && code <= cuda::kCaptureWrongThread;
}

}  // namespace

class CudaDevice::Current {
public:
    explicit Current(CudaDevice& device) : api_(*device.api_) {
        cuda::Context context = nullptr;
        if ((code = device.enter(context)) != kSuccess)
            return;
        cuda::Context before = nullptr;
        code = api_.context_get(&before);
        if (code != kSuccess || before == context)
            return;
        if (before == nullptr) {
            code = api_.context_set(context);
        } else {
            code = api_.context_push(context);
            pushed_ = code == kSuccess;
        }
    }
    ~Current() {
        cuda::Context context = nullptr;
        if (pushed_)
            api_.context_pop(&context);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

    std::int32_t code = kSuccess;  // else nothing may be called

private:
    const cuda::Api& api_;
    bool pushed_ = false;
};

class CudaToken final : public Token {
public:
    CudaToken(std::shared_ptr<CudaDevice> of, cuda::Event recorded) : device(std::move(of)), event(recorded) {}
    ~CudaToken() override {
        const CudaDevice::Current current(*device);
        if (current.code == kSuccess)
            device->api_->event_destroy(event);
    }
    CudaToken(const CudaToken&) = delete;
    CudaToken& operator=(const CudaToken&) = delete;

    const std::shared_ptr<CudaDevice> device;
    const cuda::Event event;
};

class CudaSequence final : public Sequence {
public:
    CudaSequence(std::shared_ptr<CudaDevice> device, cuda::GraphExec exec, std::uint64_t nodes)
        : device_(std::move(device)), exec_(exec), nodes_(nodes) {}
    ~CudaSequence() override { device_->retire(exec_, nodes_); }
    CudaSequence(const CudaSequence&) = delete;
    CudaSequence& operator=(const CudaSequence&) = delete;

    std::int32_t launch(StreamHandle stream) override {
        const CudaDevice::Current current(*device_);
        return current.code != kSuccess ? current.code : device_->api_->graph_launch(exec_, stream_of(stream));
    }

private:
    const std::shared_ptr<CudaDevice> device_;
    const cuda::GraphExec exec_;
    const std::uint64_t nodes_;
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
    const Current current(*this);
    cuda::Stream made = nullptr;
    const std::int32_t code =
        current.code != kSuccess ? current.code : api_->stream_create(&made, cuda::kStreamNonBlocking);
    if (code == kSuccess)
        stream = handle_of(made);
    return code;
}

void CudaDevice::close(StreamHandle stream) {
    const Current current(*this);
    if (current.code == kSuccess)
        api_->stream_destroy(stream_of(stream));
}

std::int32_t CudaDevice::copy(StreamHandle stream, const Transfer& transfer) {
    const Current current(*this);
    return current.code != kSuccess ? current.code : cuda::enqueue(*api_, stream_of(stream), transfer);
}

std::int32_t CudaDevice::fill(StreamHandle stream, const Pattern& pattern) {
    const Current current(*this);
    return current.code != kSuccess ? current.code : cuda::enqueue(*api_, stream_of(stream), pattern);
}

std::int32_t CudaDevice::record(StreamHandle stream, std::unique_ptr<Token>& token) {
    const Current current(*this);
    if (current.code != kSuccess)
        return current.code;
    if (!token) {
        cuda::Event event = nullptr;
        if (const cuda::Result code = api_->event_create(&event, cuda::kEventDisableTiming); code != kSuccess)
            return code;
        token = std::make_unique<CudaToken>(shared_from_this(), event);
    }
    return api_->event_record(static_cast<CudaToken&>(*token).event, stream_of(stream));
}

std::int32_t CudaDevice::wait(StreamHandle stream, const Token& token) {
    const Current current(*this);
    if (current.code != kSuccess)
        return current.code;
    return api_->stream_wait(stream_of(stream), static_cast<const CudaToken&>(token).event, 0);
}

void CudaDevice::notify(const Token& token, Done done, void* with) {
    const cuda::Event event = static_cast<const CudaToken&>(token).event;
    std::int32_t code = kSuccess;
    {
        const Current current(*this);
        code = current.code;
        if (code == kSuccess) {
            const cuda::Relaxed relaxed(*api_);
            code = api_->event_query(event);
        }
    }
    if (code == cuda::kNotReady)
        watcher_->watch(event, done, with);
    else
        done(with, code);
}

std::unique_ptr<Sequence> CudaDevice::capture(StreamHandle, const Enqueue& enqueue, std::int32_t& code) {
    const Current current(*this);
    cuda::Stream stream = nullptr;
    if ((code = current.code) != kSuccess || (code = recording(stream)) != kSuccess)
        return nullptr;
    // Thread-local: what other threads do meanwhile is theirs.
    if ((code = api_->capture_begin(stream, cuda::kCaptureThreadLocal)) != kSuccess) {
        api_->stream_destroy(stream);
        code = cannot_be_captured(code) ? kSuccess : code;
        return nullptr;
    }
    code = enqueue(handle_of(stream));
    const Current again(*this);  // which it may have changed
    cuda::Graph graph = nullptr;
    const cuda::Result ended = api_->capture_end(stream, &graph);
    if (ended == kSuccess)
        recorded(stream);
    else
        api_->stream_destroy(stream);
    if (code == kSuccess)
        code = ended == kSuccess && graph == nullptr ? cuda::kCaptureInvalidated : ended;
    cuda::GraphExec exec = nullptr;
    std::uint64_t nodes = 0;
    if (code == kSuccess)
        code = instantiate(graph, exec, nodes);
    if (graph != nullptr)
        api_->graph_destroy(graph);
    if (code == kSuccess)
        return std::make_unique<CudaSequence>(shared_from_this(), exec, nodes);
    if (cannot_be_captured(code))
        code = kSuccess;
    return nullptr;
}

// By an update of one that nothing launches any more, if one has the same form: several times as fast.
std::int32_t CudaDevice::instantiate(cuda::Graph graph, cuda::GraphExec& exec, std::uint64_t& nodes) {
    std::size_t count = 0;
    if (const cuda::Result code = api_->graph_nodes(graph, nullptr, &count); code != kSuccess)
        return code;
    nodes = count;
    const auto taken = [this, count] {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (auto each = retired_.rbegin(); each != retired_.rend(); ++each)
            if (each->nodes == count) {
                const cuda::GraphExec found = each->exec;
                retired_.erase(std::next(each).base());
                return found;
            }
        return cuda::GraphExec{};
    };
    if (api_->graph_update != nullptr) {
        if (const cuda::GraphExec found = taken(); found != nullptr) {
            cuda::UpdateInfo info{};
            if (api_->graph_update(found, graph, &info) == kSuccess) {
                exec = found;
                return kSuccess;
            }
            api_->exec_destroy(found);
        }
    }
    return api_->graph_instantiate(&exec, graph, 0);
}

std::int32_t CudaDevice::recording(cuda::Stream& stream) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!recorders_.empty()) {
            stream = recorders_.back();
            recorders_.pop_back();
            return kSuccess;
        }
    }
    return api_->stream_create(&stream, cuda::kStreamNonBlocking);
}

void CudaDevice::recorded(cuda::Stream stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    recorders_.push_back(stream);
}

// The driver lets its last launch end, whether it is updated or destroyed.
void CudaDevice::retire(cuda::GraphExec exec, std::uint64_t nodes) {
    const Current current(*this);
    if (current.code != kSuccess)
        return;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        retired_.push_back({exec, nodes});
        if (retired_.size() <= kMostRetired)
            return;
        exec = retired_.front().exec;
        retired_.erase(retired_.begin());
    }
    api_->exec_destroy(exec);
}

Device::Diagnosis CudaDevice::diagnose(std::int32_t code) const {
    bool usable = true;
    for (const std::int32_t each : kUnusable)
        usable = usable && code != each;
    if (made_.forked())
        return {"CUDA cannot be used in a process forked after its first use", false};
    return {api_->words(code), usable};
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
    const Current current(*this);
    cuda::Pointer pointer = 0;
    const std::int32_t code = current.code != kSuccess ? current.code : api_->allocate(&pointer, bytes);
    address = pointer;
    return code;
}

void CudaDevice::free(std::uint64_t address) {
    const Current current(*this);
    if (current.code == kSuccess)
        api_->free(address);
}

std::int32_t CudaDevice::free_memory(std::uint64_t& free, std::uint64_t& total) {
    const Current current(*this);
    std::size_t unused = 0, all = 0;
    const std::int32_t code = current.code != kSuccess ? current.code : api_->memory_info(&unused, &all);
    free = unused;
    total = all;
    return code;
}

std::int32_t CudaDevice::pin(std::uint64_t low, std::uint64_t high) {
    const Current current(*this);
    if (current.code != kSuccess)
        return current.code;
    return api_->host_register(reinterpret_cast<void*>(low), high - low, cuda::kRegisterPortable);
}

void CudaDevice::unpin(std::uint64_t low) {
    const Current current(*this);
    if (current.code == kSuccess)
        api_->host_unregister(reinterpret_cast<void*>(low));
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
    const Current current(*this);
    return current.code != kSuccess ? current.code : api_->context_synchronize();
}

std::int32_t CudaDevice::finish(StreamHandle stream) {
    const Current current(*this);
    return current.code != kSuccess ? current.code : api_->stream_synchronize(stream_of(stream));
}

}  // namespace ostinato
