// A set of small numbers that finds the next one from an index on, whatever its size.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ostinato::passes {

class BitTree {
public:
    explicit BitTree(std::size_t size) {
        do {
            size = (size + 63) / 64;
            levels_.emplace_back(size, 0);
        } while (size > 1);
    }

    void insert(std::size_t i) {
        for (auto& level : levels_) {
            level[i / 64] |= uint64_t{1} << (i % 64);
            i /= 64;
        }
    }

    void erase(std::size_t i) {
        for (auto& level : levels_) {
            level[i / 64] &= ~(uint64_t{1} << (i % 64));
            if (level[i / 64] != 0)
                return;
            i /= 64;
        }
    }

    // The least member from `from` on and below `end`; -1 if there is none.
    int64_t next(std::size_t from, std::size_t end) const {
        if (from >= end)
            return -1;
        for (std::size_t height = 0; height < levels_.size(); ++height) {
            const auto& level = levels_[height];
            if (from / 64 >= level.size())
                return -1;
            const uint64_t rest = level[from / 64] >> (from % 64);
            if (rest != 0) {
                std::size_t found = from + static_cast<std::size_t>(std::countr_zero(rest));
                while (height-- > 0)
                    found = found * 64 + static_cast<std::size_t>(std::countr_zero(levels_[height][found]));
                return found < end ? static_cast<int64_t>(found) : -1;
            }
            from = from / 64 + 1;
        }
        return -1;
    }

private:
    std::vector<std::vector<uint64_t>> levels_;
};

}  // namespace ostinato::passes
