#include "channel.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "messages.h"

namespace ostinato::reaper {

namespace {

constexpr std::size_t most_descriptors = 253;  // the kernel's limit (SCM_MAX_FD)

void take_descriptors(msghdr& header, std::vector<Descriptor>& descriptors) {
    for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        std::vector<int> numbers((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        std::memcpy(numbers.data(), CMSG_DATA(part), numbers.size() * sizeof(int));
        for (const int number : numbers) {
            descriptors.emplace_back(number);
        }
    }
}

}  // namespace

Received Channel::receive() {
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
    received.message.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    if (size > 0) {
        take_descriptors(header, received.descriptors);
        received.all_descriptors = (header.msg_flags & MSG_CTRUNC) == 0;
    }
    return received;
}

void Channel::send(std::span<const std::byte> message) {
    (void)::send(socket_.number(), message.data(), message.size(), MSG_NOSIGNAL);
}

}  // namespace ostinato::reaper
