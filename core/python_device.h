// What device operations need Python for: bodies that are captured, and exceptions.
#pragma once

#include <cstdint>
#include <string>

#include "device_ops.h"

namespace ostinato {

// A DeviceError that tells of `code` of the stream's device. Takes the GIL for a while.
ExceptionHandle device_error(Server& server, const Stream& stream, std::int32_t code);

// Calls the Python body at `position` with `recording` as its stream, so that what it enqueues is captured. False: it
// raised what `raised` says. The GIL is held afterwards.
bool call_recording(Server& server, Lane& lane, std::uint32_t position, StreamHandle recording, std::string& raised);

}  // namespace ostinato
