// Kernels, by their names, and graphs: captured, instantiated, updated, launched.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>

#include "fake.h"

namespace fake {

namespace {

// A kernel's parameters as they are passed, each in eight bytes.
struct Given {
    std::uint64_t words[8];
    template <typename T>
    T at(int index) const {
        T value;
        std::memcpy(&value, &words[index], sizeof value);
        return value;
    }
    template <typename T>
    T* array(int index, std::int64_t count) const {
        bool on_device = false;
        void* const data = reached(at<std::uint64_t>(index), static_cast<std::uint64_t>(count) * sizeof(T), on_device);
        return on_device ? static_cast<T*>(data) : nullptr;
    }
};

using Body = int (*)(const Given& given);  // a code: the failure that breaks the device

struct Kernel {
    const char* name;
    std::vector<std::size_t> sizes;
    Body body;
};

// Those of kernels.cu.
const std::vector<Kernel>& kernels() {
    static const std::vector<Kernel>& all = *new std::vector<Kernel>{
        {"nothing", {}, [](const Given&) { return 0; }},
        {"axpb",
         {8, 8, 8, 8},
         [](const Given& given) {
             const auto count = given.at<std::int64_t>(3);
             auto* const x = given.array<double>(0, count);
             if (x == nullptr)
                 return 700;
             for (std::int64_t at = 0; at < count; ++at)
                 x[at] = x[at] * given.at<double>(1) + given.at<double>(2);
             return 0;
         }},
        {"add",
         {8, 8, 8, 8},
         [](const Given& given) {
             const auto count = given.at<std::int64_t>(3);
             const auto* const a = given.array<double>(1, count);
             const auto* const b = given.array<double>(2, count);
             auto* const sum = given.array<double>(0, count);
             if (a == nullptr || b == nullptr || sum == nullptr)
                 return 700;
             for (std::int64_t at = 0; at < count; ++at)
                 sum[at] = a[at] + b[at];
             return 0;
         }},
        {"smooth",
         {8, 8, 8},
         [](const Given& given) {
             const auto count = given.at<std::int64_t>(1);
             auto* const x = given.array<float>(0, count);
             if (x == nullptr)
                 return 700;
             for (std::int64_t at = 0; at < count; ++at)
                 for (std::int64_t round = 0; round < given.at<std::int64_t>(2); ++round)
                     x[at] = std::fma(x[at], 0.999F, 0.001F);
             return 0;
         }},
        {"point",  // of the benchmark
         {8, 8, 8, 8, 8, 8},
         [](const Given& given) {
             const auto count = given.at<std::int64_t>(4);
             auto* const out = given.array<float>(0, count);
             const float* const in[] = {given.array<float>(1, count), given.array<float>(2, count),
                                        given.array<float>(3, count)};
             if (out == nullptr || in[0] == nullptr || in[1] == nullptr || in[2] == nullptr)
                 return 700;
             for (std::int64_t at = 0; at < count; ++at) {
                 float value = 0.25F * in[0][at] + 0.5F * in[1][at] + 0.25F * in[2][at];
                 for (std::int64_t round = 0; round < given.at<std::int64_t>(5); ++round)
                     value = std::fma(value, 0.999F, 0.001F);
                 out[at] = value;
             }
             return 0;
         }},
        {"stall",
         {8},
         [](const Given& given) {
             std::this_thread::sleep_for(std::chrono::nanoseconds(given.at<std::int64_t>(0)));
             return 0;
         }},
        {"hold",
         {8},
         [](const Given& given) {
             const auto* const flag = given.at<const std::atomic<int>*>(0);
             const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
             while (flag->load() == 0 && std::chrono::steady_clock::now() < end)
                 std::this_thread::sleep_for(std::chrono::microseconds(100));
             return 0;
         }},
        {"fault", {}, [](const Given&) { return 700; }},
    };
    return all;
}

struct Module {
    std::string image;
};

// A launch, its parameters as they are now.
Work launched(const Kernel* kernel, void** parameters, FakeContext* context) {
    Given given{};
    for (std::size_t at = 0; at < kernel->sizes.size(); ++at)
        std::memcpy(&given.words[at], parameters[at], kernel->sizes[at]);
    return [kernel, given, context] {
        if (const int failure = kernel->body(given); failure != 0)
            context->fail(failure);
    };
}

struct NodeParameters {  // CUDA_KERNEL_NODE_PARAMS_v2
    const Kernel* kernel;
    unsigned grid[3], block[3], shared_bytes;
    void** parameters;
    void* others[3];
};

// Nodes in an order that their edges allow: in every other launch the latest first, so that what should come after
// something and does not comes before it; else by chance.
void run(const std::vector<Node>& nodes, FakeContext& context) {
    static std::atomic<unsigned> launches{0};
    const unsigned launch = launches++;
    std::minstd_rand chance(launch);
    std::vector<std::size_t> left(nodes.size());
    std::vector<std::vector<std::size_t>> next(nodes.size());
    std::set<std::pair<std::size_t, std::size_t>> ready;  // by rank
    const auto add = [&](std::size_t at) { ready.emplace(launch % 2 == 0 ? nodes.size() - at : chance(), at); };
    for (std::size_t at = 0; at < nodes.size(); ++at) {
        left[at] = nodes[at].after.size();
        for (const std::size_t before : nodes[at].after)
            next[before].push_back(at);
        if (left[at] == 0)
            add(at);
    }
    while (!ready.empty()) {
        const std::size_t at = ready.begin()->second;
        ready.erase(ready.begin());
        if (context.failure() == 0)
            nodes[at].work();
        for (const std::size_t after : next[at])
            if (--left[after] == 0)
                add(after);
    }
}

// The graph that was made executable last, for tests: a line for each node, what it is and what it comes after.
struct Latest {
    std::mutex mutex;
    std::string lines;

    void tell(const std::vector<Node>& nodes) {
        const std::lock_guard<std::mutex> lock(mutex);
        lines.clear();
        for (const Node& node : nodes) {
            lines += node.kind + ":";
            for (const std::size_t before : node.after)
                lines += " " + std::to_string(before);
            lines += "\n";
        }
    }
};
Latest& latest() {
    static Latest& made = *new Latest;
    return made;
}

std::shared_ptr<FakeExec> exec_of(GraphExec exec) { return reinterpret_cast<Handle<FakeExec>*>(exec)->held; }

FakeGraph& graph_of(Graph graph) { return *reinterpret_cast<Handle<FakeGraph>*>(graph)->held; }

}  // namespace

}  // namespace fake

using namespace fake;

// Valid until the next graph is made executable.
FAKE_CUDA const char* fake_cuda_graph() { return latest().lines.c_str(); }

FAKE_CUDA Result cuModuleLoadData(Module** module, const void* image) {
    ENTER(kContext | kNoCapture);
    const std::string text = static_cast<const char*>(image);
    if (text.find(".entry") == std::string::npos)
        return 200;  // INVALID_IMAGE
    *module = new Module{text};
    return kSuccess;
}

FAKE_CUDA Result cuModuleGetFunction(const Kernel** function, Module* module, const char* name) {
    ENTER(kContext);
    for (const Kernel& each : kernels())
        if (std::strcmp(each.name, name) == 0 && module->image.find(name) != std::string::npos) {
            *function = &each;
            return kSuccess;
        }
    return kNotFound;
}

FAKE_CUDA Result cuLaunchKernel(const Kernel* kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z, unsigned, Stream handle,
                                void** parameters, void**) {
    ENTER(kContext);
    Result code = kSuccess;
    const auto stream = stream_of(handle, code);
    if (code != kSuccess)
        return code;
    if (grid_x * grid_y * grid_z == 0 || block_x * block_y * block_z == 0 || block_x * block_y * block_z > 1024)
        return kInvalidValue;
    return submit(*stream, std::string("kernel ") + kernel->name, launched(kernel, parameters, stream->context));
}

FAKE_CUDA Result cuStreamBeginCapture_v2(Stream handle, int mode) {
    ENTER(kContext);
    Result code = kSuccess;
    const auto stream = stream_of(handle, code);
    if (code != kSuccess)
        return code;
    const std::lock_guard<std::mutex> lock(captures().mutex);
    if (stream->captured.capture != nullptr || reinterpret_cast<std::uintptr_t>(handle) <= 2)
        return kCaptureUnsupported;
    const auto made = std::make_shared<FakeCapture>();
    made->by = std::this_thread::get_id();
    made->mode = mode;
    made->streams.push_back(stream);
    stream->captured.capture = made;
    captures().all.push_back(made);
    return kSuccess;
}

FAKE_CUDA Result cuStreamEndCapture(Stream handle, Graph* graph) {
    ENTER(kContext);
    Result code = kSuccess;
    const auto stream = stream_of(handle, code);
    if (code != kSuccess)
        return code;
    *graph = nullptr;
    const std::lock_guard<std::mutex> lock(captures().mutex);
    const auto capture = stream->captured.capture;
    if (capture == nullptr)
        return 401;
    if (capture->mode != kCaptureRelaxed && capture->by != std::this_thread::get_id())
        return kCaptureWrongThread;
    const auto& streams = capture->streams;
    const bool joined = std::all_of(streams.begin() + 1, streams.end(), [](const auto& each) { return each->joined; });
    const bool first = streams.front() == stream;
    end(*capture);
    if (!capture->valid)
        return kCaptureInvalidated;
    if (!joined || !first)
        return 904;  // STREAM_CAPTURE_UNJOINED
    *graph = reinterpret_cast<Graph>(new Handle<FakeGraph>{capture->graph});
    return kSuccess;
}

FAKE_CUDA Result cuGraphCreate(Graph* graph, unsigned) {
    ENTER(kContext);
    *graph = reinterpret_cast<Graph>(new Handle<FakeGraph>{std::make_shared<FakeGraph>()});
    return kSuccess;
}

FAKE_CUDA Result cuGraphAddKernelNode_v2(GraphNode* node, Graph graph, const GraphNode* after, std::size_t count,
                                         const NodeParameters* given) {
    ENTER(kContext);
    Nodes before;
    for (std::size_t at = 0; at < count; ++at)
        before.insert(reinterpret_cast<std::size_t>(after[at]) - 1);
    const std::string kind = std::string("kernel ") + given->kernel->name;
    graph_of(graph).nodes.push_back({kind, launched(given->kernel, given->parameters, current()), before});
    *node = reinterpret_cast<GraphNode>(graph_of(graph).nodes.size());
    return kSuccess;
}

FAKE_CUDA Result cuGraphGetNodes(Graph graph, GraphNode* nodes, std::size_t* count) {
    ENTER(kContext);
    if (nodes != nullptr)
        return kInvalidValue;  // nobody asks for them
    *count = graph_of(graph).nodes.size();
    return kSuccess;
}

FAKE_CUDA Result cuGraphInstantiateWithFlags(GraphExec* exec, Graph graph, unsigned long long) {
    ENTER(kContext);
    const auto made = std::make_shared<FakeExec>();
    made->nodes = std::make_shared<const std::vector<Node>>(graph_of(graph).nodes);
    latest().tell(graph_of(graph).nodes);
    *exec = reinterpret_cast<GraphExec>(new Handle<FakeExec>{made});
    return kSuccess;
}

FAKE_CUDA Result cuGraphExecUpdate_v2(GraphExec handle, Graph graph, UpdateInfo* info) {
    ENTER(kContext);
    const auto exec = exec_of(handle);
    if (exec == nullptr)
        return 400;
    const std::vector<Node>& nodes = graph_of(graph).nodes;
    const std::lock_guard<std::mutex> lock(exec->mutex);
    const bool same = std::equal(nodes.begin(), nodes.end(), exec->nodes->begin(), exec->nodes->end(),
                                 [](const Node& a, const Node& b) { return a.kind == b.kind && a.after == b.after; });
    info->result = same ? 0 : 2;
    if (!same)
        return kExecUpdateFailure;
    exec->nodes = std::make_shared<const std::vector<Node>>(nodes);
    latest().tell(nodes);
    return kSuccess;
}

FAKE_CUDA Result cuGraphLaunch(GraphExec handle, Stream stream_handle) {
    ENTER(kContext);
    Result code = kSuccess;
    const auto stream = stream_of(stream_handle, code);
    const auto exec = exec_of(handle);
    if (code != kSuccess)
        return code;
    if (exec == nullptr)
        return 400;
    const std::lock_guard<std::mutex> lock(exec->mutex);
    FakeContext* const context = stream->context;
    return submit(*stream, "graph", [nodes = exec->nodes, context] { run(*nodes, *context); });
}

FAKE_CUDA Result cuGraphDestroy(Graph graph) {
    ENTER(kContext);
    reinterpret_cast<Handle<FakeGraph>*>(graph)->held = nullptr;
    return kSuccess;
}

FAKE_CUDA Result cuGraphExecDestroy(GraphExec exec) {
    ENTER(kContext);
    reinterpret_cast<Handle<FakeExec>*>(exec)->held = nullptr;
    return kSuccess;
}
