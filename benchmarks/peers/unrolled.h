// Several steps of a graph as one acyclic graph, for runtimes that run a graph to its end and then wait for it.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "peer.h"

// A node runs the instances of one op whose step is u modulo the number of steps in the unrolled graph.
struct Node {
    Item item;
    uint64_t stride;
    std::vector<int32_t> targets;
    int32_t n_sources = 0;

    int32_t operator()() {
        const int32_t failed = item(item.call.step);
        item.call.step += stride;
        return failed;
    }
};

struct Unrolled {
    std::vector<Node> nodes;
    int64_t steps;  // a power of two, a multiple of the phases and at most 64
};

// As many steps as make about a thousand tasks, so that waiting for the end of a graph weighs little.
inline Unrolled unroll(const PeerGraph& graph) {
    const auto fitting = static_cast<uint32_t>(std::clamp(1024 / graph.n_ops, phases, 64));
    Unrolled result{{}, static_cast<int64_t>(std::bit_floor(fitting))};
    for (int64_t u = 0; u < result.steps; ++u) {
        for (int32_t op = 0; op < graph.n_ops; ++op) {
            Node node{make_item(graph, op, static_cast<int>(u % phases)), static_cast<uint64_t>(result.steps), {}};
            node.item.call.step = static_cast<uint64_t>(u);
            result.nodes.push_back(std::move(node));
        }
    }
    for (int64_t u = 0; u < result.steps; ++u) {
        for (int32_t e = 0; e < graph.n_edges; ++e) {
            const int64_t from = u - graph.distance[e];
            if (from < 0)
                continue;
            const auto a = static_cast<size_t>(from * graph.n_ops + graph.source[e]);
            const auto b = static_cast<size_t>(u * graph.n_ops + graph.target[e]);
            result.nodes[a].targets.push_back(static_cast<int32_t>(b));
            ++result.nodes[b].n_sources;
        }
    }
    return result;
}
