// One thread's loop of function calls: the floor for anything that runs on one thread.
#include <vector>

#include "peer.h"

namespace {

struct Loop {
    std::vector<Item> items[phases];
    uint64_t step = 0;
};

}  // namespace

void* peer_create(const PeerGraph* graph) {
    auto* loop = new Loop;
    for (int phase = 0; phase < phases; ++phase) {
        for (int32_t i = 0; i < graph->n_ops; ++i)
            loop->items[phase].push_back(make_item(*graph, graph->order[i], phase));
    }
    return loop;
}

int32_t peer_run(void* peer, int64_t steps) {
    auto& loop = *static_cast<Loop*>(peer);
    int32_t failed = 0;
    for (const uint64_t end = loop.step + static_cast<uint64_t>(steps); loop.step < end; ++loop.step) {
        for (Item& item : loop.items[loop.step % phases])
            failed |= item(loop.step);
    }
    return failed;
}

void peer_destroy(void* peer) { delete static_cast<Loop*>(peer); }

const char* peer_version() { return "C++"; }
