#include "dependences/iteration_distances.h"

#include <functional>
#include <queue>
#include <utility>

#include "at.h"

namespace ostinato::passes {

IterationDistances iteration_distances(int32_t ops, EdgeSpan edges, std::span<const int32_t> sources) {
    const Adjacency after = successors(ops, edges);
    IterationDistances out;
    std::vector<int32_t> reached_from(at(ops), -1);  // by operation, the last source that it is known to depend on
    using Entry = std::pair<int32_t, int32_t>;       // steps_back, operation
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    out.start.push_back(0);
    for (int32_t source : sources) {  // Dijkstra's algorithm
        queue.push({0, source});
        while (!queue.empty()) {
            const auto [steps_back, op] = queue.top();
            queue.pop();
            if (reached_from[at(op)] == source)
                continue;
            reached_from[at(op)] = source;
            out.op.push_back(op);
            out.steps_back.push_back(steps_back);
            for (int64_t i = after.start[at(op)]; i < after.start[at(op) + 1]; ++i) {
                if (reached_from[at(after.op[at(i)])] != source)
                    queue.push({steps_back + after.distance[at(i)], after.op[at(i)]});
            }
        }
        out.start.push_back(static_cast<int64_t>(out.op.size()));
    }
    return out;
}

}  // namespace ostinato::passes
