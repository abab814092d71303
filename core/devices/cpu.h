// The CPU behind the protocol of devices: everything happens at once, on the calling thread. All its streams are 0.
#pragma once

#include "devices/device.h"

namespace ostinato {

class CpuDevice final : public Device {
public:
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
};

}  // namespace ostinato
