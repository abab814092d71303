#include "blocks.h"

#include <algorithm>
#include <cstring>

namespace ostinato {

namespace {

bool empty(const Block& block) { return block.width <= 0 || block.rows <= 0 || block.slices <= 0; }

void widen(Span& span, bool& any, const Block& block, std::int64_t offset, std::int64_t row, std::int64_t slice) {
    if (empty(block))
        return;
    const std::int64_t rows = row * (block.rows - 1), slices = slice * (block.slices - 1);
    const std::int64_t low = offset + std::min<std::int64_t>(rows, 0) + std::min<std::int64_t>(slices, 0);
    const std::int64_t high =
        offset + std::max<std::int64_t>(rows, 0) + std::max<std::int64_t>(slices, 0) + block.width;
    span = any ? Span{std::min(span.low, low), std::max(span.high, high)} : Span{low, high};
    any = true;
}

}  // namespace

Span source_span(const std::vector<Block>& blocks) {
    Span span;
    bool any = false;
    for (const Block& block : blocks)
        widen(span, any, block, block.source_offset, block.source_row, block.source_slice);
    return span;
}

Span target_span(const std::vector<Block>& blocks) {
    Span span;
    bool any = false;
    for (const Block& block : blocks)
        widen(span, any, block, block.target_offset, block.target_row, block.target_slice);
    return span;
}

void copy_blocks(const char* source, char* target, const std::vector<Block>& blocks) {
    for (const Block& block : blocks) {
        if (empty(block))
            continue;
        for (std::int64_t slice = 0; slice < block.slices; ++slice) {
            const char* from = source + block.source_offset + slice * block.source_slice;
            char* to = target + block.target_offset + slice * block.target_slice;
            for (std::int64_t row = 0; row < block.rows; ++row)
                std::memmove(to + row * block.target_row, from + row * block.source_row,
                             static_cast<std::size_t>(block.width));
        }
    }
}

void fill_blocks(char* target, const std::vector<Block>& blocks, const std::vector<std::uint8_t>& pattern) {
    for (const Block& block : blocks) {
        if (empty(block))
            continue;
        for (std::int64_t slice = 0; slice < block.slices; ++slice) {
            for (std::int64_t row = 0; row < block.rows; ++row) {
                char* to = target + block.target_offset + slice * block.target_slice + row * block.target_row;
                for (std::int64_t at = 0; at < block.width; at += static_cast<std::int64_t>(pattern.size()))
                    std::memcpy(to + at, pattern.data(),
                                std::min(pattern.size(), static_cast<std::size_t>(block.width - at)));
            }
        }
    }
}

}  // namespace ostinato
