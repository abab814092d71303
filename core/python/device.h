// What device operations need Python for: bodies that are captured, and exceptions.
#pragma once

#include <cstdint>
#include <string>

#include "devices/device_ops.h"

namespace ostinato {

// A DeviceError that tells of what the stream's device has told. Takes the GIL for a while.
ExceptionHandle device_error(Worker& worker, const Stream& stream, const Told& told);

// Calls the Python body at `position`; it may not look at what streams are at work on.
void call_issuing(Worker& worker, Lane& lane, std::uint32_t position, std::uint64_t user_step,
                  ExceptionHandle& failure);
// Whether the calling thread is in the body of an operation of a program whose streams are at work on memory that these
// addresses stand for.
bool issues_for(std::uint64_t low, std::uint64_t high);

// Calls the Python body at `position` with `recording` as its stream, so that what it enqueues is captured. False: it
// raised what `raised` says. The GIL is held afterwards.
bool call_recording(Worker& worker, Lane& lane, std::uint32_t position, StreamHandle recording, std::string& raised);

}  // namespace ostinato
