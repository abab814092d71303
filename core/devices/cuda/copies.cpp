// A copy of rows in regular distances is one call. What the driver refuses (some distances between two addresses of one
// device; host memory that is page-locked in parts) is found by its answer, INVALID_VALUE, and made of smaller copies,
// which it takes.
#include "devices/cuda/copies.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace ostinato::cuda {

namespace {

constexpr std::uint64_t kPage = 4096;

struct Side {
    std::uint64_t address;
    std::int64_t row, slice;
    bool on_device;
};

Side side_of(const Bytes& bytes, std::int64_t offset, std::int64_t row, std::int64_t slice) {
    return {bytes.base + static_cast<std::uint64_t>(bytes.offset + offset), row, slice, bytes.on_device};
}

std::uint64_t moved(std::uint64_t address, std::int64_t by) { return address + static_cast<std::uint64_t>(by); }

// Enqueues one after the other, by number, up to the first that fails.
template <class Enqueue>
Result enqueue_each(std::int64_t count, const Enqueue& enqueue) {
    for (std::int64_t at = 0; at < count; ++at)
        if (const Result code = enqueue(at); code != kSuccess)
            return code;
    return kSuccess;
}

Side moved(Side side, std::int64_t by) {
    side.address = moved(side.address, by);
    return side;
}

class Copier {
public:
    Copier(const Api& api, Stream stream) : api_(api), stream_(stream) {}

    Result block(std::int64_t width, std::int64_t rows, std::int64_t slices, Side source, Side target) const {
        if (width <= 0 || rows <= 0 || slices <= 0)
            return kSuccess;
        // Rows that lie next to each other are one row; slices likewise.
        if (rows > 1 && source.row == width && target.row == width) {
            width *= rows;
            rows = 1;
        }
        if (rows == 1) {
            rows = slices;
            source.row = source.slice;
            target.row = target.slice;
            slices = 1;
            if (rows > 1 && source.row == width && target.row == width) {
                width *= rows;
                rows = 1;
            }
        }
        if (slices == 1)
            return plane(width, rows, source, target);
        if (source.slice < source.row && target.slice < target.row) {
            std::swap(rows, slices);
            std::swap(source.row, source.slice);
            std::swap(target.row, target.slice);
        }
        if (regular(width, rows, source) && regular(width, rows, target)) {
            const Result code = box(width, rows, slices, source, target);
            if (code != kInvalidValue)
                return code;
        }
        return enqueue_each(slices, [&](std::int64_t at) {
            return plane(width, rows, moved(source, at * source.slice), moved(target, at * target.slice));
        });
    }

private:
    // Whether the driver can be told of it as slices of so many rows.
    static bool regular(std::int64_t width, std::int64_t rows, const Side& side) {
        return side.row >= width && side.slice % side.row == 0 && side.slice / side.row >= rows;
    }

    template <class Copy>
    static Copy copy_of(std::int64_t width, std::int64_t rows, const Side& source, const Side& target) {
        Copy copy{};
        copy.source_memory = source.on_device ? kMemoryDevice : kMemoryHost;
        copy.source_host = source.on_device ? nullptr : reinterpret_cast<const void*>(source.address);
        copy.source_device = source.on_device ? source.address : 0;
        copy.source_pitch = static_cast<std::size_t>(source.row);
        copy.target_memory = target.on_device ? kMemoryDevice : kMemoryHost;
        copy.target_host = target.on_device ? nullptr : reinterpret_cast<void*>(target.address);
        copy.target_device = target.on_device ? target.address : 0;
        copy.target_pitch = static_cast<std::size_t>(target.row);
        copy.width = static_cast<std::size_t>(width);
        copy.height = static_cast<std::size_t>(rows);
        return copy;
    }

    Result box(std::int64_t width, std::int64_t rows, std::int64_t slices, const Side& source,
               const Side& target) const {
        auto copy = copy_of<Copy3D>(width, rows, source, target);
        copy.source_height = static_cast<std::size_t>(source.slice / source.row);
        copy.target_height = static_cast<std::size_t>(target.slice / target.row);
        copy.depth = static_cast<std::size_t>(slices);
        return api_.copy_3d(&copy, stream_);
    }

    Result plane(std::int64_t width, std::int64_t rows, Side source, Side target) const {
        if (rows == 1)
            return line(width, source, target);
        if (source.row <= -width && target.row <= -width) {  // both backwards: from the other end
            source = {moved(source.address, source.row * (rows - 1)), -source.row, 0, source.on_device};
            target = {moved(target.address, target.row * (rows - 1)), -target.row, 0, target.on_device};
        }
        if (source.row >= width && target.row >= width) {
            const auto copy = copy_of<Copy2D>(width, rows, source, target);
            const Result code = api_.copy_2d(&copy, stream_);
            if (code != kInvalidValue)
                return code;
        }
        return enqueue_each(rows, [&](std::int64_t at) {
            return line(width, moved(source, at * source.row), moved(target, at * target.row));
        });
    }

    Result line(std::int64_t width, const Side& source, const Side& target) const {
        const auto bytes = static_cast<std::uint64_t>(width);
        const Result code = piece(target.address, source.address, bytes);
        if (code != kInvalidValue || source.on_device == target.on_device)
            return code;
        // Whole pages are page-locked or not, whatever shares the first and the last.
        const std::uint64_t host = source.on_device ? target.address : source.address;
        const std::uint64_t first = std::min(bytes, (kPage - host % kPage) % kPage);
        const std::uint64_t last = (host + bytes) % kPage <= bytes - first ? (host + bytes) % kPage : 0;
        if (first + last == 0 || first == bytes || last == bytes)
            return code;
        std::uint64_t at = 0;
        for (const std::uint64_t part : {first, bytes - first - last, last}) {
            if (part != 0) {
                if (const Result said = piece(target.address + at, source.address + at, part); said != kSuccess)
                    return said;
            }
            at += part;
        }
        return kSuccess;
    }

    Result piece(std::uint64_t target, std::uint64_t source, std::uint64_t bytes) const {
        return api_.copy(target, source, static_cast<std::size_t>(bytes), stream_);
    }

    const Api& api_;
    const Stream stream_;
};

// A pattern, as the words that the driver can repeat: one of 1, 2 or 4 bytes, or several at a distance.
class Filler {
public:
    Filler(const Api& api, Stream stream, const std::vector<std::uint8_t>& pattern)
        : api_(api), stream_(stream), pattern_(pattern.begin(), pattern.end()) {
        // The shortest that says the same: zeros are one byte.
        while (pattern_.size() > 1 &&
               std::equal(pattern_.begin(), pattern_.begin() + static_cast<std::ptrdiff_t>(pattern_.size() / 2),
                          pattern_.begin() + static_cast<std::ptrdiff_t>(pattern_.size() / 2)))
            pattern_.resize(pattern_.size() / 2);
    }

    Result block(std::int64_t width, std::int64_t rows, std::int64_t slices, Side target) const {
        if (width <= 0 || rows <= 0 || slices <= 0)
            return kSuccess;
        if (rows > 1 && target.row == width) {
            width *= rows;
            rows = 1;
        }
        if (rows == 1) {
            rows = slices;
            target.row = target.slice;
            slices = 1;
        }
        return enqueue_each(slices,
                            [&](std::int64_t at) { return plane(width, rows, moved(target, at * target.slice)); });
    }

private:
    Result plane(std::int64_t width, std::int64_t rows, Side target) const {
        if (target.row < 0) {
            target.address = moved(target.address, target.row * (rows - 1));
            target.row = -target.row;
        }
        if (rows > 1 && target.row == width) {
            width *= rows;
            rows = 1;
        }
        if (target.row == 0)
            rows = 1;  // the same row again and again
        const auto size = static_cast<std::int64_t>(pattern_.size());
        if (rows > 1 && target.row < width)  // rows that overlap
            return enqueue_each(rows, [&](std::int64_t row) {
                return plane(width, 1, {moved(target.address, row * target.row), 0, 0, true});
            });
        const bool aligned = target.address % word() == 0 && (rows == 1 || target.row % word() == 0);
        const std::int64_t step = aligned ? static_cast<std::int64_t>(word()) : 1;
        if (step == size)
            return words(step, target.address, target.row, width / size, rows, 0);
        // One word of the pattern at a time, over all its repetitions: along the rows, or down the columns.
        const std::int64_t along = width / size;
        if (rows == 1 || rows <= along)
            return enqueue_each(rows, [&](std::int64_t row) {
                return apart(step, moved(target.address, row * target.row), size, along);
            });
        return enqueue_each(along, [&](std::int64_t column) {
            return apart(step, moved(target.address, column * size), target.row, rows);
        });
    }

    std::uint64_t word() const { return std::min<std::uint64_t>(pattern_.size(), 4); }

    // The whole pattern, `count` times, `pitch` bytes apart.
    Result apart(std::int64_t step, std::uint64_t address, std::int64_t pitch, std::int64_t count) const {
        return enqueue_each(static_cast<std::int64_t>(pattern_.size()) / step, [&](std::int64_t at) {
            return words(step, moved(address, at * step), pitch, 1, count, at * step);
        });
    }

    // The word of the pattern that begins at byte `at`, in rows of `count`.
    Result words(std::int64_t step, std::uint64_t address, std::int64_t pitch, std::int64_t count, std::int64_t rows,
                 std::int64_t at) const {
        unsigned value = 0;
        for (std::int64_t byte = 0; byte < step; ++byte)
            value |= static_cast<unsigned>(pattern_[static_cast<std::size_t>(at + byte)]) << 8 * byte;
        if (rows == 1)
            return row(step, address, value, static_cast<std::size_t>(count));
        const Result code = grid(step, address, static_cast<std::size_t>(pitch), value, static_cast<std::size_t>(count),
                                 static_cast<std::size_t>(rows));
        if (code != kInvalidValue)
            return code;
        return enqueue_each(rows, [&](std::int64_t number) {
            return row(step, moved(address, number * pitch), value, static_cast<std::size_t>(count));
        });
    }

    Result row(std::int64_t step, std::uint64_t address, unsigned value, std::size_t count) const {
        if (step == 1)
            return api_.fill_8(address, static_cast<unsigned char>(value), count, stream_);
        if (step == 2)
            return api_.fill_16(address, static_cast<unsigned short>(value), count, stream_);
        return api_.fill_32(address, value, count, stream_);
    }

    Result grid(std::int64_t step, std::uint64_t address, std::size_t pitch, unsigned value, std::size_t width,
                std::size_t height) const {
        if (step == 1)
            return api_.fill_2d_8(address, pitch, static_cast<unsigned char>(value), width, height, stream_);
        if (step == 2)
            return api_.fill_2d_16(address, pitch, static_cast<unsigned short>(value), width, height, stream_);
        return api_.fill_2d_32(address, pitch, value, width, height, stream_);
    }

    const Api& api_;
    const Stream stream_;
    std::vector<std::uint8_t> pattern_;
};

}  // namespace

Result enqueue(const Api& api, Stream stream, const Transfer& transfer) {
    const Copier copier(api, stream);
    for (const Block& block : transfer.blocks) {
        const Result code =
            copier.block(block.width, block.rows, block.slices,
                         side_of(transfer.source, block.source_offset, block.source_row, block.source_slice),
                         side_of(transfer.target, block.target_offset, block.target_row, block.target_slice));
        if (code != kSuccess)
            return code;
    }
    return kSuccess;
}

Result enqueue(const Api& api, Stream stream, const Pattern& pattern) {
    const Filler filler(api, stream, pattern.pattern);
    for (const Block& block : pattern.blocks) {
        const Result code =
            filler.block(block.width, block.rows, block.slices,
                         side_of(pattern.target, block.target_offset, block.target_row, block.target_slice));
        if (code != kSuccess)
            return code;
    }
    return kSuccess;
}

}  // namespace ostinato::cuda
