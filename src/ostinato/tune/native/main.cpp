// The reaper: a process between a tuner and what it runs. It starts one command at a time, is told of its end, and says
// so only when nothing of it is left. When the tuner goes, whatever the reason, it kills what runs, and lets go of the
// tuner's leases when that is gone.
//
// It is started with the control socket as descriptor 0 and a descriptor of the tuner's process as 1.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "channel.h"
#include "command.h"
#include "leases.h"
#include "messages.h"
#include "supervision.h"

namespace ostinato::reaper {

namespace {

// How long after the control socket was closed the tuner's end shows.
constexpr int end_shows_ms = 1'000;

// Signals as if freshly started by nobody: what the tuner ignores, its commands need not. Those that ask us to end, and
// the end of children, come through the descriptor returned.
Descriptor take_signals() {
    for (int signal = 1; signal < NSIG; ++signal) {
        ::signal(signal, SIG_DFL);
    }
    sigset_t all, ours;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::sigemptyset(&ours);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
        ::sigaddset(&ours, signal);
    }
    return Descriptor(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
}

// 0, 1 and 2 are /dev/null from now on, here and in commands.
std::array<Descriptor, 2> take_descriptors() {
    std::array<Descriptor, 2> taken{Descriptor(::fcntl(0, F_DUPFD_CLOEXEC, 3)),
                                    Descriptor(::fcntl(1, F_DUPFD_CLOEXEC, 3))};
    const Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int number : {0, 1, 2}) {
        ::dup2(null.number(), number);
    }
    return taken;
}

// Both ends are built together, so a message is never shorter than what it begins with.
template <typename Value>
Value beginning(const std::vector<std::byte>& message) {
    Value value{};
    std::memcpy(&value, message.data(), std::min(sizeof value, message.size()));
    return value;
}

class Reaper {
public:
    Reaper(Channel channel, Descriptor tuner, Descriptor signals)
        : channel_(std::move(channel)), tuner_(std::move(tuner)), signals_(std::move(signals)) {}

    void serve() {
        while (!leaving_ || !supervision_.idle()) {
            wait();
            supervision_.look();
        }
        if (tuner_is_gone()) {
            leases_.unlock();
        }
    }

private:
    void wait() {
        // Once we are leaving, nothing that the tuner says or does matters.
        std::array<pollfd, 3> sources{pollfd{signals_.number(), POLLIN, 0},
                                      pollfd{leaving_ ? -1 : channel_.number(), POLLIN, 0},
                                      pollfd{leaving_ ? -1 : tuner_.number(), POLLIN, 0}};
        const std::int64_t next = supervision_.next_look();
        const std::int64_t left = std::max<std::int64_t>(0, next - now_ns());
        const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
        if (::ppoll(sources.data(), sources.size(), next < 0 ? nullptr : &timeout, nullptr) <= 0) {
            return;
        }
        if (sources[0].revents != 0) {
            take_signal();
        }
        if (sources[1].revents != 0) {
            obey(channel_.receive());
        }
        if (sources[2].revents != 0) {
            leave();
        }
    }

    void take_signal() {
        signalfd_siginfo signal{};
        while (::read(signals_.number(), &signal, sizeof signal) == sizeof signal) {
            if (signal.ssi_signo != SIGCHLD) {
                leave();
            }
        }
    }

    void obey(Received received) {
        const auto& message = received.message;
        if (message.empty()) {
            closed_by_tuner_ = false;
            leave();
            return;
        }
        switch (beginning<Request>(message)) {
            case Request::setup:
                placement_.idle_priority = beginning<Setup>(message).idle_priority != 0;
                placement_.core_mask.assign(message.begin() + sizeof(Setup), message.end());
                break;
            case Request::leases:
                if (received.descriptors.empty()) {
                    leases_.let_go();
                }
                for (Descriptor& lease : received.descriptors) {
                    leases_.add(std::move(lease));
                }
                break;
            case Request::spawn:
                spawn(received);
                break;
            case Request::kill:
                supervision_.kill(Cause::killed);
                break;
            case Request::sweep:
                supervision_.sweep();
                break;
            case Request::close:
                leave();
                break;
        }
    }

    void spawn(const Received& received) {
        const auto spawn = beginning<Spawn>(received.message);
        if (!received.all_descriptors || received.descriptors.size() != spawn.targets + std::size_t{1}) {
            channel_.send(NotStarted{.error = EMFILE, .stage = Stage::setup});
            return;
        }
        std::vector<int> targets;
        for (std::size_t at = sizeof spawn; targets.size() < spawn.targets; at += sizeof(int)) {
            std::memcpy(&targets.emplace_back(), received.message.data() + at, sizeof(int));
        }
        const std::span<const Descriptor> descriptors(received.descriptors);
        Command command(descriptors[0], spawn, std::move(targets), descriptors.subspan(1));
        supervision_.start(command, placement_, spawn);
    }

    void leave() {
        leaving_ = true;
        supervision_.kill(Cause::killed);
    }

    bool tuner_is_gone() {
        pollfd tuner{tuner_.number(), POLLIN, 0};
        return ::poll(&tuner, 1, closed_by_tuner_ ? 0 : end_shows_ms) > 0;
    }

    Channel channel_;
    Descriptor tuner_, signals_;
    Leases leases_;
    Placement placement_;
    Supervision supervision_{channel_};
    bool leaving_ = false;
    bool closed_by_tuner_ = true;
};

}  // namespace

}  // namespace ostinato::reaper

int main() {
    using namespace ostinato::reaper;
    // Where the kernel has it (Linux 5.9): the tuner's own descriptors close by themselves, those of other libraries
    // may not.
    ::syscall(SYS_close_range, 3U, ~0U, 0U);
    Descriptor signals = take_signals();
    auto [socket, tuner] = take_descriptors();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    // If a command has stopped us when the tuner goes, somebody must let us run on.
    ::prctl(PR_SET_PDEATHSIG, SIGCONT);
    Reaper(Channel(std::move(socket)), std::move(tuner), std::move(signals)).serve();
    return EXIT_SUCCESS;
}
