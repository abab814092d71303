// OpenMP: one thread creates a task with depend clauses for every op of every step, two threads run them.
#include <omp.h>

#include <atomic>
#include <string>
#include <vector>

#include "peer.h"

namespace {

// A step's tokens are written again this many steps later, which is far enough never to hold anything up.
constexpr uint64_t token_steps = 64;

struct Point {
    Item items[phases];
    std::vector<int32_t> sources;
    std::vector<int32_t> distances;
};

struct Tasks {
    std::vector<Point> points;
    std::vector<int32_t> order;
    std::vector<char> tokens;
    uint64_t step = 0;
    std::atomic<int32_t> failed{0};

    char* token(uint64_t at, int32_t op) {
        return &tokens[(at % token_steps) * points.size() + static_cast<size_t>(op)];
    }
};

}  // namespace

void* peer_create(const PeerGraph* graph) {
    auto* tasks = new Tasks;
    for (int32_t op = 0; op < graph->n_ops; ++op)
        tasks->points.push_back({{make_item(*graph, op, 0), make_item(*graph, op, 1)}, {}, {}});
    for (int32_t e = 0; e < graph->n_edges; ++e) {
        Point& point = tasks->points[static_cast<size_t>(graph->target[e])];
        point.sources.push_back(graph->source[e]);
        point.distances.push_back(graph->distance[e]);
    }
    tasks->order.assign(graph->order, graph->order + graph->n_ops);
    tasks->tokens.resize(token_steps * tasks->points.size());
    return tasks;
}

int32_t peer_run(void* peer, int64_t steps) {
    auto* tasks = static_cast<Tasks*>(peer);
    const uint64_t begin = tasks->step, end = begin + static_cast<uint64_t>(steps);
#pragma omp parallel num_threads(2)
#pragma omp single
    for (uint64_t step = begin; step < end; ++step) {
        for (const int32_t op : tasks->order) {
            Point* point = &tasks->points[static_cast<size_t>(op)];
            const int32_t* source = point->sources.data();
            const int32_t* distance = point->distances.data();
            const int n = static_cast<int>(point->sources.size());
#pragma omp task firstprivate(point, step, tasks)                                                           \
    depend(iterator(i = 0 : n), in : *tasks -> token(step - static_cast<uint64_t>(distance[i]), source[i])) \
    depend(out : *tasks->token(step, op))
            if (point->items[step % phases](step) != 0)
                tasks->failed = 1;
        }
    }
    tasks->step = end;
    return tasks->failed;
}

void peer_destroy(void* peer) { delete static_cast<Tasks*>(peer); }

const char* peer_version() {
    static const std::string version = std::to_string(_OPENMP);
    return version.c_str();
}
