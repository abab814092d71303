#pragma once

#include <cstdint>
#include <span>

#include "dependences/edges.h"

namespace ostinato::passes {

// The accesses of a step's ops, in program order, as flat arrays (see compiler/regions.py).
struct Accesses {
    std::span<const int32_t> op;
    std::span<const uint8_t> mode;
    std::span<const int32_t> group, period, phase;
    std::span<const int32_t> alias;   // -1, or the ring whose access this row repeats in the group of an allocation
    std::span<const int32_t> box;     // row of lo and hi
    std::span<const int64_t> lo, hi;  // boxes, `dims` numbers each
    int32_t dims = 0;
    int32_t groups = 0;
    std::span<const int32_t> apart;  // by op: those with the same number do not conflict; negative, or empty: all do
    EdgeSpan given;                  // within a step, between ops with the same number

    int32_t apart_of(std::size_t row) const { return apart.empty() ? -1 : apart[static_cast<std::size_t>(op[row])]; }
};

// Edges along which exactly those ops reach each other, over all steps, that conflict directly or through others.
Edges inferred(int32_t ops, const Accesses& accesses);

}  // namespace ostinato::passes
