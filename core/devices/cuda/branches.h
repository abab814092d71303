// The streams that the parts of a capture are recorded on, and which of them wait for each other, so that what is
// captured has the order of the parts: each node comes after the one before on its stream, and after what that waits
// for.
//
// Two parts share a stream only if one comes after the other. Libraries keep memory by stream (workspaces, what was
// allocated and freed), which parts that may run side by side must not share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ostinato::cuda {

struct Branches {
    // Of so many at most; what would need another is put behind others. Libraries may keep megabytes for each stream.
    static constexpr std::uint32_t kMost = 16;
    static constexpr std::uint32_t kNoMark = UINT32_MAX;

    struct Part {
        std::uint32_t branch = 0;
        std::vector<std::uint32_t> waits;  // marks; before it
        std::uint32_t mark = kNoMark;      // set after it, for others to wait for
        bool first = false;                // of its branch
    };
    std::vector<Part> parts;
    std::uint32_t count = 0, marks = 0;  // marks are set again when all have waited for them

    // By part, the earlier ones that it comes after.
    explicit Branches(std::span<const std::vector<std::uint32_t>> after);
};

}  // namespace ostinato::cuda
