// Capturing what is enqueued on a queue, for drivers without command buffers.
//
// Each object of OpenCL begins with a pointer to its driver's table of entry points, by which the loader finds the
// driver (the layout is fixed, so that old drivers go on working). So a queue of our own with a table of ours gets
// every call that anybody makes on it, pyopencl too, and can write it down instead.
#pragma once

#include <memory>
#include <string>

#include "devices/device.h"
#include "devices/opencl/api.h"

namespace ostinato::opencl {

class OpenCLEvent : public DeviceEvent {
public:
    OwnedEvent event;
};

// What `enqueue` enqueues on the queue that it is given, which stands for `queue`. Null with a code where `enqueue`
// fails, or calls what cannot be recorded: the code then says what.
std::unique_ptr<Sequence> record_sequence(const Api& api, Context context, Queue queue, const Device::Enqueue& enqueue,
                                          Int& code);

// Whether recording works with this loader and driver, tried out with a small kernel.
bool can_record(const Api& api, Context context, DeviceId device);

// What a code that `record_sequence` gave means; empty for codes of OpenCL.
std::string refusal(Int code);

}  // namespace ostinato::opencl
