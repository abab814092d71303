// oneTBB: a flow graph of continue nodes, built once and run again and again in an arena of two threads.
#include <tbb/flow_graph.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/version.h>

#include <atomic>
#include <memory>

#include "unrolled.h"

namespace {

using Point = tbb::flow::continue_node<tbb::flow::continue_msg>;

struct Flow {
    Unrolled unrolled;
    tbb::global_control limit{tbb::global_control::max_allowed_parallelism, 2};
    tbb::task_arena arena{2};
    std::unique_ptr<tbb::flow::graph> graph;
    std::unique_ptr<tbb::flow::broadcast_node<tbb::flow::continue_msg>> start;
    std::vector<std::unique_ptr<Point>> points;
    std::atomic<int32_t> failed{0};
};

}  // namespace

void* peer_create(const PeerGraph* description) {
    auto* flow = new Flow{unroll(*description)};
    flow->arena.execute([flow] {
        flow->graph = std::make_unique<tbb::flow::graph>();
        flow->start = std::make_unique<tbb::flow::broadcast_node<tbb::flow::continue_msg>>(*flow->graph);
        for (Node& node : flow->unrolled.nodes) {
            flow->points.push_back(std::make_unique<Point>(*flow->graph, [flow, &node](const tbb::flow::continue_msg&) {
                if (node() != 0)
                    flow->failed = 1;
            }));
        }
        for (size_t i = 0; i < flow->points.size(); ++i) {
            const Node& node = flow->unrolled.nodes[i];
            if (node.n_sources == 0)
                tbb::flow::make_edge(*flow->start, *flow->points[i]);
            for (const int32_t target : node.targets) {
                tbb::flow::make_edge(*flow->points[i], *flow->points[static_cast<size_t>(target)]);
            }
        }
    });
    return flow;
}

int32_t peer_run(void* peer, int64_t steps) {
    auto& flow = *static_cast<Flow*>(peer);
    flow.arena.execute([&] {
        for (int64_t done = 0; done < steps; done += flow.unrolled.steps) {
            flow.start->try_put(tbb::flow::continue_msg());
            flow.graph->wait_for_all();
        }
    });
    return flow.failed;
}

void peer_destroy(void* peer) {
    auto* flow = static_cast<Flow*>(peer);
    flow->arena.execute([flow] {
        flow->points.clear();
        flow->start.reset();
        flow->graph.reset();
    });
    delete flow;
}

const char* peer_version() { return TBB_VERSION_STRING; }
