// How a fake device does its work: by a thread that lives while there is some, or step by step.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <system_error>
#include <tuple>

#include "device.h"
#include "park/threads.h"

namespace ostinato {

namespace {

constexpr std::chrono::milliseconds kLinger{20};  // an idle thread stays so long: the interpreter's end waits for it

}  // namespace

std::int64_t FakeDevice::now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

bool FakeDevice::idle() const {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const auto& entry) { return entry.second.pieces.empty() && !entry.second.busy; });
}

// Something is to be done, or to be looked at once more. The lock is held.
void FakeDevice::wake() {
    if (!manual_ && !has_thread_ && !idle()) {
        try {
            // It keeps the device.
            start_thread([device = shared_from_this()] { device->work(); }).detach();
            has_thread_ = true;
        } catch (const std::system_error&) {
            broken_ = kLost;
        }
    }
    changed_.notify_all();
}

void FakeDevice::end_mark(Mark& mark, Stream& stream, Due& due) {
    if (stream.failure && stream.failure->told)
        stream.failure = nullptr;
    mark.done = true;
    mark.code = broken_;
    mark.failure = stream.failure;
    mark.at = stream.free_at;
    for (const auto& listener : mark.listeners)
        due.emplace_back(listener, tell_of(mark));
    mark.listeners.clear();
}

std::int32_t FakeDevice::tell_of(Mark& mark) {
    if (mark.code != 0 || !mark.failure)
        return mark.code;
    mark.failure->told = true;
    return mark.failure->code;
}

// Ends the marks that are reached, and the waits that are over. What is thrown away goes to `dropped`, for its
// functions may only end without the lock.
void FakeDevice::settle(Stream& stream, Due& due, std::vector<Piece>& dropped, bool& changed) {
    while (!stream.pieces.empty() && !stream.busy) {
        Piece& head = stream.pieces.front();
        if (head.kind == Kind::kMark) {
            end_mark(*head.mark, stream, due);
        } else if (head.kind == Kind::kWait) {
            if (!head.mark->done && broken_ == 0)
                return;
            stream.free_at = std::max(stream.free_at, head.mark->at);
            if (!stream.failure)  // it works on what has failed
                stream.failure = head.mark->failure;
        } else if (broken_ != 0) {
            --in_flight_;
        } else {
            return;
        }
        dropped.push_back(std::move(head));
        stream.pieces.pop_front();
        changed = true;
    }
}

void FakeDevice::settle(Due& due, std::vector<Piece>& dropped) {
    bool changed = true;
    while (std::exchange(changed, false)) {
        for (auto stream = streams_.begin(); stream != streams_.end();) {
            settle(stream->second, due, dropped, changed);
            const bool ended = stream->second.closed && stream->second.pieces.empty() && !stream->second.busy;
            stream = ended ? streams_.erase(stream) : std::next(stream);
        }
    }
}

void FakeDevice::tell(Lock& lock) {
    while (true) {
        Due due;
        std::vector<Piece> dropped;
        settle(due, dropped);
        if (due.empty() && dropped.empty())
            return;
        lock.unlock();
        for (const auto& [listener, code] : due)
            listener.first(listener.second, code);
        dropped.clear();
        lock.lock();
        changed_.notify_all();
    }
}

// The stream whose work is due next: after `settle`.
std::map<StreamHandle, FakeDevice::Stream>::iterator FakeDevice::next(std::int64_t& deadline, bool by_number) {
    auto best = streams_.end();
    std::tuple<std::int64_t, std::uint64_t> least;
    for (auto stream = streams_.begin(); stream != streams_.end(); ++stream) {
        const Stream& candidate = stream->second;
        if (candidate.busy || candidate.pieces.empty() || candidate.pieces.front().kind != Kind::kWork)
            continue;
        const Piece& head = candidate.pieces.front();
        const std::int64_t end = by_number ? 0 : std::max(candidate.free_at, head.enqueued) + head.delay;
        if (best == streams_.end() || std::tuple(end, head.number) < least) {
            best = stream;
            least = {end, head.number};
        }
    }
    deadline = std::get<0>(least);
    return best;
}

std::string FakeDevice::run_head(Lock& lock, std::map<StreamHandle, Stream>::iterator found) {
    const StreamHandle handle = found->first;
    Stream& stream = found->second;  // stays where it is: a busy stream is not erased
    std::string what;
    {
        Piece piece = std::move(stream.pieces.front());
        stream.pieces.pop_front();
        stream.busy = true;
        what = piece.what;
        std::int32_t code = 0;
        auto& [left, failure] = failing_piece_;
        if (left != 0 && --left == 0)
            code = failure;
        lock.unlock();
        if (code == 0)
            code = piece.body();
        piece.body = nullptr;
        lock.lock();
        stream.busy = false;
        stream.free_at = std::max(stream.free_at, piece.enqueued) + piece.delay;
        --in_flight_;
        log_.push_back({what, handle, code});
        if (code == 0) {
            counters_.to_device += static_cast<std::uint64_t>(piece.to_device);
            counters_.to_host += static_cast<std::uint64_t>(piece.to_host);
            counters_.within += static_cast<std::uint64_t>(piece.within);
            counters_.copies += piece.is_copy;
        } else if (!stream.failure || stream.failure->told) {
            stream.failure = std::make_shared<Failure>(Failure{code});
        }
        if (ends_all(code) && broken_ == 0)
            broken_ = code;
    }
    tell(lock);
    changed_.notify_all();
    return what;
}

void FakeDevice::work() {
    Lock lock(mutex_);
    while (true) {
        tell(lock);
        if (manual_)
            break;
        std::int64_t deadline = 0;
        const auto stream = next(deadline, false);
        if (stream != streams_.end()) {
            const std::int64_t left = deadline - now();
            if (left > 0)
                changed_.wait_for(lock, std::chrono::nanoseconds(left));
            else
                run_head(lock, stream);
        } else if (idle()) {
            if (changed_.wait_for(lock, kLinger) == std::cv_status::timeout && idle())
                break;
        } else {
            changed_.wait(lock);
        }
    }
    has_thread_ = false;
    changed_.notify_all();
}

std::optional<std::string> FakeDevice::step(StreamHandle handle) {
    if (here_.forked())
        return std::nullopt;
    Lock lock(mutex_);
    tell(lock);
    std::int64_t deadline = 0;
    auto stream = handle == 0 ? next(deadline, true) : streams_.find(handle);
    if (stream == streams_.end() || stream->second.busy || stream->second.pieces.empty() ||
        stream->second.pieces.front().kind != Kind::kWork)
        return std::nullopt;
    return run_head(lock, stream);
}

std::size_t FakeDevice::run() {
    std::size_t count = 0;
    while (step(0))
        ++count;
    return count;
}

std::int32_t FakeDevice::finish(StreamHandle handle) {
    if (here_.forked())
        return kForked;
    Lock lock(mutex_);
    if (const std::int32_t code = begin(Method::kFinish); code != 0 && broken_ == 0)
        return code;
    if (broken_ != 0 && manual_)
        tell(lock);  // throws away what is left
    const auto busy = [&] {
        const auto found = streams_.find(handle);
        return found != streams_.end() && (found->second.busy || !found->second.pieces.empty());
    };
    while (busy())
        changed_.wait(lock);
    return broken_;
}

void FakeDevice::finish() {
    if (here_.forked())
        return;
    Lock lock(mutex_);
    while (!idle()) {
        if (!manual_) {
            changed_.wait(lock);
            continue;
        }
        lock.unlock();
        const bool any = run() != 0;
        lock.lock();
        if (!any && !idle())
            changed_.wait_for(lock, kLinger);  // another thread is in a piece
    }
}

}  // namespace ostinato
