#include "schedule/levels.h"

#include <algorithm>

#include "at.h"

namespace ostinato::passes {

std::vector<int32_t> levels(int32_t ops, EdgeSpan edges) {
    const Adjacency before = predecessors(ops, edges);
    std::vector<int32_t> level(at(ops), 0);
    for (const int32_t op : topological(ops, edges)) {
        for (int64_t e = before.start[at(op)]; e < before.start[at(op) + 1]; ++e)
            if (before.distance[at(e)] == 0)
                level[at(op)] = std::max(level[at(op)], level[at(before.op[at(e)])] + 1);
    }
    return level;
}

}  // namespace ostinato::passes
