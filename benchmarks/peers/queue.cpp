// A small ready-queue runtime: an atomic counter of unfinished predecessors per task, one queue of ready tasks with the
// earliest step first, two threads. What a dynamic scheduler can do when the queue itself costs next to nothing.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "unrolled.h"

namespace {

struct alignas(64) Counter {
    std::atomic<int32_t> value;
};

class ReadyQueue {
public:
    void reserve(size_t size) { heap_.reserve(size); }

    void push(int32_t node) {
        lock();
        heap_.push_back(node);
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
        size_.store(heap_.size(), std::memory_order_relaxed);
        unlock();
    }

    // The ready node of the earliest step, or -1.
    int32_t pop() {
        if (size_.load(std::memory_order_relaxed) == 0)
            return -1;
        lock();
        int32_t node = -1;
        if (!heap_.empty()) {
            std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
            node = heap_.back();
            heap_.pop_back();
            size_.store(heap_.size(), std::memory_order_relaxed);
        }
        unlock();
        return node;
    }

private:
    void lock() {
        while (locked_.exchange(true, std::memory_order_acquire)) {
            while (locked_.load(std::memory_order_relaxed)) {
            }
        }
    }
    void unlock() { locked_.store(false, std::memory_order_release); }

    alignas(128) std::atomic<bool> locked_{false};
    alignas(128) std::atomic<size_t> size_{0};
    std::vector<int32_t> heap_;  // nodes are numbered step by step
};

struct Queue {
    Unrolled unrolled;
    std::unique_ptr<Counter[]> counters;
    ReadyQueue ready;
    alignas(128) std::atomic<int64_t> left{0};        // tasks in the rounds that have not ended
    alignas(128) std::atomic<int64_t> unfinished{0};  // tasks of this round of the unrolled graph
    std::atomic<int32_t> failed{0};

    // Everything that is ready at the beginning of a round of the unrolled graph.
    void begin_round() {
        const auto& nodes = unrolled.nodes;
        unfinished.store(static_cast<int64_t>(nodes.size()), std::memory_order_relaxed);
        for (size_t i = 0; i < nodes.size(); ++i) {
            if (nodes[i].n_sources == 0)
                ready.push(static_cast<int32_t>(i));
        }
    }

    void work() {
        while (left.load(std::memory_order_acquire) > 0) {
            if (const int32_t node = ready.pop(); node >= 0)
                execute(static_cast<size_t>(node));
        }
    }

    void execute(size_t index) {
        Node& node = unrolled.nodes[index];
        if (node() != 0)
            failed = 1;
        counters[index].value.store(node.n_sources, std::memory_order_relaxed);
        for (const int32_t target : node.targets) {
            if (counters[target].value.fetch_sub(1, std::memory_order_acq_rel) == 1)
                ready.push(target);
        }
        if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            const auto size = static_cast<int64_t>(unrolled.nodes.size());
            if (left.load(std::memory_order_relaxed) > size)
                begin_round();
            left.fetch_sub(size, std::memory_order_release);
        }
    }
};

}  // namespace

void* peer_create(const PeerGraph* graph) {
    auto* queue = new Queue{unroll(*graph), nullptr};
    const auto& nodes = queue->unrolled.nodes;
    queue->counters = std::make_unique<Counter[]>(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i)
        queue->counters[i].value = nodes[i].n_sources;
    queue->ready.reserve(nodes.size());
    return queue;
}

int32_t peer_run(void* peer, int64_t steps) {
    auto& queue = *static_cast<Queue*>(peer);
    const auto size = static_cast<int64_t>(queue.unrolled.nodes.size());
    queue.left = steps / queue.unrolled.steps * size;
    queue.begin_round();
    std::thread second([&] { queue.work(); });
    queue.work();
    second.join();
    return queue.failed;
}

void peer_destroy(void* peer) { delete static_cast<Queue*>(peer); }

const char* peer_version() { return "C++"; }
