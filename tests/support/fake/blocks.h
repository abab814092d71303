// Copies and fills of blocks in memory that the CPU reaches, and which bytes they touch.
#pragma once

#include <cstdint>
#include <vector>

#include "devices/device.h"

namespace ostinato {

// From the first byte to behind the last, counted from Bytes::offset.
struct Span {
    std::int64_t low = 0, high = 0;
};
Span source_span(const std::vector<Block>& blocks);
Span target_span(const std::vector<Block>& blocks);

void copy_blocks(const char* source, char* target, const std::vector<Block>& blocks);
void fill_blocks(char* target, const std::vector<Block>& blocks, const std::vector<std::uint8_t>& pattern);

}  // namespace ostinato
