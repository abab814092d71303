#include "messages/messenger.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "park/threads.h"
#include "park/timeline.h"
#include "program/program.h"

namespace ostinato {

namespace {

constexpr std::size_t kLetterBytes = 4096;  // of a part of a message between threads
constexpr std::int32_t kLetterTag = 0;      // channels have others
// The thread in `wait` naps where it finds nothing, or workers look, too; ever longer.
constexpr std::int64_t kFirstNapNs = 20'000, kLastNapNs = 1'000'000;
constexpr int kLooks = 64;  // before the first nap
// Between two looks at the processes of other ranks. The second look after a death reports it: the last messages of
// the process arrive in between.
constexpr std::int64_t kProcessesNs = 50'000'000;

struct LetterHead {
    std::int32_t source;
    std::uint32_t more;  // bytes of the message that come in later parts
    std::uint32_t here;  // bytes in this part
};

}  // namespace

struct Messenger::Letter final : Request {
    std::byte buffer[sizeof(LetterHead) + kLetterBytes];
    Messenger* messenger = nullptr;  // a letter that is sent deletes itself

    void ended() override {
        if (!sends)
            return messenger->received(*this);
        messenger->sending_.fetch_sub(1, std::memory_order_release);
        delete this;
    }
};

Messenger::Messenger(std::unique_ptr<Transport> transport, int its_rank, int its_size)
    : rank(its_rank), size(its_size), transport_(std::move(transport)), partial_(static_cast<std::size_t>(its_size)) {
    if (size > 1) {
        letter_ = std::make_unique<Letter>();
        letter_->messenger = this;
        listen();
    }
}

Messenger::~Messenger() {
    for (const Process& each : processes_)
        (void)::close(each.descriptor);
}

void Messenger::hand_over(Start start) {
    {
        const std::lock_guard<std::mutex> lock(starts_mutex_);
        starts_.push_back(std::move(start));
    }
    handed_.store(true, std::memory_order_seq_cst);
    attend();
}

void Messenger::attend() {
    while (handed_.load(std::memory_order_seq_cst) && transport_mutex_.try_lock()) {
        take_starts();
        look();
        transport_mutex_.unlock();
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }
}

void Messenger::take_starts() {
    while (handed_.exchange(false, std::memory_order_seq_cst)) {
        {
            const std::lock_guard<std::mutex> lock(starts_mutex_);
            taken_.swap(starts_);
        }
        for (const Start& start : taken_) {
            if (start.request->word != nullptr && start.cancels)
                start.request->cancelled = true;
            else if (start.request->word != nullptr)
                watched_.push_back(start.request);
            else if (start.cancels)
                transport_->cancel(*start.request);
            else
                transport_->start(*start.request);
        }
        taken_.clear();
    }
}

bool Messenger::look() {
    ended_.clear();
    std::erase_if(watched_, [&](Request* each) {
        const bool ended = each->cancelled || each->word->load(std::memory_order_acquire) == each->wanted;
        if (ended)
            ended_.push_back(each);
        return ended;
    });
    transport_->progress(ended_);
    if (const int error = transport_->error(); error != 0 && !std::exchange(failed_, true)) [[unlikely]]
        tell({News::kFailed, error, {}, nullptr, nullptr});
    if (ended_.empty())
        return false;
    for (Request* const request : ended_) {
        const std::shared_ptr<void> owner = std::move(request->owner);
        request->ended();
    }
    return true;
}

void Messenger::take_over() {
    alone_.store(true, std::memory_order_relaxed);
    wake_.notify();
}

bool Messenger::progress() {
    if (alone_.load(std::memory_order_relaxed))
        alone_.store(false, std::memory_order_relaxed);
    bool found = false;
    return progress(found);
}

bool Messenger::progress(bool& found) {
    if (!transport_mutex_.try_lock())
        return false;
    take_starts();
    found = look();
    transport_mutex_.unlock();
    std::atomic_thread_fence(std::memory_order_seq_cst);
    attend();
    return true;
}

void Messenger::listen() {
    letter_->bytes = letter_->buffer;
    letter_->count = sizeof letter_->buffer;
    letter_->peer = kAnyRank;
    letter_->tag = kLetterTag;
    start(*letter_);
}

void Messenger::received(Letter& letter) {
    if (closed_.load(std::memory_order_acquire))
        return;
    LetterHead head;
    std::memcpy(&head, letter.buffer, sizeof head);
    std::string& message = partial_.at(static_cast<std::size_t>(head.source));
    message.append(reinterpret_cast<const char*>(letter.buffer) + sizeof head, head.here);
    if (head.more == 0)
        tell({News::kMessage, head.source, std::exchange(message, {}), nullptr, nullptr});
    listen();
}

void Messenger::post(int to, std::string_view message) {
    do {
        auto letter = std::make_unique<Letter>();
        const std::size_t here = std::min(message.size(), kLetterBytes);
        const LetterHead head{rank, static_cast<std::uint32_t>(message.size() - here),
                              static_cast<std::uint32_t>(here)};
        std::memcpy(letter->buffer, &head, sizeof head);
        std::memcpy(letter->buffer + sizeof head, message.data(), here);
        message.remove_prefix(here);
        letter->bytes = letter->buffer;
        letter->count = sizeof head + here;
        letter->peer = to;
        letter->tag = kLetterTag;
        letter->sends = true;
        letter->messenger = this;
        sending_.fetch_add(1, std::memory_order_relaxed);
        start(*letter.release());  // it deletes itself
    } while (!message.empty());
    wake_.notify();
}

void Messenger::tell(Told told) {
    {
        const std::lock_guard<std::mutex> lock(told_mutex_);
        told_.push_back(std::move(told));
    }
    news_.store(true, std::memory_order_release);
    wake_.notify();
}

void Messenger::watch_process(int of, int descriptor) {
    const std::lock_guard<std::mutex> lock(processes_mutex_);
    processes_.push_back({of, descriptor, false});
}

void Messenger::look_after_processes() {
    const std::int64_t now = monotonic_ns();
    if (now - processes_looked_at_ < kProcessesNs)
        return;
    processes_looked_at_ = now;
    const std::lock_guard<std::mutex> lock(processes_mutex_);
    std::erase_if(processes_, [&](Process& each) {
        pollfd descriptor{each.descriptor, POLLIN, 0};
        if (!each.ended) {
            each.ended = poll(&descriptor, 1, 0) == 1;
            return false;
        }
        tell({News::kDied, each.rank, {}, nullptr, nullptr});
        (void)::close(each.descriptor);
        return true;
    });
}

bool Messenger::wait(std::vector<Told>& told) {
    std::int64_t nap = kFirstNapNs;
    bool was_alone = true;
    for (int looks = 0;; ++looks) {
        const std::uint32_t epoch = wake_.prepare_wait();
        if (closed_.load(std::memory_order_acquire))
            return false;
        bool found = false;
        progress(found);
        look_after_processes();
        if (news_.exchange(false, std::memory_order_acquire)) {
            const std::lock_guard<std::mutex> lock(told_mutex_);
            told.swap(told_);
            if (!told.empty())
                return true;
        }
        // Where workers look as well, this thread looks seldom: it would only take the core from one that has work.
        const bool alone = !by_workers || alone_.load(std::memory_order_relaxed);
        if (alone && (found || !std::exchange(was_alone, true))) {
            looks = 0;
            nap = kFirstNapNs;
            continue;
        }
        was_alone = alone;
        if (looks < kLooks) {
            relax();
        } else {
            wake_.commit_wait(epoch, nap);
            nap = std::min(2 * nap, kLastNapNs);
        }
    }
}

void Messenger::close() {
    if (closed_.exchange(true, std::memory_order_acq_rel))
        return;
    if (letter_ != nullptr)
        cancel(*letter_, shared_from_this());
    wake_.notify_all();
}

}  // namespace ostinato
