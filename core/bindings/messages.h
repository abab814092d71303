// What Python holds of messages between ranks.
#pragma once

#include "bindings/bindings.h"
#include "messages/channel.h"

namespace ostinato {

struct MessengerHandle {
    std::shared_ptr<Messenger> messenger;
};
struct TrafficHandle {
    std::shared_ptr<Traffic> traffic;
};
struct ChannelHandle {
    std::shared_ptr<Channel> channel;
};

}  // namespace ostinato
