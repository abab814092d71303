// Captures: parts on streams that fork and join by events, as CUDA has it, into one graph.
#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "devices/cuda/device.h"

namespace ostinato {

namespace cuda {

// The streams that the parts of a capture are recorded on, and which of them wait for each other, so that what is
// captured has the order of the parts: each node comes after the one before on its stream, and after what that waits
// for.
//
// Two parts share a stream only if one comes after the other. Libraries keep memory by stream (workspaces, what was
// allocated and freed), which parts that may run side by side must not share.
struct Branches {
    // Of so many at most; what would need another is put behind others. Libraries may keep megabytes for each stream.
    static constexpr std::uint32_t kMost = 16;
    static constexpr std::uint32_t kNoMark = UINT32_MAX;

    struct Part {
        std::uint32_t branch = 0;
        std::vector<std::uint32_t> waits;  // marks; before it
        std::uint32_t mark = kNoMark;      // set after it, for others to wait for
        bool first = false;                // of its branch
    };
    std::vector<Part> parts;
    std::uint32_t count = 0, marks = 0;  // marks are set again when all have waited for them

    // By part, the earlier ones that it comes after.
    explicit Branches(std::span<const std::vector<std::uint32_t>> after);
};

using Known = std::array<std::uint32_t, Branches::kMost>;  // by branch, one more than the last part that is implied

static void add(Known& known, const Known& more) {
    for (std::size_t branch = 0; branch < known.size(); ++branch)
        known[branch] = std::max(known[branch], more[branch]);
}

Branches::Branches(std::span<const std::vector<std::uint32_t>> after) : parts(after.size()) {
    std::vector<Known> done(after.size());                        // what the end of each part implies
    std::vector<std::vector<std::uint32_t>> needs(after.size());  // parts that each waits for
    std::vector<std::uint32_t> waiting(after.size());             // how many wait for each
    Known last{};                                                 // by branch, one more than its last part
    for (std::uint32_t at = 0; at < after.size(); ++at) {
        Part& part = parts[at];
        Known implied{};
        for (const std::uint32_t before : after[at])
            add(implied, done[before]);
        // The branch whose last part is the latest of those that this one comes after in any case.
        std::uint32_t chosen = kMost;
        for (std::uint32_t branch = 0; branch < count; ++branch)
            if (implied[branch] == last[branch] && (chosen == kMost || last[branch] > last[chosen]))
                chosen = branch;
        part.first = chosen == kMost && count < kMost;
        if (part.first)
            chosen = count++;
        else if (chosen == kMost)  // the one that has waited longest
            chosen = static_cast<std::uint32_t>(std::min_element(last.begin(), last.end()) - last.begin());
        part.branch = chosen;
        Known& known = done[at];
        if (!part.first)
            known = done[last[chosen] - 1];
        std::vector<std::uint32_t> latest = after[at];  // first, as they may imply others
        std::sort(latest.begin(), latest.end(), std::greater<>());
        for (const std::uint32_t before : latest) {
            if (known[parts[before].branch] > before)
                continue;
            needs[at].push_back(before);
            ++waiting[before];
            add(known, done[before]);
        }
        known[chosen] = last[chosen] = at + 1;
    }
    std::vector<std::uint32_t> unused;
    for (std::uint32_t at = 0; at < after.size(); ++at) {
        for (const std::uint32_t before : needs[at]) {
            parts[at].waits.push_back(parts[before].mark);
            if (--waiting[before] == 0)
                unused.push_back(parts[before].mark);
        }
        if (waiting[at] == 0)
            continue;
        if (unused.empty())
            unused.push_back(marks++);
        parts[at].mark = unused.back();
        unused.pop_back();
    }
}

// Events that streams wait for each other by, for the time of a capture.
class Marks {
public:
    explicit Marks(const cuda::Api& api) : api_(api) {}
    ~Marks() { clear(); }
    Marks(const Marks&) = delete;
    Marks& operator=(const Marks&) = delete;

    std::int32_t make(std::uint32_t count) {
        for (std::uint32_t made = 0; made < count; ++made) {
            cuda::Event event = nullptr;
            if (const cuda::Result code = api_.event_create(&event, cuda::kEventDisableTiming); code != kSuccess)
                return code;
            events_.push_back(event);
        }
        return kSuccess;
    }
    void clear() {
        for (const cuda::Event event : events_)
            api_.event_destroy(event);
        events_.clear();
    }
    std::int32_t set(std::uint32_t mark, cuda::Stream stream) const { return api_.event_record(events_[mark], stream); }
    std::int32_t wait(std::uint32_t mark, cuda::Stream stream) const {
        return api_.stream_wait(stream, events_[mark], 0);
    }

private:
    const cuda::Api& api_;
    std::vector<cuda::Event> events_;
};

}  // namespace cuda

namespace {

using cuda::Branches;
using cuda::handle_of;
using cuda::kSuccess;
using cuda::Marks;
using cuda::stream_of;

constexpr std::size_t kMostRetired = 16;  // executable graphs hold memory of the device

}  // namespace

class CudaSequence final : public Sequence {
public:
    CudaSequence(std::shared_ptr<CudaDevice> device, cuda::GraphExec exec, std::uint64_t nodes)
        : device_(std::move(device)), exec_(exec), nodes_(nodes) {}
    ~CudaSequence() override { device_->retire(exec_, nodes_); }
    CudaSequence(const CudaSequence&) = delete;
    CudaSequence& operator=(const CudaSequence&) = delete;

    std::int32_t launch(StreamHandle stream) override {
        return device_->call_driver([&] { return device_->api_->graph_launch(exec_, stream_of(stream)); });
    }

private:
    const std::shared_ptr<CudaDevice> device_;
    const cuda::GraphExec exec_;
    const std::uint64_t nodes_;
};

// Parts on streams that leave the first one and come back to it.
class CudaDevice::Recording {
public:
    Recording(CudaDevice& device, StreamHandle stream, const Parts& parts)
        : device_(device), stream_(stream), parts_(parts), branches_(parts.after), marks_(*device.api_) {}

    // Before the capture begins.
    std::int32_t prepare() {
        const std::int32_t code = branches_.count > 1 ? marks_.make(branches_.marks + 1) : kSuccess;
        return code != kSuccess ? code : device_.recorders(stream_, std::max(branches_.count, 1U), streams_);
    }
    cuda::Stream first() const { return streams_.front(); }

    std::int32_t record() {
        std::int32_t code = branches_.count > 1 ? marks_.set(ends(), first()) : kSuccess;
        std::uint32_t left = 1;  // so many streams are part of the capture
        for (std::uint32_t at = 0; at < branches_.parts.size() && code == kSuccess; ++at) {
            left = std::max(left, branches_.parts[at].branch + 1);
            code = record(at);
        }
        const Current current(device_);
        for (std::uint32_t branch = 1; branch < left; ++branch) {  // also after a failure: to be used again
            std::int32_t joined = marks_.set(ends(), streams_[branch]);
            if (joined == kSuccess)
                joined = marks_.wait(ends(), first());
            code = code != kSuccess ? code : joined;
        }
        return code;
    }

    // After the capture's end; its streams serve again, if it ended well.
    void end(bool well) {
        marks_.clear();
        if (well)
            device_.recorded(stream_, streams_);
        else
            for (const cuda::Stream stream : streams_)
                device_.api_->stream_destroy(stream);
    }

private:
    // Which stands for the beginning, then for the end of one stream after the other.
    std::uint32_t ends() const { return branches_.marks; }

    std::int32_t record(std::uint32_t at) {
        const Branches::Part& part = branches_.parts[at];
        const cuda::Stream stream = streams_[part.branch];
        const Current current(device_);
        std::int32_t code = current.code;
        if (code == kSuccess && part.first && part.branch > 0)
            code = marks_.wait(ends(), stream);
        for (std::size_t each = 0; each < part.waits.size() && code == kSuccess; ++each)
            code = marks_.wait(part.waits[each], stream);
        if (code == kSuccess)
            code = parts_.enqueue(at, handle_of(stream));
        if (code != kSuccess || part.mark == Branches::kNoMark)
            return code;
        const Current again(device_);  // the part may have changed it
        return again.code != kSuccess ? again.code : marks_.set(part.mark, stream);
    }

    CudaDevice& device_;
    const StreamHandle stream_;  // that is to run it
    const Parts& parts_;
    const Branches branches_;
    Marks marks_;
    std::vector<cuda::Stream> streams_;
};

std::unique_ptr<Sequence> CudaDevice::capture(StreamHandle stream, const Parts& parts, std::int32_t& code) {
    const Current current(*this);
    if ((code = current.code) != kSuccess)
        return nullptr;
    Recording recording(*this, stream, parts);
    if ((code = recording.prepare()) != kSuccess)
        return nullptr;
    // Thread-local: what other threads do meanwhile is theirs.
    if ((code = api_->capture_begin(recording.first(), cuda::kCaptureThreadLocal)) != kSuccess) {
        recording.end(false);
        return nullptr;
    }
    code = recording.record();
    const Current again(*this);
    cuda::Graph graph = nullptr;
    const cuda::Result ended = api_->capture_end(recording.first(), &graph);
    recording.end(ended == kSuccess);
    if (code == kSuccess)
        code = ended == kSuccess && graph == nullptr ? cuda::kCaptureInvalidated : ended;
    cuda::GraphExec exec = nullptr;
    std::uint64_t nodes = 0;
    if (code == kSuccess)
        code = instantiate(graph, exec, nodes);
    if (graph != nullptr)
        api_->graph_destroy(graph);
    return code == kSuccess ? std::make_unique<CudaSequence>(shared_from_this(), exec, nodes) : nullptr;
}

// By an update of one that nothing launches any more, if one has the same form: several times as fast.
std::int32_t CudaDevice::instantiate(cuda::Graph graph, cuda::GraphExec& exec, std::uint64_t& nodes) {
    std::size_t count = 0;
    if (const cuda::Result code = api_->graph_nodes(graph, nullptr, &count); code != kSuccess)
        return code;
    nodes = count;
    const auto taken = [this, count] {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (auto each = retired_.rbegin(); each != retired_.rend(); ++each)
            if (each->nodes == count) {
                const cuda::GraphExec found = each->exec;
                retired_.erase(std::next(each).base());
                return found;
            }
        return cuda::GraphExec{};
    };
    if (api_->graph_update != nullptr) {
        if (const cuda::GraphExec found = taken(); found != nullptr) {
            cuda::UpdateInfo info{};
            if (api_->graph_update(found, graph, &info) == kSuccess) {
                exec = found;
                return kSuccess;
            }
            api_->exec_destroy(found);
        }
    }
    return api_->graph_instantiate(&exec, graph, 0);
}

// Streams to capture on what one stream is to run.
std::int32_t CudaDevice::recorders(StreamHandle of, std::uint32_t count, std::vector<cuda::Stream>& streams) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (std::vector<cuda::Stream>* const from : {&recorders_[of], &spare_}) {
            while (streams.size() < count && !from->empty()) {
                streams.push_back(from->back());
                from->pop_back();
            }
        }
    }
    std::int32_t code = kSuccess;
    while (code == kSuccess && streams.size() < count) {
        cuda::Stream stream = nullptr;
        code = api_->stream_create(&stream, cuda::kStreamNonBlocking);
        if (code == kSuccess)
            streams.push_back(stream);
    }
    if (code != kSuccess)
        recorded(of, streams);
    return code;
}

void CudaDevice::recorded(StreamHandle of, const std::vector<cuda::Stream>& streams) {
    const std::lock_guard<std::mutex> lock(mutex_);
    recorders_[of].insert(recorders_[of].end(), streams.rbegin(), streams.rend());
}

// The driver lets its last launch end, whether it is updated or destroyed.
void CudaDevice::retire(cuda::GraphExec exec, std::uint64_t nodes) {
    const Current current(*this);
    if (current.code != kSuccess)
        return;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        retired_.push_back({exec, nodes});
        if (retired_.size() <= kMostRetired)
            return;
        exec = retired_.front().exec;
        retired_.erase(retired_.begin());
    }
    api_->exec_destroy(exec);
}

}  // namespace ostinato
