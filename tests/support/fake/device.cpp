#include "device.h"

#include <algorithm>
#include <iterator>
#include <queue>
#include <span>

#include "blocks.h"

namespace ostinato {

namespace {

constexpr char kUninitialised = '\xA5';

std::size_t index(FakeDevice::Method method) { return static_cast<std::size_t>(method); }

// An order that parts may have: always the latest, of those that all has been done for. So what should come after
// something and does not comes before it, and tests see that.
std::vector<std::uint32_t> latest_first(std::span<const std::vector<std::uint32_t>> after) {
    std::vector<std::size_t> left(after.size());
    std::vector<std::vector<std::uint32_t>> next(after.size());
    std::priority_queue<std::uint32_t> ready;
    for (std::uint32_t part = 0; part < after.size(); ++part) {
        left[part] = after[part].size();
        for (const std::uint32_t before : after[part])
            next[before].push_back(part);
        if (left[part] == 0)
            ready.push(part);
    }
    std::vector<std::uint32_t> order;
    while (!ready.empty()) {
        order.push_back(ready.top());
        ready.pop();
        for (const std::uint32_t part : next[order.back()])
            if (--left[part] == 0)
                ready.push(part);
    }
    return order;
}

}  // namespace

class FakeDevice::FakeSequence final : public Sequence {
public:
    FakeSequence(std::shared_ptr<FakeDevice> device, std::vector<Piece> pieces)
        : device_(std::move(device)), pieces_(std::move(pieces)) {}

    std::int32_t launch(StreamHandle stream) override {
        if (device_->here_.forked())
            return kForked;
        const Lock lock(device_->mutex_);
        if (const std::int32_t code = device_->begin(Method::kLaunch))
            return code;
        return device_->enqueue(stream, pieces_);
    }

private:
    const std::shared_ptr<FakeDevice> device_;
    const std::vector<Piece> pieces_;
};

FakeDevice::Memory::Memory(std::int64_t size) : bytes(static_cast<std::size_t>(size), kUninitialised) {}

FakeDevice::~FakeDevice() = default;

// Counts an attempt, and says whether it is to fail at once.
std::int32_t FakeDevice::begin(Method method) {
    ++counters_.calls[index(method)];
    if (broken_ != 0)
        return broken_;
    const bool is_work =
        method == Method::kCopy || method == Method::kFill || method == Method::kCall || method == Method::kLaunch;
    for (const Method failing : {method, Method::kAnyWork}) {
        if (failing == Method::kAnyWork && !is_work)
            continue;
        auto& [left, code] = failing_[index(failing)];
        if (left != 0 && --left == 0) {
            if (ends_all(code))
                broken_ = code;
            wake();
            return code;
        }
    }
    return 0;
}

FakeDevice::Stream* FakeDevice::stream_of(StreamHandle stream) {
    const auto found = streams_.find(stream);
    return found == streams_.end() || found->second.closed ? nullptr : &found->second;
}

std::int32_t FakeDevice::enqueue(StreamHandle handle, std::vector<Piece> pieces) {
    Stream* const stream = stream_of(handle);
    if (stream == nullptr)
        return kInvalid;
    if (stream->recorded != nullptr) {
        std::move(pieces.begin(), pieces.end(), std::back_inserter(*stream->recorded));
        return 0;
    }
    const std::int64_t time = now();
    for (Piece& piece : pieces) {
        piece.number = ++numbers_;
        piece.enqueued = time;
        in_flight_ += piece.kind == Kind::kWork;
        stream->pieces.push_back(std::move(piece));
    }
    counters_.largest_in_flight = std::max(counters_.largest_in_flight, std::uint64_t{in_flight_});
    wake();
    return 0;
}

std::int32_t FakeDevice::open(StreamHandle& stream) {
    if (here_.forked())
        return kForked;
    const Lock lock(mutex_);
    if (const std::int32_t code = begin(Method::kOpen))
        return code;
    stream = ++last_stream_;
    streams_[stream];
    return 0;
}

void FakeDevice::close(StreamHandle stream) {
    if (here_.forked())
        return;
    const Lock lock(mutex_);
    begin(Method::kClose);
    const auto found = streams_.find(stream);
    if (found == streams_.end())
        return;
    found->second.closed = true;
    if (found->second.pieces.empty() && !found->second.busy)
        streams_.erase(found);
}

std::int32_t FakeDevice::resolve(const Bytes& bytes, std::int64_t low, std::int64_t high, char*& address,
                                 std::shared_ptr<Memory>& memory) const {
    if (!bytes.on_device) {
        address = reinterpret_cast<char*>(bytes.base) + bytes.offset;
        return 0;
    }
    const auto found = memories_.find(bytes.base);
    if (found == memories_.end())
        return kInvalid;
    memory = found->second;
    if (low + bytes.offset < 0 || high + bytes.offset > static_cast<std::int64_t>(memory->bytes.size()))
        return kInvalid;
    address = memory->bytes.data() + bytes.offset;
    return 0;
}

std::int32_t FakeDevice::copy(StreamHandle stream, const Transfer& transfer) {
    if (here_.forked())
        return kForked;
    const Lock lock(mutex_);
    if (const std::int32_t code = begin(Method::kCopy))
        return code;
    char *from = nullptr, *to = nullptr;
    std::shared_ptr<Memory> source, target;
    const Span read = source_span(transfer.blocks), written = target_span(transfer.blocks);
    if (resolve(transfer.source, read.low, read.high, from, source) != 0 ||
        resolve(transfer.target, written.low, written.high, to, target) != 0 || (!source && !target))
        return kInvalid;
    Piece piece;
    piece.is_copy = true;
    piece.what = source && target ? "copy" : target ? "copy to device" : "copy to host";
    (source && target ? piece.within : target ? piece.to_device : piece.to_host) = transfer.bytes;
    piece.delay = delays_.copy;
    piece.body = [from, to, source, target, blocks = transfer.blocks] {
        copy_blocks(from, to, blocks);
        return 0;
    };
    return enqueue(stream, {piece});
}

std::int32_t FakeDevice::fill(StreamHandle stream, const Pattern& pattern) {
    if (here_.forked())
        return kForked;
    const Lock lock(mutex_);
    if (const std::int32_t code = begin(Method::kFill))
        return code;
    char* to = nullptr;
    std::shared_ptr<Memory> target;
    const Span written = target_span(pattern.blocks);
    const std::size_t size = pattern.pattern.size();
    if (resolve(pattern.target, written.low, written.high, to, target) != 0 || !target || size == 0 || size > 16 ||
        (size & (size - 1)) != 0)
        return kInvalid;
    Piece piece;
    piece.what = "fill";
    piece.delay = delays_.fill;
    piece.body = [to, target, blocks = pattern.blocks, bytes = pattern.pattern] {
        fill_blocks(to, blocks, bytes);
        return 0;
    };
    return enqueue(stream, {piece});
}

std::int32_t FakeDevice::call(StreamHandle stream, Function function, std::int64_t delay, std::string what) {
    if (here_.forked())
        return kForked;
    const Lock lock(mutex_);
    if (const std::int32_t code = begin(Method::kCall))
        return code;
    Piece piece;
    piece.what = std::move(what);
    piece.delay = delay;
    piece.body = std::move(function);
    return enqueue(stream, {piece});
}

std::int32_t FakeDevice::record(StreamHandle handle, std::unique_ptr<DeviceEvent>& event) {
    if (here_.forked())
        return kForked;
    const Lock lock(mutex_);
    if (const std::int32_t code = begin(Method::kRecord))
        return code;
    Stream* const stream = stream_of(handle);
    if (stream == nullptr || stream->recorded != nullptr)
        return kInvalid;
    if (!event)
        event = std::make_unique<FakeEvent>();
    auto& mark = static_cast<FakeEvent&>(*event).mark;
    mark = std::make_shared<Mark>();
    if (stream->pieces.empty() && !stream->busy) {
        Due due;
        end_mark(*mark, *stream, due);
        return 0;
    }
    Piece piece;
    piece.kind = Kind::kMark;
    piece.mark = mark;
    return enqueue(handle, {piece});
}

std::int32_t FakeDevice::wait(StreamHandle handle, const DeviceEvent& event) {
    if (here_.forked())
        return kForked;
    const Lock lock(mutex_);
    if (const std::int32_t code = begin(Method::kWait))
        return code;
    Stream* const stream = stream_of(handle);
    const std::shared_ptr<Mark>& mark = static_cast<const FakeEvent&>(event).mark;
    if (stream == nullptr || stream->recorded != nullptr || !mark)
        return kInvalid;
    Piece piece;
    piece.kind = Kind::kWait;
    piece.mark = mark;
    const bool nothing = mark->done && (!mark->failure || mark->failure->told);
    return nothing ? 0 : enqueue(handle, {piece});
}

void FakeDevice::notify(const DeviceEvent& event, Done done, void* with) {
    std::int32_t code = kForked;
    if (!here_.forked()) {
        const Lock lock(mutex_);
        begin(Method::kNotify);
        const std::shared_ptr<Mark>& mark = static_cast<const FakeEvent&>(event).mark;
        if (mark && !mark->done) {
            mark->listeners.emplace_back(done, with);
            return;
        }
        code = mark ? tell_of(*mark) : static_cast<std::int32_t>(kInvalid);
    }
    done(with, code);
}

std::unique_ptr<Sequence> FakeDevice::capture(StreamHandle, const Parts& parts, std::int32_t& code) {
    code = kForked;
    if (here_.forked())
        return nullptr;
    std::vector<std::vector<Piece>> recorded(parts.after.size());
    StreamHandle recording = 0;
    {
        const Lock lock(mutex_);
        code = begin(Method::kCapture);
        if (code != 0 || !captures_)
            return nullptr;
        recording = ++last_stream_;
    }
    for (std::uint32_t part = 0; part < recorded.size() && code == 0; ++part) {
        {
            const Lock lock(mutex_);
            streams_[recording].recorded = &recorded[part];
        }
        code = parts.enqueue(part, recording);
    }
    {
        const Lock lock(mutex_);
        streams_.erase(recording);
    }
    if (code != 0)
        return nullptr;
    std::vector<Piece> pieces;
    for (const std::uint32_t part : latest_first(parts.after))
        std::move(recorded[part].begin(), recorded[part].end(), std::back_inserter(pieces));
    return std::make_unique<FakeSequence>(shared_from_this(), std::move(pieces));
}

Device::Diagnosis FakeDevice::diagnose(std::int32_t code) const {
    if (here_.forked())
        return {"the process was forked after the device was first used", false};
    const Lock lock(mutex_);
    const bool usable = broken_ == 0 && !ends_all(code);
    switch (code) {
        case kInvalid:
            return {"an unknown stream or allocation, bytes outside it, or an event that stands for nothing", usable};
        case kOutOfMemory:
            return {"the device is out of memory", usable};
        case kRaised:
            return {"a function on the device raised: " + message_, usable};
        case kSticky:
            return {"the device is in an error from which only a new process recovers", usable};
        case kLost:
            return {"the device is lost", usable};
        default:
            return {"the device failed with code " + std::to_string(code), usable};
    }
}

std::int32_t FakeDevice::allocate(std::int64_t bytes, std::uint64_t& base) {
    if (here_.forked())
        return kForked;
    const Lock lock(mutex_);
    if (const std::int32_t code = begin(Method::kAllocate))
        return code;
    if (bytes < 0)
        return kInvalid;
    if (bytes > capacity_ - allocated_)
        return kOutOfMemory;
    base = ++last_base_;
    memories_[base] = std::make_shared<Memory>(bytes);
    allocated_ += bytes;
    return 0;
}

void FakeDevice::release(std::uint64_t base) {
    if (here_.forked())
        return;
    const Lock lock(mutex_);
    const auto found = memories_.find(base);
    if (found == memories_.end())
        return;
    allocated_ -= static_cast<std::int64_t>(found->second->bytes.size());
    memories_.erase(found);
}

void* FakeDevice::memory(std::uint64_t base) const {
    if (here_.forked())
        return nullptr;
    const Lock lock(mutex_);
    const auto found = memories_.find(base);
    return found == memories_.end() ? nullptr : found->second->bytes.data();
}

std::int32_t enqueue_on_fake(void* device, std::uint64_t stream, std::int32_t (*function)(void*), void* user,
                             std::int64_t delay) {
    return static_cast<FakeDevice*>(device)->call(
        stream, [function, user] { return function(user); }, delay, "function");
}

}  // namespace ostinato
