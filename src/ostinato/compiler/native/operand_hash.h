// Tables of operands, by their addresses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ostinato::passes {

struct OperandHash {
    std::size_t operator()(const void* object) const {
        // Operands are made one after the other, and looked up in that order: four of them are neighbours here, too.
        const uintptr_t address = reinterpret_cast<uintptr_t>(object);
        return (address >> 6 & 3) | ((address >> 8) * 0x9e3779b97f4a7c15u >> 20) << 2;
    }
};

}  // namespace ostinato::passes
