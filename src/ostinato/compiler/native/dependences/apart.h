#pragma once

#include <cstdint>
#include <span>

#include "dependences/box_index.h"
#include "dependences/edges.h"

namespace ostinato::passes {

// One access as its group sees it. Of a ring of n arrays we follow one array: in step t it is the element whose phase
// is -t modulo n, so over n steps every access meets it exactly once, in step `turn`. All its arrays look alike, so
// this one history says everything. A plain allocation is a ring of one.
struct Touch {
    int32_t op, box, turn;
    int32_t apart;  // touches with the same number do not conflict, unless it is negative
    bool write;
};

// Edges within a step that hold anyway, from each op and to it.
struct GivenEdges {
    Adjacency successors, predecessors;
};

// Adds the edges between touches of one group, given in the order in which they happen, of which some do not conflict
// although they overlap; those with the same number follow each other. Slower than a scan where all that overlap do.
void scan_apart(std::span<const Touch> touches, const GivenEdges& given, BoxIndex& index, int32_t period, Edges& edges);

}  // namespace ostinato::passes
