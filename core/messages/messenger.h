// The messages of one rank: starts requests and finds out that they have ended, with one thread at a time in the
// transport. Core/DESIGN.md, "Messages".
//
// Whoever finds the transport taken leaves what it wants to start to the thread that has it. That thread looks for
// such starts after it has given the transport back: either it sees the start, or the other finds the transport free.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/transport.h"
#include "park/event_count.h"
#include "park/forks.h"

namespace ostinato {

class Program;
struct Run;

class Messenger : public std::enable_shared_from_this<Messenger> {
public:
    // What ranks tell each other about runs, and what runs tell the thread that agrees with other ranks.
    enum class News : std::uint8_t {
        kMessage,   // from another rank
        kStopping,  // a run is to end before its time
        kEnded,     // all lanes have left a run
        kDied,      // the process of a rank
        kFailed,    // the transport, with a code: it carries nothing any more
    };
    struct Told {
        News news;
        int source = 0;  // the rank, or the code
        std::string message;
        std::shared_ptr<Program> program;
        std::shared_ptr<Run> run;
    };

    Messenger(std::unique_ptr<Transport> transport, int rank, int size);
    ~Messenger();
    Messenger(const Messenger&) = delete;
    Messenger& operator=(const Messenger&) = delete;

    // Whether idle workers make progress. Set before there is a program.
    bool by_workers = true;

    // Any thread, at any time; `cancel` is for receives.
    void start(Request& request) { hand_over({&request, false, {}}); }
    // `held` is what the request belongs to.
    void cancel(Request& request, std::shared_ptr<void> held) { hand_over({&request, true, std::move(held)}); }
    // Finds out what has ended. False: another thread is at it.
    bool progress();
    // A worker that made progress goes to sleep: from now on the thread in `wait` looks more often, for a while.
    void take_over();

    // Sends a message to the thread of another rank that waits in `wait`.
    void post(int to, std::string_view message);
    // How many such messages, or parts of them, are still on their way from here.
    int sending() const { return sending_.load(std::memory_order_acquire); }
    void tell(Told told);
    // Has `wait` look now and then whether the process of a rank still runs, by a descriptor from pidfd_open, which
    // becomes the messenger's. Memory that two ranks share does not tell one that the other is gone.
    void watch_process(int of, int descriptor);
    // Makes progress until there is something to tell; false: `close` was called.
    bool wait(std::vector<Told>& told);
    // `wait` returns false from now on, and receives of messages between threads end.
    void close();

    const int rank, size;
    const MadeHere made;

private:
    struct Start {
        Request* request;
        bool cancels;
        std::shared_ptr<void> held;
    };
    struct Letter;

    bool progress(bool& found);
    void hand_over(Start start);
    void attend();
    void take_starts();  // with the transport
    bool look();         // with the transport: for messages that have ended; whether there are some
    void listen();       // for the next message between threads
    void received(Letter& letter);
    void look_after_processes();

    const std::unique_ptr<Transport> transport_;
    std::vector<Request*> watched_;  // of ranks of one host: those that end when a word in memory is as wanted
    std::mutex transport_mutex_;     // held by the thread that is in the transport
    std::vector<Request*> ended_;
    std::vector<Start> taken_;

    std::atomic<bool> handed_{false};  // there are starts that nobody has taken
    std::mutex starts_mutex_;
    std::vector<Start> starts_;

    std::mutex told_mutex_;
    std::vector<Told> told_;
    std::atomic<bool> news_{false}, closed_{false};
    std::atomic<bool> alone_{true};  // no worker has looked since one went to sleep
    std::atomic<int> sending_{0};
    bool failed_ = false;  // with the transport: that it has failed was told

    struct Process {
        int rank, descriptor;
        bool ended;  // it had at the last look
    };
    std::mutex processes_mutex_;
    std::vector<Process> processes_;
    std::int64_t processes_looked_at_ = 0;  // the waiting thread's
    EventCount wake_;                       // of the thread in `wait`
    std::unique_ptr<Letter> letter_;        // the receive for messages between threads
    std::vector<std::string> partial_;      // by rank, the parts of a message that have come
};

}  // namespace ostinato
