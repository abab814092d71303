#include "devices/cpu.h"

#include "devices/blocks.h"

namespace ostinato {

namespace {

class Happened final : public DeviceEvent {};

// The host's memory and "the device's" are the same.
char* address(const Bytes& bytes) { return reinterpret_cast<char*>(bytes.base) + bytes.offset; }

}  // namespace

std::int32_t CpuDevice::open(StreamHandle& stream) {
    stream = 0;
    return 0;
}

void CpuDevice::close(StreamHandle) {}

std::int32_t CpuDevice::copy(StreamHandle, const Transfer& transfer) {
    copy_blocks(address(transfer.source), address(transfer.target), transfer.blocks);
    return 0;
}

std::int32_t CpuDevice::fill(StreamHandle, const Pattern& pattern) {
    fill_blocks(address(pattern.target), pattern.blocks, pattern.pattern);
    return 0;
}

std::int32_t CpuDevice::record(StreamHandle, std::unique_ptr<DeviceEvent>& event) {
    if (!event)
        event = std::make_unique<Happened>();
    return 0;
}

std::int32_t CpuDevice::wait(StreamHandle, const DeviceEvent&) { return 0; }
std::int32_t CpuDevice::finish(StreamHandle) { return 0; }
void CpuDevice::notify(const DeviceEvent&, Done done, void* with) { done(with, 0); }

std::unique_ptr<Sequence> CpuDevice::capture(StreamHandle, const Parts&, std::int32_t& code) {
    code = 0;
    return nullptr;
}

Device::Diagnosis CpuDevice::diagnose(std::int32_t) const { return {"the CPU knows no errors", true}; }

}  // namespace ostinato
