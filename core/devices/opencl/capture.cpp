#include "devices/opencl/capture.h"

#include <cstdio>

#include "devices/opencl/recording.h"

namespace ostinato::opencl {

namespace {

// An in-order queue of its own, for trying out.
class Bench {
public:
    Bench(const Api& api, Context context, DeviceId device) : api_(api) {
        Int code = kSuccess;
        queue_ = api.CreateCommandQueue(context, device, 0, &code);
    }
    ~Bench() {
        if (queue_ != nullptr)
            api_.ReleaseCommandQueue(queue_);
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;
    Queue queue() const { return queue_; }

private:
    const Api& api_;
    Queue queue_ = nullptr;
};

// Whether there is a loader between us and the driver, which looks in the tables of objects, and clCloneKernel. The
// latter came with OpenCL 2.1; older drivers' tables end before it.
bool has_tables(const Api& api, DeviceId device, Queue queue) {
    int major = 0, minor = 0;
    if (std::sscanf(text(api, device, kDeviceVersion).c_str(), "OpenCL %d.%d", &major, &minor) != 2 ||
        major * 10 + minor < 21 || api.CloneKernel == nullptr)
        return false;
    if (extensions(api, device).find("cl_khr_icd") == std::string::npos)
        return false;
    const void* const* table = *reinterpret_cast<const void* const* const*>(queue);
    return table != nullptr && table[kFinish] != reinterpret_cast<const void*>(api.Finish);
}

constexpr const char* kSource = "__kernel void store(__global int *at, int value) { at[0] = value; }";

}  // namespace

std::unique_ptr<Sequence> record_sequence(const Api& api, Context context, Queue queue, const Device::Enqueue& enqueue,
                                          Int& code) {
    Recording* const recording = Recording::begin(api, context, queue);
    code = enqueue(reinterpret_cast<StreamHandle>(recording->queue()));
    Int refused = kSuccess;
    std::vector<Command> commands = recording->end(refused);
    recording->release();
    if (refused != kSuccess)
        code = refused;
    if (code != kSuccess)
        return nullptr;
    return std::make_unique<Commands>(api, std::move(commands));
}

bool can_record(const Api& api, Context context, DeviceId device) {
    const Bench bench(api, context, device);
    if (bench.queue() == nullptr || !has_tables(api, device, bench.queue()))
        return false;
    Int code = kSuccess;
    const char* source = kSource;
    const OwnedProgram program{api, api.CreateProgramWithSource(context, 1, &source, nullptr, &code)};
    if (!program || api.BuildProgram(program.get(), 1, &device, nullptr, nullptr, nullptr) != kSuccess)
        return false;
    const OwnedKernel kernel{api, api.CreateKernel(program.get(), "store", &code)};
    const OwnedMemory memory{api, api.CreateBuffer(context, kMemoryReadWrite, sizeof(Int), nullptr, &code)};
    if (!kernel || !memory)
        return false;
    const Memory at = memory.get();
    const auto give = [&](Int value) {
        return api.SetKernelArg(kernel.get(), 0, sizeof(at), &at) == kSuccess &&
               api.SetKernelArg(kernel.get(), 1, sizeof(value), &value) == kSuccess;
    };
    // What is replayed must be what was recorded, whatever the kernel is given afterwards.
    constexpr Int recorded = 1, later = 2, before = 3;
    constexpr std::size_t one = 1;
    const auto sequence = record_sequence(
        api, context, bench.queue(),
        [&](StreamHandle recording) {
            const auto queue = reinterpret_cast<Queue>(recording);
            if (!give(recorded))
                return kInvalidOperation;
            return api.EnqueueNDRangeKernel(queue, kernel.get(), 1, nullptr, &one, nullptr, 0, nullptr, nullptr);
        },
        code);
    Int found = 0;
    return sequence != nullptr && static_cast<const Commands&>(*sequence).size() == 1 && give(later) &&
           api.EnqueueFillBuffer(bench.queue(), at, &before, sizeof(before), 0, sizeof(before), 0, nullptr, nullptr) ==
               kSuccess &&
           sequence->launch(reinterpret_cast<StreamHandle>(bench.queue())) == kSuccess &&
           api.EnqueueReadBuffer(bench.queue(), at, kTrue, 0, sizeof(found), &found, 0, nullptr, nullptr) == kSuccess &&
           found == recorded;
}

}  // namespace ostinato::opencl
