#pragma once

#include <cstdint>
#include <queue>
#include <span>
#include <vector>

#include "at.h"

namespace ostinato::passes {

// Dependences of one step: `dst` in step s comes after `src` in step s - distance.
struct Edges {
    std::vector<int32_t> src, dst, distance;

    void add(int32_t a, int32_t b, int32_t d) {
        src.push_back(a);
        dst.push_back(b);
        distance.push_back(d);
    }
};

struct EdgeSpan {
    std::span<const int32_t> src, dst, distance;
    std::size_t size() const { return src.size(); }
};

inline EdgeSpan span_of(const Edges& e) { return {e.src, e.dst, e.distance}; }

struct Neighbour {
    int32_t op, distance;
};

// Neighbours of every op, in the order of the edges.
struct Adjacency {
    std::vector<int64_t> start;
    std::vector<Neighbour> all;

    std::span<const Neighbour> of(int32_t op) const {
        return {all.data() + start[at(op)], at(start[at(op) + 1] - start[at(op)])};
    }
};

Adjacency predecessors(int32_t ops, EdgeSpan edges);
Adjacency successors(int32_t ops, EdgeSpan edges);

// The same edges sorted by (dst, distance, src), each once.
Edges sorted_unique(int32_t ops, EdgeSpan edges);

// For each key the index behind the last item with a smaller key; one more for the end.
std::vector<int64_t> starts_of(int32_t keys, std::span<const int32_t> key_of_item);

// How many edges of distance 0 lead to each op.
std::vector<int32_t> count_sources(int32_t ops, EdgeSpan edges);

// A linear extension of the edges of distance 0: of the ops that are ready comes first the one that is `later` than no
// other. Shorter than `ops` if there is a cycle.
template <class Later>
std::vector<int32_t> linear_extension(int32_t ops, EdgeSpan edges, const Adjacency& after, Later later) {
    std::vector<int32_t> missing = count_sources(ops, edges), out;
    std::priority_queue<int32_t, std::vector<int32_t>, Later> ready(later);
    out.reserve(at(ops));
    for (int32_t op = 0; op < ops; ++op)
        if (missing[at(op)] == 0)
            ready.push(op);
    while (!ready.empty()) {
        out.push_back(ready.top());
        ready.pop();
        for (const auto [next, distance] : after.of(out.back()))
            if (distance == 0 && --missing[at(next)] == 0)
                ready.push(next);
    }
    return out;
}

// The linear extension with the least index first: program order wherever that is one.
std::vector<int32_t> topological(int32_t ops, EdgeSpan edges);

// The ops of one cycle of distance 0, in the order in which they depend on each other; empty if there is none.
std::vector<int32_t> find_cycle(int32_t ops, EdgeSpan edges);

// How many ops the longest path of edges of distance 0 that leads to each op has.
std::vector<int32_t> levels(const Adjacency& before, std::span<const int32_t> topological);

// Which operations depend on each of some sources along the edges, and how many steps back at least: for source i, of
// op[k] by steps_back[k], for k from start[i] to start[i + 1].
struct IterationDistances {
    std::vector<int64_t> start;
    std::vector<int32_t> op, steps_back;
};

IterationDistances iteration_distances(int32_t ops, EdgeSpan edges, std::span<const int32_t> sources);

}  // namespace ostinato::passes
