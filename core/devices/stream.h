// A stream of a device, open as long as this lives. One lane of a program enqueues on it; so do the write-backs of a
// run whose lanes have all left it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "devices/device.h"
#include "park/forks.h"

namespace ostinato {

struct Stream {
    // The stream is open already.
    Stream(std::shared_ptr<Device> its_device, StreamHandle its_handle, std::string its_name, std::uint32_t number)
        : device(std::move(its_device)), handle(its_handle), name(std::move(its_name)), processor(number) {}
    ~Stream();  // without the GIL, held or not; implemented in python/device.cpp
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    std::shared_ptr<Device> device;
    const StreamHandle handle;
    const std::string name;         // of the device, for people
    const std::uint32_t processor;  // the device's number in records, after those of the slots
    const MadeHere made;

    // What was enqueued, for statistics. One thread at a time writes.
    struct Count {
        std::atomic<std::uint64_t> value{0};
        void add(std::uint64_t more) {
            value.store(value.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
        }
    };
    Count calls, copies, bytes;  // of tasks and fills; of copies, and what they move
    Count launches;              // of such, captured and issued as one
};

}  // namespace ostinato
