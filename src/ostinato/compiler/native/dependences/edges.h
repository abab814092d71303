#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ostinato::passes {

// Dependences of one step: `dst` in step s comes after `src` in step s - distance.
struct Edges {
    std::vector<int32_t> src, dst, distance;

    void add(int32_t a, int32_t b, int32_t d) {
        src.push_back(a);
        dst.push_back(b);
        distance.push_back(d);
    }
    std::size_t size() const { return src.size(); }
};

struct EdgeSpan {
    std::span<const int32_t> src, dst, distance;
    std::size_t size() const { return src.size(); }
};

inline EdgeSpan span_of(const Edges& e) { return {e.src, e.dst, e.distance}; }

// Neighbours of every op: those of op i are [start[i], start[i + 1]).
struct Adjacency {
    std::vector<int64_t> start;
    std::vector<int32_t> op, distance;
};

// The same edges sorted by (dst, distance, src), each once.
Edges sorted_unique(int32_t ops, EdgeSpan edges);

Adjacency predecessors(int32_t ops, EdgeSpan edges);
Adjacency successors(int32_t ops, EdgeSpan edges);

// A linear extension of the edges of distance 0, least index first: program order wherever that is one.
// Shorter than `ops` if there is a cycle.
std::vector<int32_t> topological(int32_t ops, EdgeSpan edges);

// The ops of one cycle of distance 0, in the order in which they depend on each other; empty if there is none.
std::vector<int32_t> find_cycle(int32_t ops, EdgeSpan edges);

}  // namespace ostinato::passes
