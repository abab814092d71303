#include "dependences/edges.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "at.h"

namespace ostinato::passes {

namespace {

Adjacency adjacency(int32_t ops, std::span<const int32_t> key, std::span<const int32_t> other,
                    std::span<const int32_t> distance) {
    Adjacency a;
    a.start.assign(at(ops) + 1, 0);
    a.op.resize(key.size());
    a.distance.resize(key.size());
    for (int32_t k : key)
        ++a.start[at(k) + 1];
    for (std::size_t i = 0; i < at(ops); ++i)
        a.start[i + 1] += a.start[i];
    std::vector<int64_t> next(a.start.begin(), a.start.end() - 1);
    for (std::size_t e = 0; e < key.size(); ++e) {
        const std::size_t slot = at(next[at(key[e])]++);
        a.op[slot] = other[e];
        a.distance[slot] = distance[e];
    }
    return a;
}

bool is_program_order(EdgeSpan edges) {
    for (std::size_t e = 0; e < edges.size(); ++e)
        if (edges.distance[e] == 0 && edges.src[e] >= edges.dst[e])
            return false;
    return true;
}

}  // namespace

Edges sorted_unique(int32_t ops, EdgeSpan edges) {
    // A counting sort by target, then each target's few edges by (distance, src) packed into one number.
    std::vector<int64_t> start(at(ops) + 1, 0);
    for (int32_t b : edges.dst)
        ++start[at(b) + 1];
    for (std::size_t i = 0; i < at(ops); ++i)
        start[i + 1] += start[i];
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

Adjacency predecessors(int32_t ops, EdgeSpan edges) { return adjacency(ops, edges.dst, edges.src, edges.distance); }

Adjacency successors(int32_t ops, EdgeSpan edges) { return adjacency(ops, edges.src, edges.dst, edges.distance); }

std::vector<int32_t> topological(int32_t ops, EdgeSpan edges) {
    std::vector<int32_t> out;
    out.reserve(at(ops));
    if (is_program_order(edges)) {
        for (int32_t i = 0; i < ops; ++i)
            out.push_back(i);
        return out;
    }
    const Adjacency next = successors(ops, edges);
    std::vector<int32_t> missing(at(ops), 0);
    for (std::size_t e = 0; e < edges.size(); ++e)
        if (edges.distance[e] == 0)
            ++missing[at(edges.dst[e])];
    std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> ready;
    for (int32_t i = 0; i < ops; ++i)
        if (missing[at(i)] == 0)
            ready.push(i);
    while (!ready.empty()) {
        const int32_t a = ready.top();
        ready.pop();
        out.push_back(a);
        for (int64_t e = next.start[at(a)]; e < next.start[at(a) + 1]; ++e)
            if (next.distance[at(e)] == 0 && --missing[at(next.op[at(e)])] == 0)
                ready.push(next.op[at(e)]);
    }
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
    std::vector<int32_t> path;
    std::vector<int32_t> place(at(ops), -1);
    int32_t a = 0;
    while (sorted[at(a)])
        ++a;
    while (place[at(a)] < 0) {
        place[at(a)] = static_cast<int32_t>(path.size());
        path.push_back(a);
        for (int64_t e = before.start[at(a)]; e < before.start[at(a) + 1]; ++e)
            if (before.distance[at(e)] == 0 && !sorted[at(before.op[at(e)])]) {
                a = before.op[at(e)];
                break;
            }
    }
    std::vector<int32_t> cycle(path.begin() + place[at(a)], path.end());
    std::reverse(cycle.begin(), cycle.end());
    std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
    return cycle;
}

}  // namespace ostinato::passes
