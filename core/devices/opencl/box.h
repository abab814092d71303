// A block of bytes with both of its sides, as commands of OpenCL see it.
#pragma once

#include <cstdint>
#include <utility>

#include "devices/device.h"
#include "devices/opencl/api.h"

namespace ostinato::opencl {

// In a memory object, or in host memory where there is none.
struct Side {
    Memory memory = nullptr;
    char* host = nullptr;
    std::int64_t offset = 0, row = 0, slice = 0;

    Side(const Bytes& bytes, std::int64_t at, std::int64_t row_pitch, std::int64_t slice_pitch)
        : memory(bytes.on_device ? reinterpret_cast<Memory>(bytes.base) : nullptr),
          host(bytes.on_device ? nullptr : reinterpret_cast<char*>(bytes.base)), offset(bytes.offset + at),
          row(row_pitch), slice(slice_pitch) {}
};

struct Box {
    std::int64_t width, rows, slices;
    Side source, target;

    std::int64_t bytes() const { return width * rows * slices; }
};

// Rows and slices are loops: which of them is the inner one is for the command to choose.
inline Box turned(Box box) {
    std::swap(box.rows, box.slices);
    std::swap(box.source.row, box.source.slice);
    std::swap(box.target.row, box.target.slice);
    return box;
}

}  // namespace ostinato::opencl
