// What every C++ peer is given and the four symbols it exports. Each peer is a shared library of its own, so that one
// that cannot be built is merely absent.
#pragma once

#include <cstdint>

#include "ostinato.h"

struct PeerGraph {
    int32_t n_ops;
    int32_t n_edges;
    const int32_t* source;    // per edge
    const int32_t* target;    // per edge
    const int32_t* distance;  // per edge: 0 in the same step, 1 from the step before
    const int32_t* half;      // per op: the thread that owns it where threads are assigned by hand
    const int32_t* order;     // a linear extension of the step
    ost_task task;
    void* const* users;  // per op
    // What ops write and read, or null: in steps of phase p, which is step % phases, array i of an op lies at
    // data[p * data_begin[n_ops] + data_begin[op] + i].
    void* const* data;
    const int32_t* data_begin;  // n_ops + 1
};

constexpr int phases = 2;

// A task ready to be called, as it lies in every contestant: a pointer the compiler cannot see through, and its call.
struct alignas(64) Item {
    ost_task task;
    ost_call call;

    int32_t operator()(uint64_t step) {
        call.step = step;
        return task(&call);
    }
};

// The task of an op in steps of one phase, its pointers looked up.
inline Item make_item(const PeerGraph& graph, int32_t op, int phase) {
    Item item{graph.task, {}};
    item.call.user = graph.users[op];
    if (graph.data != nullptr) {
        item.call.n_arrays = graph.data_begin[op + 1] - graph.data_begin[op];
        item.call.data = graph.data + phase * graph.data_begin[graph.n_ops] + graph.data_begin[op];
    }
    return item;
}

extern "C" {
void* peer_create(const PeerGraph* graph);
int32_t peer_run(void* peer, int64_t steps);  // steps is a multiple of 64; nonzero: a task failed
void peer_destroy(void* peer);
const char* peer_version();
}
