// The reaper's end of the control socket.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "descriptor.h"
#include "messages.h"

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
    Received receive() {
        Received received;
        received.message.resize(longest_request);
        alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(most_descriptors * sizeof(int))> control;
        iovec data{received.message.data(), received.message.size()};
        msghdr header{};
        header.msg_iov = &data;
        header.msg_iovlen = 1;
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        const ssize_t size = ::recvmsg(socket_.number(), &header, MSG_CMSG_CLOEXEC);
        received.message.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
        if (size <= 0) {
            return received;
        }
        received.all_descriptors = (header.msg_flags & MSG_CTRUNC) == 0;
        for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
            if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
                std::vector<int> numbers((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
                std::memcpy(numbers.data(), CMSG_DATA(part), numbers.size() * sizeof(int));
                for (const int number : numbers) {
                    received.descriptors.emplace_back(number);
                }
            }
        }
        return received;
    }

    // A message to a tuner that has ended is lost.
    void send_bytes(std::span<const std::byte> message) {
        (void)::send(socket_.number(), message.data(), message.size(), MSG_NOSIGNAL);
    }

    template <typename Message>
    void send(const Message& message) {
        send_bytes(std::as_bytes(std::span(&message, 1)));
    }

private:
    static constexpr std::size_t most_descriptors = 253;  // the kernel's limit (SCM_MAX_FD)

    Descriptor socket_;
};

}  // namespace ostinato::reaper
