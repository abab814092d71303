#include "passes/lags.h"

#include <functional>
#include <queue>
#include <utility>

#include "passes/at.h"

namespace ostinato::passes {

std::vector<int32_t> lags(int32_t ops, EdgeSpan edges, std::span<const int32_t> sources) {
    const Adjacency after = successors(ops, edges);
    std::vector<int32_t> out(at(ops) * sources.size(), -1);
    using Entry = std::pair<int32_t, int32_t>;          // lag, op
    for (std::size_t s = 0; s < sources.size(); ++s) {  // Dijkstra's algorithm
        std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
        queue.push({0, sources[s]});
        while (!queue.empty()) {
            const auto [lag, op] = queue.top();
            queue.pop();
            int32_t& known = out[at(op) * sources.size() + s];
            if (known >= 0)
                continue;
            known = lag;
            for (int64_t i = after.start[at(op)]; i < after.start[at(op) + 1]; ++i) {
                if (out[at(after.op[at(i)]) * sources.size() + s] < 0)
                    queue.push({lag + after.distance[at(i)], after.op[at(i)]});
            }
        }
    }
    return out;
}

}  // namespace ostinato::passes
