// A CUDA device, by its primary context, which the process's other libraries use too: pointers, streams and events of
// theirs are ours, and ours are theirs.
//
// The driver may be asked from any thread; each call makes the context current if it is not. A thread that has none
// keeps it; one that has another gets that back.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "devices/cuda/api.h"
#include "devices/cuda/watcher.h"
#include "devices/device.h"
#include "park/forks.h"

namespace ostinato {

namespace cuda {

inline Stream stream_of(StreamHandle handle) { return reinterpret_cast<Stream>(handle); }
inline StreamHandle handle_of(Stream stream) { return reinterpret_cast<StreamHandle>(stream); }

}  // namespace cuda

class CudaDevice final : public Device, public std::enable_shared_from_this<CudaDevice> {
public:
    // All that the driver of this library shows to the process. Empty with `why` empty: there is no driver, or it has
    // no device; else `why` says what is wrong with it.
    static std::vector<std::shared_ptr<CudaDevice>> all(const std::string& library, std::string& why);

    CudaDevice(std::shared_ptr<const cuda::Api> api, int ordinal, cuda::Number number);
    ~CudaDevice() override;
    CudaDevice(const CudaDevice&) = delete;
    CudaDevice& operator=(const CudaDevice&) = delete;

    std::int32_t open(StreamHandle& stream) override;
    void close(StreamHandle stream) override;
    std::int32_t copy(StreamHandle stream, const Transfer& transfer) override;
    std::int32_t fill(StreamHandle stream, const Pattern& pattern) override;
    std::int32_t record(StreamHandle stream, std::unique_ptr<DeviceEvent>& event) override;
    std::int32_t wait(StreamHandle stream, const DeviceEvent& event) override;
    void notify(const DeviceEvent& event, Done done, void* with) override;
    std::int32_t finish(StreamHandle stream) override;
    std::unique_ptr<Sequence> capture(StreamHandle stream, const Parts& parts, std::int32_t& code) override;
    Diagnosis diagnose(std::int32_t code) const override;

    int ordinal() const { return ordinal_; }
    std::string name() const;      // "NVIDIA H100"
    std::string identity() const;  // "GPU-..." or "MIG-...", as nvidia-smi -L lists it; "" if it tells none
    int driver_version() const;    // 12040: CUDA 12.4

    std::int32_t allocate(std::uint64_t bytes, std::uint64_t& address);
    void free(std::uint64_t address);
    std::int32_t free_memory(std::uint64_t& free, std::uint64_t& total);
    // Page-locks host memory.
    std::int32_t pin(std::uint64_t low, std::uint64_t high);
    void unpin(std::uint64_t low);
    // Which device an address is of, and the allocation around it, of 0 bytes where the driver tells none.
    std::int32_t locate(std::uint64_t address, int& ordinal, std::uint64_t& low, std::uint64_t& bytes);
    // Waits for all of the device.
    std::int32_t finish();

private:
    friend class CudaEvent;
    friend class CudaSequence;
    class Current;
    class Recording;

    std::int32_t enter(cuda::Context& context);
    // Calls the driver with the device's context current.
    template <class Call>
    std::int32_t call_driver(const Call& call);
    std::int32_t instantiate(cuda::Graph graph, cuda::GraphExec& exec, std::uint64_t& nodes);
    std::int32_t recorders(StreamHandle of, std::uint32_t count, std::vector<cuda::Stream>& streams);
    void recorded(StreamHandle of, const std::vector<cuda::Stream>& streams);
    void retire(cuda::GraphExec exec, std::uint64_t nodes);

    // An executable graph that nothing launches any more: one of the same form is made of it by an update.
    struct Retired {
        cuda::GraphExec exec;
        std::uint64_t nodes;
    };

    const std::shared_ptr<const cuda::Api> api_;
    const int ordinal_;
    const cuda::Number number_;
    const MadeHere made_;
    std::mutex mutex_;
    std::atomic<cuda::Context> context_{nullptr};
    // Streams that work is captured on, when nobody uses them: those of an open stream, on which all that was captured
    // is launched, so that what libraries keep by stream is used by one after the other; and those of none.
    std::map<StreamHandle, std::vector<cuda::Stream>> recorders_;
    std::vector<cuda::Stream> spare_;
    std::vector<Retired> retired_;
    std::unique_ptr<cuda::Watcher> watcher_;
};

// Makes the device's context the calling thread's for a scope.
class CudaDevice::Current {
public:
    explicit Current(CudaDevice& device) : api_(*device.api_) {
        cuda::Context context = nullptr;
        if ((code = device.enter(context)) != cuda::kSuccess)
            return;
        cuda::Context before = nullptr;
        code = api_.context_get(&before);
        if (code != cuda::kSuccess || before == context)
            return;
        if (before == nullptr) {
            code = api_.context_set(context);
        } else {
            code = api_.context_push(context);
            pushed_ = code == cuda::kSuccess;
        }
    }
    ~Current() {
        cuda::Context context = nullptr;
        if (pushed_)
            api_.context_pop(&context);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

    std::int32_t code = cuda::kSuccess;  // else nothing may be called

private:
    const cuda::Api& api_;
    bool pushed_ = false;
};

template <class Call>
std::int32_t CudaDevice::call_driver(const Call& call) {
    const Current current(*this);
    return current.code != cuda::kSuccess ? current.code : call();
}

}  // namespace ostinato
