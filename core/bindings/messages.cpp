#include "bindings/messages.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "messages/local.h"
#include "messages/mpi.h"

namespace nb = nanobind;

using namespace nb::literals;

namespace ostinato {

namespace {

void refuse_forked(const MessengerHandle& handle) {
    refuse_after_fork(handle.messenger->made.forked(), "Ranks", "another");
}

// Returns news for the thread that agrees with other ranks, each as a tuple. A message: (source, bytes, None). A run
// that stops or has ended: (-1, whether it has ended, run). A rank that has died: (rank, None, None). A transport that
// has failed: (-1, code, None).
nb::object wait_for_news(const MessengerHandle& handle) {
    std::vector<Messenger::Told> told;
    bool open = false;
    {
        const nb::gil_scoped_release nogil;
        open = handle.messenger->wait(told);
    }
    if (!open)
        return nb::none();
    nb::list found;
    for (Messenger::Told& each : told) {
        if (each.news == Messenger::News::kMessage)
            found.append(nb::make_tuple(each.source, nb::bytes(each.message.data(), each.message.size()), nb::none()));
        else if (each.news == Messenger::News::kDied)
            found.append(nb::make_tuple(each.source, nb::none(), nb::none()));
        else if (each.news == Messenger::News::kFailed)
            found.append(nb::make_tuple(-1, each.source, nb::none()));
        else
            found.append(nb::make_tuple(-1, each.news == Messenger::News::kEnded,
                                        RunHandle{std::move(each.program), std::move(each.run)}));
    }
    return found;
}

}  // namespace

}  // namespace ostinato

void bind_messages(nb::module_& parent) {
    using namespace ostinato;
    nb::module_ module = parent.def_submodule("messages", "Messages between ranks.");
    nb::class_<LocalRanks>(module, "LocalRanks", "Ranks in one process, for tests.")
        .def(nb::init<int, std::int64_t, std::int64_t, std::uint64_t>(), "size"_a, "latency_ns"_a = 0,
             "jitter_ns"_a = 0, "seed"_a = 0)
        .def("kill", &LocalRanks::kill, "rank"_a, "noticed"_a = false,
             "From now on nothing leaves this rank, and nothing arrives there; if noticed, others' transports fail.")
        .def(
            "messenger",
            [](LocalRanks& self, int rank) {
                return MessengerHandle{std::make_shared<Messenger>(self.transport(rank), rank, self.size())};
            },
            "rank"_a, nb::keep_alive<0, 1>());
    nb::class_<MessengerHandle>(module, "Messenger", "The messages of one rank.")
        .def(
            "post",
            [](const MessengerHandle& self, int to, const nb::bytes& message) {
                refuse_forked(self);
                const std::string_view bytes(message.c_str(), message.size());
                const nb::gil_scoped_release nogil;
                self.messenger->post(to, bytes);
            },
            "to"_a, "message"_a)
        .def("wait", &wait_for_news, "Make progress until there are news; None once it is closed.")
        .def(
            "watch_process",
            [](const MessengerHandle& self, int rank, int descriptor) {
                self.messenger->watch_process(rank, descriptor);
            },
            "rank"_a, "descriptor"_a, "Tell when a rank's process ends; the descriptor is the messenger's from now on.")
        .def("close",
             [](const MessengerHandle& self) {
                 const nb::gil_scoped_release nogil;
                 self.messenger->close();
             })
        .def("progress",
             [](const MessengerHandle& self) {
                 const nb::gil_scoped_release nogil;
                 return self.messenger->progress();
             })
        .def_prop_ro(
            "sending", [](const MessengerHandle& self) { return self.messenger->sending(); },
            "How many messages of `post` are still on their way from here.")
        .def_prop_rw(
            "by_workers", [](const MessengerHandle& self) { return self.messenger->by_workers; },
            [](const MessengerHandle& self, bool by_workers) { self.messenger->by_workers = by_workers; },
            "Whether idle workers make progress; set before there is a program.")
        .def_prop_ro("forked", [](const MessengerHandle& self) { return self.messenger->made.forked(); });
    nb::class_<TrafficHandle>(module, "Traffic", "The channels of one program.")
        .def(
            "__init__",
            [](TrafficHandle* self, const MessengerHandle& messenger) {
                new (self) TrafficHandle{std::make_shared<Traffic>(messenger.messenger)};
            },
            "messenger"_a)
        .def_prop_rw(
            "first_tag", [](const TrafficHandle& self) { return self.traffic->first_tag; },
            [](TrafficHandle& self, std::int32_t tag) { self.traffic->first_tag = tag; })
        .def("abandon",
             [](const TrafficHandle& self) {
                 const nb::gil_scoped_release nogil;
                 self.traffic->abandon();
             })
        .def("close",
             [](const TrafficHandle& self) {
                 const nb::gil_scoped_release nogil;
                 self.traffic->close();
             })
        .def(
            "channel",
            [](const TrafficHandle& self, bool sends, int peer, std::int32_t number, std::size_t bytes) {
                auto channel = std::make_shared<Channel>(self.traffic, sends, peer, number, bytes);
                self.traffic->channels.push_back(channel);
                return ChannelHandle{std::move(channel)};
            },
            "sends"_a, "peer"_a, "number"_a, "bytes"_a)
        .def(
            "channels",
            [](const TrafficHandle& self) {
                std::vector<ChannelHandle> found;
                for (const std::weak_ptr<Channel>& each : self.traffic->channels) {
                    if (std::shared_ptr<Channel> channel = each.lock())
                        found.push_back({std::move(channel)});
                }
                return found;
            },
            "Those in use.");
    nb::class_<ChannelHandle>(module, "Channel", "What one operation sends to another rank, or receives from one.")
        .def_prop_ro("sends", [](const ChannelHandle& self) { return self.channel->sends; })
        .def_prop_ro("peer", [](const ChannelHandle& self) { return self.channel->peer; })
        .def_prop_ro("number", [](const ChannelHandle& self) { return self.channel->number; })
        .def_prop_ro(
            "slots", [](const ChannelHandle& self) { return self.channel->slots(); },
            "How many messages it has memory for.")
        .def_prop_ro(
            "is_shared", [](const ChannelHandle& self) { return self.channel->is_shared(); },
            "Whether both ends map that memory, so that no transport carries them.")
        .def_prop_ro(
            "shared_bytes", [](const ChannelHandle& self) { return self.channel->shared_bytes(); },
            "How much memory its slots take between ranks of one host.")
        .def(
            "share", [](const ChannelHandle& self, int file, std::size_t offset) { self.channel->share(file, offset); },
            "file"_a, "offset"_a, "Have the slots in a file of zeros that the other end maps as well.");
    module.def(
        "messenger_to_itself", [] { return MessengerHandle{std::make_shared<Messenger>(transport_to_itself(), 0, 1)}; },
        "The messages of the only rank of a process.");
    module.def(
        "messenger_by_mpi",
        [](int rank, int size, const std::string& library, std::uint64_t communicator, std::uint64_t byte,
           int any_source, std::size_t handle_bytes, std::size_t status_bytes) {
            const MpiHandles handles{communicator, byte, any_source, handle_bytes, status_bytes};
            const nb::gil_scoped_release nogil;
            return MessengerHandle{std::make_shared<Messenger>(transport_by_mpi(library, handles), rank, size)};
        },
        "rank"_a, "size"_a, "library"_a, "communicator"_a, "byte"_a, "any_source"_a, "handle_bytes"_a,
        "status_bytes"_a);
}
