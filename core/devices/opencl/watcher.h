// Tells when the work that an event stands for has ended. Drivers call back for that, but PoCL does not if a command
// fails. So a thread looks at the events that are under way every now and then.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "devices/device.h"
#include "devices/opencl/api.h"

namespace ostinato::opencl {

// An event that has failed stands for nothing that came before it on its queue: it may fail while that is at work.
// This waits for all of the queue.
void wait_for_queue_of(const Api& api, Event event);

class Watcher {
public:
    explicit Watcher(const Api& api) : api_(api) {}
    ~Watcher();
    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;

    // Calls done(with, code) once `event` has happened or failed. False: the driver takes no callback.
    bool watch(Event event, Device::Done done, void* with);

private:
    // Who tells of it, the driver's callback or the thread, takes `told`.
    struct Watched {
        Watched(const Api& its_api, Event its_event, Device::Done call, void* its_with)
            : api(its_api), event(its_event), done(call), with(its_with) {
            api.RetainEvent(event);
        }
        ~Watched();
        Watched(const Watched&) = delete;
        Watched& operator=(const Watched&) = delete;
        void tell(Int status);

        const Api& api;
        const Event event;
        const Device::Done done;
        void* const with;
        std::atomic<bool> told{false};
        bool failed = false;
    };

    static void called(Event event, Int status, void* with);
    void run();
    void look();
    void forget_told();  // mutex_ held

    const Api& api_;
    std::mutex mutex_;  // guards what follows
    std::condition_variable wake_;
    std::vector<std::shared_ptr<Watched>> watched_;  // and some of which was told
    std::size_t enough_ = 0;                         // from how many on those are looked for
    bool closing_ = false;
    std::thread thread_;
};

}  // namespace ostinato::opencl
