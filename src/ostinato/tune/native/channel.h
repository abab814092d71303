// The reaper's end of the control socket.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "descriptor.h"

namespace ostinato::reaper {

struct Received {
    std::vector<std::byte> message;  // empty: the other end is closed
    std::vector<Descriptor> descriptors;
    bool all_descriptors = true;  // false: this process may not have as many open as came
};

class Channel {
public:
    explicit Channel(Descriptor socket) : socket_(std::move(socket)) {}

    int number() const { return socket_.number(); }
    // Waits for a message.
    Received receive();
    // What is said to somebody who is gone is lost.
    void send(std::span<const std::byte> message);

    template <typename Message>
    void say(const Message& message) {
        send(std::as_bytes(std::span(&message, 1)));
    }

private:
    Descriptor socket_;
};

}  // namespace ostinato::reaper
