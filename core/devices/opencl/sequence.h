// Commands of OpenCL that were recorded, with the arguments that they were given then.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "devices/device.h"
#include "devices/opencl/api.h"

namespace ostinato::opencl {

using Sizes = std::array<std::size_t, 3>;

class OpenCLEvent : public DeviceEvent {
public:
    OwnedEvent event;
};

struct Launch {
    OwnedKernel kernel;  // a clone: its arguments stay
    Uint dimensions;
    bool has_offset, has_local;
    Sizes offset, global, local;
    Int enqueue(const Api& api, Queue queue, Event* event) const;
};

struct CopyBytes {
    OwnedMemory source, target;  // host memory where there is none
    char* host;
    std::size_t source_offset, target_offset, bytes;
    Int enqueue(const Api& api, Queue queue, Event* event) const;
};

struct CopyRectangle {
    OwnedMemory source, target;
    char* host;
    Sizes source_origin, target_origin, region;
    std::size_t source_row, source_slice, target_row, target_slice;
    Int enqueue(const Api& api, Queue queue, Event* event) const;
};

struct FillBytes {
    OwnedMemory target;
    std::vector<std::uint8_t> pattern;
    std::size_t offset, bytes;
    Int enqueue(const Api& api, Queue queue, Event* event) const;
};

// Of memory that host and device share.
struct CopyShared {
    void* target;
    const void* source;
    std::size_t bytes;
    Int enqueue(const Api& api, Queue queue, Event* event) const;
};

struct FillShared {
    void* target;
    std::vector<std::uint8_t> pattern;
    std::size_t bytes;
    Int enqueue(const Api& api, Queue queue, Event* event) const;
};

using Command = std::variant<Launch, CopyBytes, CopyRectangle, FillBytes, CopyShared, FillShared>;

class Commands : public Sequence {
public:
    Commands(const Api& api, std::vector<Command> commands) : api_(api), commands_(std::move(commands)) {}
    std::int32_t launch(StreamHandle stream) override;
    bool end(std::unique_ptr<DeviceEvent>& event) override;
    std::size_t size() const { return commands_.size(); }

private:
    const Api& api_;
    std::vector<Command> commands_;
    Queue queue_ = nullptr;  // of the last launch
    OwnedEvent last_;        // its last command's
};

}  // namespace ostinato::opencl
