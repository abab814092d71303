// Taskflow: one graph, built once, run n times by an executor of two threads.
#include <atomic>
#include <taskflow/taskflow.hpp>

#include "unrolled.h"

namespace {

struct Flow {
    Unrolled unrolled;
    tf::Executor executor{2};
    tf::Taskflow taskflow;
    std::atomic<int32_t> failed{0};
};

}  // namespace

void* peer_create(const PeerGraph* graph) {
    auto* flow = new Flow{unroll(*graph)};
    std::vector<tf::Task> tasks;
    for (Node& node : flow->unrolled.nodes) {
        tasks.push_back(flow->taskflow.emplace([flow, &node] {
            if (node() != 0)
                flow->failed = 1;
        }));
    }
    for (size_t i = 0; i < tasks.size(); ++i) {
        for (const int32_t target : flow->unrolled.nodes[i].targets)
            tasks[i].precede(tasks[static_cast<size_t>(target)]);
    }
    return flow;
}

int32_t peer_run(void* peer, int64_t steps) {
    auto& flow = *static_cast<Flow*>(peer);
    flow.executor.run_n(flow.taskflow, static_cast<size_t>(steps / flow.unrolled.steps)).wait();
    return flow.failed;
}

void peer_destroy(void* peer) { delete static_cast<Flow*>(peer); }

const char* peer_version() { return tf::version(); }
