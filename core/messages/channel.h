// Channels: what one operation sends to another rank, or receives from one, step after step. Core/DESIGN.md,
// "Messages".
//
// A channel has some slots, each with memory for one message. A send packs its array into a slot and is done; it waits
// while the slot still has a message of an earlier step. A receive waits until its message is in a slot, and unpacks
// it. The receiver offers all slots from the first step on, so a message may come before its array is free.
//
// Ranks of one host have the slots in memory that both map, and no transport carries anything. A word in each slot says
// whose it is, as in FastForward (Giacomoni, Moseley and Vachharajani 2008):
//
// * kEmpty: the sender's. It writes the message, then stores kFull with release.
// * kFull: the receiver's. It loads kFull with acquire, reads the message, then stores kEmpty with release.
//
// So a word has one writer at a time, and no message is read before it is whole, or overwritten before it is read. Both
// ends go through the slots in the same order. A lane that finds the slot with the other end looks a few times more;
// then the lane is blocked and the messenger watches the word, until the signal is reached. An end looks at the word
// itself after every wait. Model: tests/protocols/test_shared_slots.py.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "messages/messenger.h"
#include "outside/external.h"

namespace ostinato {

class Channel;

// The channels of one program.
struct Traffic {
    explicit Traffic(std::shared_ptr<Messenger> its_messenger) : messenger(std::move(its_messenger)) {}

    // Whether runs end when all ranks agree that they have.
    bool shared() const { return messenger->size > 1; }
    // The ranks do not agree: no message is waited for any more.
    void abandon();
    // No run is under way, nor will be.
    void close();

    const std::shared_ptr<Messenger> messenger;
    std::int32_t first_tag = 1;  // set before the first run
    std::atomic<bool> abandoned{false};
    std::vector<std::weak_ptr<Channel>> channels;  // set before the first run, too
};

class Channel : public std::enable_shared_from_this<Channel> {
public:
    // `bytes`: of each message.
    Channel(std::shared_ptr<Traffic> traffic, bool sends, int peer, std::int32_t number, std::size_t bytes);

    std::size_t slots() const { return slots_.size(); }
    bool is_shared() const { return shared_ != nullptr; }
    // How much memory the slots take between ranks of one host: whole pages.
    std::size_t shared_bytes() const;
    // Has the slots in a file that the other end maps as well, before the first run. All is zeros there. Throws
    // std::system_error if it cannot be mapped.
    void share(int file, std::size_t offset);

    // The holder's of the lane.
    ExternalOp::Outcome send(ExternalContext context, const ost_array& array);
    ExternalOp::Outcome receive(ExternalContext context, const ost_array& array);

    // No run is under way, nor will be: messages that may not come any more are not waited for.
    void close();
    // Ends all waits.
    void abandon();

    const std::shared_ptr<Traffic> traffic;
    const int peer;
    const bool sends;
    const std::int32_t number;  // which one it is between these two ranks, in this direction, in program order

private:
    enum Owner : std::uint32_t { kEmpty, kFull };
    struct Slot final : Request {
        Channel* channel = nullptr;
        std::uint64_t number = 0;  // of its message
        bool busy = false;         // with the transport, or watched
        std::unique_ptr<std::byte[]> memory;
        std::atomic<std::uint32_t>* owner_word = nullptr;  // of ranks of one host
        void ended() override { channel->ended(*this); }
    };

    void open(ExternalContext context);
    bool waits(ExternalContext context, std::uint64_t value);
    bool waits(ExternalContext context, Slot& slot, std::uint64_t message, Owner wanted);
    void watch(Slot& slot, std::uint64_t message, Owner wanted);
    void begin(Slot& slot, std::uint64_t message);
    void ended(Slot& slot);
    Slot& slot_of(std::uint64_t message) { return slots_[message % slots_.size()]; }

    const std::size_t bytes_;
    std::shared_ptr<std::byte> shared_;  // between ranks of one host: the slots
    // --- the lane's holder's, until the first request is started ---
    bool opened_ = false;
    std::uint64_t first_ = 0;  // the step of message 0
    std::vector<Slot> slots_;
    std::mutex mutex_;                // what follows
    std::shared_ptr<Signal> signal_;  // of the operation: reaches `first_` and the number of messages that have ended
    std::uint64_t done_ = 0;          // messages that have ended, and all before them
    std::vector<bool> ended_;         // by slot: has ended before an earlier one
    bool closed_ = false;
};

// Sends or receives the array of the operation at index `stored` of the plan.
class MessageOp final : public ExternalOp {
public:
    MessageOp(std::shared_ptr<Channel> channel, std::uint32_t stored) : channel_(std::move(channel)), stored_(stored) {}
    Outcome advance(ExternalContext context) const override;
    // The other rank counts on the message, or sends it, whatever becomes of this operation.
    bool firm() const override { return true; }
    bool begins_late() const override { return true; }
    std::string waits_for(const Plan& plan, const Run& run, std::uint64_t step) const override;

private:
    const std::shared_ptr<Channel> channel_;
    const std::uint32_t stored_;
};

}  // namespace ostinato
