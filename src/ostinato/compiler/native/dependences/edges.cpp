#include "dependences/edges.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace ostinato::passes {

namespace {

Adjacency adjacency(int32_t ops, std::span<const int32_t> key, std::span<const int32_t> other,
                    std::span<const int32_t> distance) {
    Adjacency a{starts_of(ops, key), std::vector<Neighbour>(key.size())};
    std::vector<int64_t> next(a.start.begin(), a.start.end() - 1);
    for (std::size_t e = 0; e < key.size(); ++e)
        a.all[at(next[at(key[e])]++)] = {other[e], distance[e]};
    return a;
}

bool is_program_order(EdgeSpan edges) {
    for (std::size_t e = 0; e < edges.size(); ++e)
        if (edges.distance[e] == 0 && edges.src[e] >= edges.dst[e])
            return false;
    return true;
}

}  // namespace

std::vector<int64_t> starts_of(int32_t keys, std::span<const int32_t> key_of_item) {
    std::vector<int64_t> start(at(keys) + 1, 0);
    for (const int32_t key : key_of_item)
        ++start[at(key) + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    return start;
}

Adjacency predecessors(int32_t ops, EdgeSpan edges) { return adjacency(ops, edges.dst, edges.src, edges.distance); }

Adjacency successors(int32_t ops, EdgeSpan edges) { return adjacency(ops, edges.src, edges.dst, edges.distance); }

Edges sorted_unique(int32_t ops, EdgeSpan edges) {
    // A counting sort by target, then each target's few edges by (distance, src) packed into one number.
    const std::vector<int64_t> start = starts_of(ops, edges.dst);
    std::vector<uint64_t> packed(edges.size());
    std::vector<int64_t> next(start.begin(), start.end() - 1);
    for (std::size_t e = 0; e < edges.size(); ++e)
        packed[at(next[at(edges.dst[e])]++)] = (static_cast<uint64_t>(static_cast<uint32_t>(edges.distance[e])) << 32) |
                                               static_cast<uint32_t>(edges.src[e]);
    Edges out;
    for (int32_t b = 0; b < ops; ++b) {
        const auto first = packed.begin() + start[at(b)];
        auto last = packed.begin() + start[at(b) + 1];
        std::sort(first, last);
        last = std::unique(first, last);
        for (auto p = first; p != last; ++p)
            out.add(static_cast<int32_t>(*p & 0xffffffffu), b, static_cast<int32_t>(*p >> 32));
    }
    return out;
}

std::vector<int32_t> count_sources(int32_t ops, EdgeSpan edges) {
    std::vector<int32_t> count(at(ops), 0);
    for (std::size_t e = 0; e < edges.size(); ++e)
        if (edges.distance[e] == 0)
            ++count[at(edges.dst[e])];
    return count;
}

std::vector<int32_t> topological(int32_t ops, EdgeSpan edges) {
    if (!is_program_order(edges))
        return linear_extension(ops, edges, successors(ops, edges), std::greater<>());
    std::vector<int32_t> out(at(ops));
    std::iota(out.begin(), out.end(), 0);
    return out;
}

std::vector<int32_t> find_cycle(int32_t ops, EdgeSpan edges) {
    const std::vector<int32_t> order = topological(ops, edges);
    if (order.size() == at(ops))
        return {};
    std::vector<bool> sorted(at(ops), false);
    for (int32_t a : order)
        sorted[at(a)] = true;
    // Each op left over has a predecessor that is left over too: walking back must meet itself.
    const Adjacency before = predecessors(ops, edges);
    std::vector<int32_t> path, position(at(ops), -1);
    auto a = static_cast<int32_t>(std::find(sorted.begin(), sorted.end(), false) - sorted.begin());
    while (position[at(a)] < 0) {
        position[at(a)] = static_cast<int32_t>(path.size());
        path.push_back(a);
        const std::span<const Neighbour> sources = before.of(a);
        a = std::find_if(sources.begin(), sources.end(), [&](const Neighbour& source) {
                return source.distance == 0 && !sorted[at(source.op)];
            })->op;
    }
    std::vector<int32_t> cycle(path.begin() + position[at(a)], path.end());
    std::reverse(cycle.begin(), cycle.end());
    std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
    return cycle;
}

std::vector<int32_t> levels(const Adjacency& before, std::span<const int32_t> topological) {
    std::vector<int32_t> level(topological.size(), 0);
    for (const int32_t op : topological)
        for (const auto [source, distance] : before.of(op))
            if (distance == 0)
                level[at(op)] = std::max(level[at(op)], level[at(source)] + 1);
    return level;
}

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
            for (const auto [next, distance] : after.of(op))
                if (reached_from[at(next)] != source)
                    queue.push({steps_back + distance, next});
        }
        out.start.push_back(static_cast<int64_t>(out.op.size()));
    }
    return out;
}

}  // namespace ostinato::passes
