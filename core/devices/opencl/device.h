// A device of OpenCL: in-order queues of our own in a context that the user's library made.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "devices/device.h"
#include "devices/opencl/api.h"
#include "devices/opencl/transfers.h"
#include "devices/opencl/watcher.h"
#include "park/forks.h"

namespace ostinato {

class OpenCLDevice : public Device {
public:
    // `library` is something loaded that is linked with OpenCL's loader; `context` and `device` are OpenCL's handles.
    OpenCLDevice(const std::string& library, std::uint64_t context, std::uint64_t device);
    ~OpenCLDevice() override;
    OpenCLDevice(const OpenCLDevice&) = delete;
    OpenCLDevice& operator=(const OpenCLDevice&) = delete;

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

    // Waits for all that was enqueued on streams of ours, closed ones too.
    std::int32_t finish();

private:
    // A queue that was closed, and the end of what was enqueued on it.
    struct Closed {
        opencl::OwnedQueue queue;
        opencl::OwnedEvent end;
    };

    bool works() const;
    void release_those_done();  // mutex_ held

    const opencl::Api& api_;
    opencl::Context context_;
    opencl::DeviceId device_;
    opencl::Transfers transfers_;
    std::mutex mutex_;  // guards what follows
    std::set<opencl::Queue> open_;
    std::vector<Closed> closed_;
    std::once_flag probed_;
    bool records_ = false;
    const MadeHere made_;
    std::unique_ptr<opencl::Watcher> watcher_;
};

}  // namespace ostinato
