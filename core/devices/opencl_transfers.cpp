#include "devices/opencl_transfers.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ostinato::opencl {

namespace {

using std::int64_t;

// One side of a box of bytes: in a memory object, or in host memory where there is none.
struct Side {
    Memory memory = nullptr;
    char* host = nullptr;
    int64_t offset = 0, row = 0, slice = 0;

    Side(const Bytes& bytes, int64_t at, int64_t row_pitch, int64_t slice_pitch)
        : memory(bytes.on_device ? reinterpret_cast<Memory>(bytes.base) : nullptr),
          host(bytes.on_device ? nullptr : reinterpret_cast<char*>(bytes.base)), offset(bytes.offset + at),
          row(row_pitch), slice(slice_pitch) {}
};

struct Box {
    int64_t width, rows, slices;
    Side source, target;
};

std::size_t size(int64_t bytes) { return static_cast<std::size_t>(bytes); }

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
    Side &from = box.source, &to = box.target;
    if (box.rows == 1) {
        std::swap(box.rows, box.slices);
        std::swap(from.row, from.slice);
        std::swap(to.row, to.slice);
    }
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

class Copying {
public:
    Copying(const Api& api, Queue queue) : api_(api), queue_(queue) {}

    Int box(const Box& given) const {
        if (given.width <= 0 || given.rows <= 0 || given.slices <= 0)
            return kSuccess;
        Box box = simplest(given);
        if (box.rows == 1 && box.slices == 1)
            return line(box);
        if (rectangular(box, box.source) && rectangular(box, box.target))
            return rectangle(box);
        if (box.slices > 1) {
            Box other = box;
            std::swap(other.rows, other.slices);
            std::swap(other.source.row, other.source.slice);
            std::swap(other.target.row, other.target.slice);
            if (rectangular(other, other.source) && rectangular(other, other.target))
                return rectangle(other);
        }
        return pieces(box);
    }

private:
    Int line(const Box& box) const {
        const Side &from = box.source, &to = box.target;
        if (from.memory == nullptr)
            return api_.EnqueueWriteBuffer(queue_, to.memory, kFalse, size(to.offset), size(box.width),
                                           from.host + from.offset, 0, nullptr, nullptr);
        if (to.memory == nullptr)
            return api_.EnqueueReadBuffer(queue_, from.memory, kFalse, size(from.offset), size(box.width),
                                          to.host + to.offset, 0, nullptr, nullptr);
        return api_.EnqueueCopyBuffer(queue_, from.memory, to.memory, size(from.offset), size(to.offset),
                                      size(box.width), 0, nullptr, nullptr);
    }

    Int rectangle(const Box& box) const {
        const Side &from = box.source, &to = box.target;
        const std::array<std::size_t, 3> region{size(box.width), size(box.rows), size(box.slices)};
        const auto from_origin = origin(box, from), to_origin = origin(box, to);
        const std::size_t from_slice = box.slices > 1 ? size(from.slice) : 0;
        const std::size_t to_slice = box.slices > 1 ? size(to.slice) : 0;
        if (from.memory == nullptr)
            return api_.EnqueueWriteBufferRect(queue_, to.memory, kFalse, to_origin.data(), from_origin.data(),
                                               region.data(), size(to.row), to_slice, size(from.row), from_slice,
                                               from.host + from.offset, 0, nullptr, nullptr);
        if (to.memory == nullptr)
            return api_.EnqueueReadBufferRect(queue_, from.memory, kFalse, from_origin.data(), to_origin.data(),
                                              region.data(), size(from.row), from_slice, size(to.row), to_slice,
                                              to.host + to.offset, 0, nullptr, nullptr);
        return api_.EnqueueCopyBufferRect(queue_, from.memory, to.memory, from_origin.data(), to_origin.data(),
                                          region.data(), size(from.row), from_slice, size(to.row), to_slice, 0, nullptr,
                                          nullptr);
    }

    // Where a side begins, in bytes, rows and slices. Host memory has its offset in its address.
    static std::array<std::size_t, 3> origin(const Box& box, const Side& side) {
        if (side.memory == nullptr)
            return {0, 0, 0};
        int64_t rest = side.offset, slice = 0;
        if (box.slices > 1) {
            slice = rest / side.slice;
            rest %= side.slice;
        }
        return {size(rest % side.row), size(rest / side.row), size(slice)};
    }

    Int pieces(const Box& box) const {
        const bool flat = box.slices == 1;
        const int64_t count = flat ? box.rows : box.slices;
        Box piece = box;
        (flat ? piece.rows : piece.slices) = 1;
        for (int64_t i = 0; i < count; ++i) {
            piece.source.offset = box.source.offset + i * (flat ? box.source.row : box.source.slice);
            piece.target.offset = box.target.offset + i * (flat ? box.target.row : box.target.slice);
            if (const Int code = this->box(piece); code != kSuccess)
                return code;
        }
        return kSuccess;
    }

    const Api& api_;
    Queue queue_;
};

struct Range {
    int64_t low = INT64_MAX, high = INT64_MIN;

    void take(const Side& side, int64_t width, int64_t rows, int64_t slices) {
        const int64_t row = (rows - 1) * side.row, slice = (slices - 1) * side.slice;
        low = std::min(low, side.offset + std::min<int64_t>(row, 0) + std::min<int64_t>(slice, 0));
        high = std::max(high, side.offset + std::max<int64_t>(row, 0) + std::max<int64_t>(slice, 0) + width);
    }
};

Side source_of(const Transfer& transfer, const Block& block) {
    return {transfer.source, block.source_offset, block.source_row, block.source_slice};
}

Side target_of(const Transfer& transfer, const Block& block) {
    return {transfer.target, block.target_offset, block.target_row, block.target_slice};
}

// OpenCL copies within one memory object only between places that are disjoint, and with equal pitches.
bool within_one(const Transfer& transfer) {
    if (!transfer.source.on_device || !transfer.target.on_device || transfer.source.base != transfer.target.base)
        return false;
    Range source, target;
    for (const Block& block : transfer.blocks) {
        if (block.source_row != block.target_row || block.source_slice != block.target_slice)
            return true;
        source.take(source_of(transfer, block), block.width, block.rows, block.slices);
        target.take(target_of(transfer, block), block.width, block.rows, block.slices);
    }
    return source.low < target.high && target.low < source.high;
}

// A memory object for what is on its way. The driver keeps it until the commands that use it have run.
OwnedMemory passage(const Api& api, Context context, int64_t bytes, Int& code) {
    return {api, api.CreateBuffer(context, kMemoryReadWrite, size(bytes), nullptr, &code)};
}

Side packed(const OwnedMemory& memory, int64_t at, const Block& block) {
    return {{reinterpret_cast<std::uint64_t>(memory.get()), 0, true}, at, block.width, block.width * block.rows};
}

Int fill_block(const Api& api, Context context, Queue queue, const Pattern& pattern, const Block& block) {
    const int64_t bytes = block.width * block.rows * block.slices;
    const auto unit = static_cast<int64_t>(pattern.pattern.size());
    const Side target{pattern.target, block.target_offset, block.target_row, block.target_slice};
    if (bytes <= 0)
        return kSuccess;
    const bool lines = (block.rows == 1 || block.target_row == block.width) &&
                       (block.slices == 1 || block.target_slice == block.width * block.rows);
    const auto fill = [&](Memory memory, int64_t offset) {
        return api.EnqueueFillBuffer(queue, memory, pattern.pattern.data(), size(unit), size(offset), size(bytes), 0,
                                     nullptr, nullptr);
    };
    if (lines && target.offset % unit == 0)
        return fill(target.memory, target.offset);
    Int code = kSuccess;
    const OwnedMemory memory = passage(api, context, bytes, code);
    if (memory)
        code = fill(memory.get(), 0);
    if (code == kSuccess)
        code = Copying(api, queue).box({block.width, block.rows, block.slices, packed(memory, 0, block), target});
    return code;
}

}  // namespace

Int enqueue_copy(const Api& api, Context context, Queue queue, const Transfer& transfer) {
    const Copying copying(api, queue);
    Int code = kSuccess;
    OwnedMemory memory;
    if (within_one(transfer)) {
        int64_t at = 0;
        memory = passage(api, context, transfer.bytes, code);
        for (const Block& block : transfer.blocks) {
            if (code == kSuccess)
                code = copying.box(
                    {block.width, block.rows, block.slices, source_of(transfer, block), packed(memory, at, block)});
            at += block.width * block.rows * block.slices;
        }
    }
    int64_t at = 0;
    for (const Block& block : transfer.blocks) {
        if (code == kSuccess)
            code = copying.box({block.width, block.rows, block.slices,
                                memory ? packed(memory, at, block) : source_of(transfer, block),
                                target_of(transfer, block)});
        at += block.width * block.rows * block.slices;
    }
    return code;
}

Int enqueue_fill(const Api& api, Context context, Queue queue, const Pattern& pattern) {
    for (const Block& block : pattern.blocks)
        if (const Int code = fill_block(api, context, queue, pattern, block); code != kSuccess)
            return code;
    return kSuccess;
}

}  // namespace ostinato::opencl
