#include "messages/channel.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "lanes/builtin_tasks.h"
#include "lanes/lane.h"
#include "program/program.h"

namespace ostinato {

namespace {

constexpr std::size_t kManySlots = 4, kFewSlots = 2;
constexpr std::size_t kLargeBytes = std::size_t{1} << 18;  // of a message, from which on memory counts

enum class Mark : std::uint32_t { kGood, kPoisoned };

// What comes before the elements. 16 bytes, so that these are aligned.
struct Head {
    std::uint64_t number;
    Mark mark;
    std::uint32_t reserved;
};
static_assert(sizeof(Head) == 16);

// Between ranks of one host, a slot is a word and the message, from a cache line on: a small message travels with its
// word.
constexpr std::size_t kLine = 64, kPage = 4096, kWord = 16;
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
constexpr int kWordLooks = 16;  // at the word, before the lane is blocked: less than that takes

constexpr std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }
constexpr std::size_t stride_of(std::size_t bytes) { return round_up(kWord + sizeof(Head) + bytes, kLine); }

constexpr std::uint64_t kOver = std::uint64_t{1} << 62;  // more than any step

// An array in row-major order at `at`.
struct Packed {
    std::int64_t shape[64], strides[64];
    ost_array array;
    std::int64_t item = 1;

    Packed(const ost_array& like, std::byte* at, std::size_t bytes) {
        std::int64_t elements = 1;
        for (std::int64_t d = 0; d < like.ndim; ++d)
            elements *= like.shape[d];
        item = elements == 0 ? 1 : static_cast<std::int64_t>(bytes) / elements;
        std::int64_t stride = item;
        for (std::int64_t d = like.ndim - 1; d >= 0; --d) {
            shape[d] = like.shape[d];
            strides[d] = stride;
            stride *= like.shape[d];
        }
        array = {at, like.ndim, shape, strides};
    }
};

void copy_elements(const ost_array& source, const ost_array& target, std::int64_t item) {
    const ost_array arrays[] = {source, target};
    const ost_scalar size{.i64 = item};
    ost_call call{};
    call.arrays = arrays;
    call.scalars = &size;
    call.n_arrays = 2;
    call.n_scalars = 1;
    (void)copy_task(&call);
}

}  // namespace

Channel::Channel(std::shared_ptr<Traffic> its_traffic, bool its_sends, int its_peer, std::int32_t its_number,
                 std::size_t bytes)
    : traffic(std::move(its_traffic)), peer(its_peer), sends(its_sends), number(its_number), bytes_(bytes),
      slots_(bytes < kLargeBytes ? kManySlots : kFewSlots), ended_(slots_.size()) {}

std::size_t Channel::shared_bytes() const { return round_up(slots_.size() * stride_of(bytes_), kPage); }

void Channel::share(int file, std::size_t offset) {
    const std::size_t bytes = shared_bytes();
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset));
    if (at == MAP_FAILED)
        throw std::system_error(errno, std::generic_category(), "cannot map memory of another rank");
    shared_ = {static_cast<std::byte*>(at), [bytes](std::byte* mapped) { (void)munmap(mapped, bytes); }};
}

void Channel::open(ExternalContext context) {
    opened_ = true;
    first_ = context.lane.step;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        signal_ = context.signal.shared_from_this();
    }
    std::byte* at = shared_.get();
    for (Slot& slot : slots_) {
        slot.channel = this;
        if (at != nullptr) {
            slot.word = slot.owner_word = std::launder(reinterpret_cast<std::atomic<std::uint32_t>*>(at));
            slot.bytes = at + kWord;
            at += stride_of(bytes_);
            continue;
        }
        slot.memory = std::make_unique_for_overwrite<std::byte[]>(sizeof(Head) + bytes_);
        slot.bytes = slot.memory.get();
        slot.count = sizeof(Head) + bytes_;
        slot.peer = peer;
        slot.tag = traffic->first_tag + number;
        slot.sends = sends;
    }
    for (std::uint64_t n = 0; shared_ == nullptr && !sends && n < slots_.size(); ++n)
        begin(slot_of(n), n);
}

void Channel::begin(Slot& slot, std::uint64_t message) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (closed_)
            return;
        slot.number = message;
        slot.busy = true;
    }
    slot.owner = shared_from_this();
    traffic->messenger->start(slot);
}

void Channel::ended(Slot& slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    slot.busy = false;
    if (closed_)
        return;
    if (slot.word != nullptr)
        return signal_->reach(first_ + slot.number + 1);
    ended_[slot.number % slots_.size()] = true;
    const std::uint64_t before = done_;
    for (std::size_t at = done_ % slots_.size(); ended_[at]; at = done_ % slots_.size()) {
        ended_[at] = false;
        ++done_;
    }
    if (done_ != before)
        signal_->reach(first_ + done_);
}

// Whether the signal has not reached `value`: the lane is blocked then. It reaches everything when the ranks' traffic
// is abandoned, which is looked at afterwards.
bool Channel::waits(ExternalContext context, std::uint64_t value) {
    if (context.signal.timeline.reached(value) || traffic->abandoned.load(std::memory_order_acquire))
        return false;
    context.lane.block(context.signal.timeline, value);
    return true;
}

// The same of a slot that both ranks have, and that is not yet `wanted`.
bool Channel::waits(ExternalContext context, Slot& slot, std::uint64_t message, Owner wanted) {
    for (int looks = 0; slot.owner_word->load(std::memory_order_acquire) != wanted; ++looks) {
        if (traffic->abandoned.load(std::memory_order_acquire))
            return false;
        if (looks == kWordLooks) {
            watch(slot, message, wanted);
            context.lane.block(context.signal.timeline, context.lane.step + 1);
            return true;
        }
        relax();
    }
    return false;
}

void Channel::watch(Slot& slot, std::uint64_t message, Owner wanted) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        slot.number = message;
        if (closed_ || std::exchange(slot.busy, true))
            return;
    }
    slot.wanted = wanted;
    slot.owner = shared_from_this();
    traffic->messenger->start(slot);
}

ExternalOp::Outcome Channel::send(ExternalContext context, const ost_array& array) {
    if (!opened_)
        open(context);
    const std::uint64_t message = context.lane.step - first_;
    Slot& slot = slot_of(message);
    if (shared_ != nullptr ? waits(context, slot, message, kEmpty)
                           : message >= slots_.size() && waits(context, context.lane.step + 1 - slots_.size()))
        return {ExternalOp::Result::kBlocked};
    if (traffic->abandoned.load(std::memory_order_acquire))
        return {ExternalOp::Result::kSkipped};
    const Head head{message, context.skipped ? Mark::kPoisoned : Mark::kGood, 0};
    std::memcpy(slot.bytes, &head, sizeof head);
    if (!context.skipped && bytes_ != 0) {
        const Packed packed(array, slot.bytes + sizeof head, bytes_);
        copy_elements(array, packed.array, packed.item);
    }
    if (shared_ != nullptr)
        slot.owner_word->store(kFull, std::memory_order_release);
    else
        begin(slot, message);
    return {ExternalOp::Result::kDone};
}

ExternalOp::Outcome Channel::receive(ExternalContext context, const ost_array& array) {
    if (!opened_)
        open(context);
    const std::uint64_t message = context.lane.step - first_;
    Slot& slot = slot_of(message);
    if (shared_ != nullptr ? waits(context, slot, message, kFull) : waits(context, context.lane.step + 1))
        return {ExternalOp::Result::kBlocked};
    if (traffic->abandoned.load(std::memory_order_acquire))
        return {ExternalOp::Result::kSkipped};
    Head head;
    std::memcpy(&head, slot.bytes, sizeof head);
    const bool good = head.mark == Mark::kGood;
    if (good && !context.skipped && bytes_ != 0) {
        const Packed packed(array, slot.bytes + sizeof head, bytes_);
        copy_elements(packed.array, array, packed.item);
    }
    if (shared_ != nullptr)
        slot.owner_word->store(kEmpty, std::memory_order_release);
    else
        begin(slot, message + slots_.size());
    return {good || context.skipped ? ExternalOp::Result::kDone : ExternalOp::Result::kPoisoned};
}

void Channel::close() {
    std::vector<Slot*> waiting;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (std::exchange(closed_, true))
            return;
        for (Slot& slot : slots_) {
            if (slot.busy && (!sends || slot.word != nullptr))
                waiting.push_back(&slot);
        }
    }
    for (Slot* const slot : waiting)
        traffic->messenger->cancel(*slot, shared_from_this());
}

void Channel::abandon() {
    std::shared_ptr<Signal> signal;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        signal = signal_;
    }
    if (signal != nullptr)
        signal->reach(kOver);
}

void Traffic::abandon() {
    abandoned.store(true, std::memory_order_release);
    for (const std::weak_ptr<Channel>& each : channels) {
        if (const std::shared_ptr<Channel> channel = each.lock())
            channel->abandon();
    }
}

void Traffic::close() {
    for (const std::weak_ptr<Channel>& each : channels) {
        if (const std::shared_ptr<Channel> channel = each.lock())
            channel->close();
    }
}

ExternalOp::Outcome MessageOp::advance(ExternalContext context) const {
    const std::uint64_t user_step = context.run.user_step(context.lane.step);
    const NativeOp& op = context.run.plan->native_op(stored_, user_step, context.lane.phase.data());
    return channel_->sends ? channel_->send(context, *op.call.arrays) : channel_->receive(context, *op.call.arrays);
}

std::string MessageOp::waits_for(const Plan&, const Run& run, std::uint64_t step) const {
    const std::string peer = "rank " + std::to_string(channel_->peer);
    if (channel_->sends) {  // a slot in memory is waited for in the step that fills it again
        const std::uint64_t sent = channel_->is_shared() ? step - channel_->slots() : step;
        return peer + " to take the message of step " + std::to_string(run.user_step(sent));
    }
    const std::uint64_t wanted = run.user_step(step);
    return "the message of step " + std::to_string(wanted) + " from " + peer +
           (wanted == 0 ? "; none has come yet"
                        : "; the last one that came is that of step " + std::to_string(wanted - 1));
}

}  // namespace ostinato
