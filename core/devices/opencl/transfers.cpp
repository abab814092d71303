#include "devices/opencl/transfers.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

namespace ostinato::opencl {

using std::int64_t;

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

// A block of bytes with both of its sides, as commands of OpenCL see it.
struct Box {
    std::int64_t width, rows, slices;
    Side source, target;

    std::int64_t bytes() const { return width * rows * slices; }
};

namespace {

// A copy of more commands than this is rearranged on the device: a tiny command takes as long as some kilobytes.
constexpr int64_t kFewCommands = 16;

constexpr const char* kSource = R"(
__kernel void rearrange(__global const uchar *source, long source_offset, long source_row, long source_slice,
                        __global uchar *target, long target_offset, long target_row, long target_slice) {
    const long at = get_global_id(0), row = get_global_id(1), slice = get_global_id(2);
    target[target_offset + slice * target_slice + row * target_row + at] =
        source[source_offset + slice * source_slice + row * source_row + at];
}
)";

std::size_t size(int64_t bytes) { return static_cast<std::size_t>(bytes); }

// Rows and slices are loops: which of them is the inner one is for the command to choose.
Box turned(Box box) {
    std::swap(box.rows, box.slices);
    std::swap(box.source.row, box.source.slice);
    std::swap(box.target.row, box.target.slice);
    return box;
}

// A level that goes backwards on both sides goes forwards from its other end.
void turn(int64_t count, int64_t& source_offset, int64_t& source, int64_t& target_offset, int64_t& target) {
    if (source >= 0 || target >= 0)
        return;
    source_offset += (count - 1) * source;
    target_offset += (count - 1) * target;
    source = -source;
    target = -target;
}

// As few levels as there are, each forwards where it can be, those that lie next to each other as one.
Box simplest(Box box) {
    if (box.rows == 1)
        box = turned(box);
    Side &from = box.source, &to = box.target;
    turn(box.rows, from.offset, from.row, to.offset, to.row);
    turn(box.slices, from.offset, from.slice, to.offset, to.slice);
    if (box.rows > 1 && from.row == box.width && to.row == box.width) {
        box.width *= box.rows;
        box.rows = std::exchange(box.slices, 1);
        from.row = from.slice;
        to.row = to.slice;
    }
    return box;
}

// Whether OpenCL's rectangular commands take these pitches: rows that do not overlap in slices of whole rows.
bool rectangular(const Box& box, const Side& side) {
    return side.row >= box.width &&
           (box.slices == 1 || (side.slice >= box.rows * side.row && side.slice % side.row == 0));
}

bool rectangular(const Box& box) { return rectangular(box, box.source) && rectangular(box, box.target); }

Box slice_of(const Box& box) { return {box.width, box.rows, 1, box.source, box.target}; }

// The order of loops in which one command does most.
Box ordered(const Box& given) {
    const Box box = simplest(given), other = turned(box);
    if (box.slices == 1 || rectangular(box))
        return box;
    return rectangular(other) || (!rectangular(slice_of(box)) && rectangular(slice_of(other))) ? other : box;
}

int64_t commands(const Box& box) {
    if (rectangular(box) || (box.rows == 1 && box.slices == 1))
        return 1;
    return rectangular(slice_of(box)) ? box.slices : box.rows * box.slices;
}

Int copy_line(const Api& api, Queue queue, const Box& box) {
    const Side &from = box.source, &to = box.target;
    if (from.memory == nullptr)
        return api.EnqueueWriteBuffer(queue, to.memory, kFalse, size(to.offset), size(box.width),
                                      from.host + from.offset, 0, nullptr, nullptr);
    if (to.memory == nullptr)
        return api.EnqueueReadBuffer(queue, from.memory, kFalse, size(from.offset), size(box.width),
                                     to.host + to.offset, 0, nullptr, nullptr);
    return api.EnqueueCopyBuffer(queue, from.memory, to.memory, size(from.offset), size(to.offset), size(box.width), 0,
                                 nullptr, nullptr);
}

// Where a side begins, in bytes, rows and slices. Host memory has its offset in its address.
std::array<std::size_t, 3> origin(const Box& box, const Side& side) {
    if (side.memory == nullptr)
        return {0, 0, 0};
    int64_t rest = side.offset, slice = 0;
    if (box.slices > 1) {
        slice = rest / side.slice;
        rest %= side.slice;
    }
    return {size(rest % side.row), size(rest / side.row), size(slice)};
}

Int copy_rectangle(const Api& api, Queue queue, const Box& box) {
    const Side &from = box.source, &to = box.target;
    const std::array<std::size_t, 3> region{size(box.width), size(box.rows), size(box.slices)};
    const auto from_origin = origin(box, from), to_origin = origin(box, to);
    const std::size_t from_slice = box.slices > 1 ? size(from.slice) : 0;
    const std::size_t to_slice = box.slices > 1 ? size(to.slice) : 0;
    if (from.memory == nullptr)
        return api.EnqueueWriteBufferRect(queue, to.memory, kFalse, to_origin.data(), from_origin.data(), region.data(),
                                          size(to.row), to_slice, size(from.row), from_slice, from.host + from.offset,
                                          0, nullptr, nullptr);
    if (to.memory == nullptr)
        return api.EnqueueReadBufferRect(queue, from.memory, kFalse, from_origin.data(), to_origin.data(),
                                         region.data(), size(from.row), from_slice, size(to.row), to_slice,
                                         to.host + to.offset, 0, nullptr, nullptr);
    return api.EnqueueCopyBufferRect(queue, from.memory, to.memory, from_origin.data(), to_origin.data(), region.data(),
                                     size(from.row), from_slice, size(to.row), to_slice, 0, nullptr, nullptr);
}

struct Range {
    int64_t low = INT64_MAX, high = INT64_MIN;

    void take(const Side& side, int64_t width, int64_t rows, int64_t slices) {
        const int64_t row = (rows - 1) * side.row, slice = (slices - 1) * side.slice;
        low = std::min(low, side.offset + std::min<int64_t>(row, 0) + std::min<int64_t>(slice, 0));
        high = std::max(high, side.offset + std::max<int64_t>(row, 0) + std::max<int64_t>(slice, 0) + width);
    }
};

Box box_of(const Transfer& transfer, const Block& block) {
    return {block.width,
            block.rows,
            block.slices,
            {transfer.source, block.source_offset, block.source_row, block.source_slice},
            {transfer.target, block.target_offset, block.target_row, block.target_slice}};
}

// OpenCL copies within one memory object only between regions that are disjoint, and with equal pitches.
bool within_one(const Transfer& transfer) {
    if (!transfer.source.on_device || !transfer.target.on_device || transfer.source.base != transfer.target.base)
        return false;
    Range source, target;
    for (const Block& block : transfer.blocks) {
        if (block.source_row != block.target_row || block.source_slice != block.target_slice)
            return true;
        const Box box = box_of(transfer, block);
        source.take(box.source, box.width, box.rows, box.slices);
        target.take(box.target, box.width, box.rows, box.slices);
    }
    return source.low < target.high && target.low < source.high;
}

Side packed(const OwnedMemory& memory, int64_t at, int64_t row, int64_t slice) {
    return {{reinterpret_cast<std::uint64_t>(memory.get()), 0, true}, at, row, slice};
}

// The bytes of a box, one after the other.
Side packed(const OwnedMemory& memory, int64_t at, const Block& block) {
    return packed(memory, at, block.width, block.width * block.rows);
}

// A level of a source as it lies in memory, each byte once; and how a packed copy of that is read instead.
void straighten(int64_t& count, int64_t& offset, int64_t& pitch, int64_t& read_offset, int64_t& read_pitch) {
    if (pitch < 0) {
        offset += (count - 1) * pitch;
        pitch = -pitch;
        read_offset += (count - 1) * read_pitch;
        read_pitch = -read_pitch;
    } else if (pitch == 0) {
        count = 1;
        read_pitch = 0;
    }
}

}  // namespace

bool Transfers::can_rearrange() {
    std::call_once(built_, [this] {
        Int code = kSuccess;
        const char* source = kSource;
        const OwnedProgram program{api_, api_.CreateProgramWithSource(context_, 1, &source, nullptr, &code)};
        if (program && api_.BuildProgram(program.get(), 1, &device_, nullptr, nullptr, nullptr) == kSuccess)
            kernel_ = {api_, api_.CreateKernel(program.get(), "rearrange", &code)};
    });
    return static_cast<bool>(kernel_);
}

Int Transfers::rearrange(Queue queue, const Box& box) {
    const std::lock_guard lock(mutex_);
    Uint index = 0;
    for (const Side* side : {&box.source, &box.target}) {
        Int code = api_.SetKernelArg(kernel_.get(), index++, sizeof(side->memory), &side->memory);
        for (const int64_t number : {side->offset, side->row, side->slice})
            if (code == kSuccess)
                code = api_.SetKernelArg(kernel_.get(), index++, sizeof(number), &number);
        if (code != kSuccess)
            return code;
    }
    const std::array<std::size_t, 3> global{size(box.width), size(box.rows), size(box.slices)};
    return api_.EnqueueNDRangeKernel(queue, kernel_.get(), 3, nullptr, global.data(), nullptr, 0, nullptr, nullptr);
}

OwnedMemory Transfers::passage(int64_t bytes, Int& code) const {
    return {api_, api_.CreateBuffer(context_, kMemoryReadWrite, size(bytes), nullptr, &code)};
}

Int Transfers::copy(Queue queue, const Box& given) {
    if (given.width <= 0 || given.rows <= 0 || given.slices <= 0)
        return kSuccess;
    const Box box = ordered(given);
    return commands(box) > kFewCommands && can_rearrange() ? copy_rearranged(queue, box) : copy_all(queue, box);
}

Int Transfers::copy_all(Queue queue, const Box& given) const {
    const Box box = ordered(given);
    if (box.rows == 1 && box.slices == 1)
        return copy_line(api_, queue, box);
    if (rectangular(box))
        return copy_rectangle(api_, queue, box);
    const bool flat = box.slices == 1;
    Box piece = box;
    (flat ? piece.rows : piece.slices) = 1;
    for (int64_t i = 0; i < (flat ? box.rows : box.slices); ++i) {
        piece.source.offset = box.source.offset + i * (flat ? box.source.row : box.source.slice);
        piece.target.offset = box.target.offset + i * (flat ? box.target.row : box.target.slice);
        if (const Int code = copy_all(queue, piece); code != kSuccess)
            return code;
    }
    return kSuccess;
}

// The device puts the bytes in order; those of the host are sent as they lie, or arrive in order.
Int Transfers::copy_rearranged(Queue queue, const Box& box) {
    Int code = kSuccess;
    Box on_device = box;
    OwnedMemory sent, result;
    if (box.source.memory == nullptr) {
        sent = passage(box.bytes(), code);
        if (code != kSuccess)
            return code;
        Box straight = box;
        Side &from = straight.source, &read = on_device.source;
        const bool across = std::abs(from.slice) < std::abs(from.row);
        read = packed(sent, 0, across ? box.width * box.slices : box.width, across ? box.width : box.width * box.rows);
        straight.target = read;
        straighten(straight.rows, from.offset, from.row, read.offset, read.row);
        straighten(straight.slices, from.offset, from.slice, read.offset, read.slice);
        code = copy_all(queue, straight);
    }
    if (box.target.memory == nullptr && code == kSuccess) {
        result = passage(box.bytes(), code);
        on_device.target = packed(result, 0, box.width, box.width * box.rows);
    }
    if (code == kSuccess)
        code = rearrange(queue, on_device);
    if (result && code == kSuccess)
        code = copy_all(queue, {box.width, box.rows, box.slices, on_device.target, box.target});
    return code;
}

Int Transfers::copy(Queue queue, const Transfer& transfer) {
    Int code = kSuccess;
    OwnedMemory memory;
    if (within_one(transfer)) {
        int64_t at = 0;
        memory = passage(transfer.bytes, code);
        for (const Block& block : transfer.blocks) {
            Box box = box_of(transfer, block);
            box.target = packed(memory, at, block);
            if (code == kSuccess)
                code = copy(queue, box);
            at += box.bytes();
        }
    }
    int64_t at = 0;
    for (const Block& block : transfer.blocks) {
        Box box = box_of(transfer, block);
        if (memory)
            box.source = packed(memory, at, block);
        if (code == kSuccess)
            code = copy(queue, box);
        at += box.bytes();
    }
    return code;
}

Int Transfers::fill(Queue queue, const Pattern& pattern, const Block& block) {
    const auto unit = static_cast<int64_t>(pattern.pattern.size());
    const Side target{pattern.target, block.target_offset, block.target_row, block.target_slice};
    const int64_t bytes = block.width * block.rows * block.slices;
    if (bytes <= 0)
        return kSuccess;
    const bool line = (block.rows == 1 || block.target_row == block.width) &&
                      (block.slices == 1 || block.target_slice == block.width * block.rows);
    const auto fill = [&](Memory memory, int64_t offset) {
        return api_.EnqueueFillBuffer(queue, memory, pattern.pattern.data(), size(unit), size(offset), size(bytes), 0,
                                      nullptr, nullptr);
    };
    if (line && target.offset % unit == 0)
        return fill(target.memory, target.offset);
    Int code = kSuccess;
    const OwnedMemory memory = passage(bytes, code);
    if (code == kSuccess)
        code = fill(memory.get(), 0);
    if (code == kSuccess)
        code = copy(queue, {block.width, block.rows, block.slices, packed(memory, 0, block), target});
    return code;
}

Int Transfers::fill(Queue queue, const Pattern& pattern) {
    for (const Block& block : pattern.blocks)
        if (const Int code = fill(queue, pattern, block); code != kSuccess)
            return code;
    return kSuccess;
}

}  // namespace ostinato::opencl
