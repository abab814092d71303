#pragma once

#include <cstdint>
#include <vector>

#include "dependences/index_space.h"

namespace ostinato::passes {

// What the ops of a graph access, as found in its Python objects.
struct Operands {
    enum class Kind : uint8_t { kArray, kElement, kToken };

    struct View {
        Layout layout;
        int32_t root;  // index into `roots`
    };
    struct Ring {
        std::vector<int32_t> arrays;  // indices into `views`
        bool disjoint;
    };
    struct Element {
        int32_t ring, offset;
        std::vector<int32_t> views;
    };
    struct Access {
        int32_t op;
        int32_t what;  // index into `views` or `elements`, or the number of a token
        uint8_t mode;
        Kind kind;
    };

    int32_t ops = 0;
    int32_t tokens = 0;
    Layouts layouts;
    std::vector<Layout> roots;
    std::vector<View> views;
    std::vector<Ring> rings;
    std::vector<Element> elements;
    std::vector<Access> accesses;  // in program order
};

// The flat arrays of compiler/regions.py.
struct Regions {
    std::vector<int32_t> op;
    std::vector<uint8_t> mode;
    std::vector<int32_t> group, period, phase, alias, box;
    std::vector<int64_t> lo, hi;  // `dims` numbers a box
    int32_t dims = 1;
    int32_t groups = 0;
};

Regions regions(const Operands& operands);

// The views alone, each a box in the index space of its allocation.
struct Boxes {
    std::vector<int32_t> allocation;  // by view; -1: without elements
    std::vector<int64_t> lo, hi;      // `dims` numbers a view
    std::vector<int64_t> low;         // by allocation: the address that boxes count from
    std::vector<int64_t> stride;      // `dims` numbers an allocation: bytes from one index to the next
    int32_t dims = 1;
};

Boxes boxes(const Operands& operands);

}  // namespace ostinato::passes
