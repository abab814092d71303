// Watches events of one CUDA device, on a thread of its own that starts with the first and never takes the GIL: calls
// back when their work has ended. It asks the driver, because the driver tells of nothing after a failure, and its own
// callbacks hold up its other work.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "devices/cuda/api.h"
#include "devices/device.h"

namespace ostinato::cuda {

class Watcher {
public:
    explicit Watcher(std::shared_ptr<const Api> api) : api_(std::move(api)) {}
    ~Watcher();
    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;

    // Starts its thread. False: the system allows none.
    bool start(Context context);
    // Calls done(with, code) once `event` has happened; from its thread.
    void watch(Event event, Device::Done done, void* with);

private:
    struct Watched {
        Event event;
        Device::Done done;
        void* with;
    };

    void run(Context context);
    bool ask_for(std::vector<Watched>& watched);

    const std::shared_ptr<const Api> api_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<Watched> added_;
    bool closing_ = false;
    std::thread thread_;
};

// How the work that an event stands for has ended, or kNotReady. Where the driver cannot say, this waits for it.
Result ask(const Api& api, Event event);

// While it lives, a capture that another thread began in CUDA's global mode does not mind what this one asks the
// driver.
class Relaxed {
public:
    explicit Relaxed(const Api& api) : api_(api) { api_.capture_mode(&mode_); }
    ~Relaxed() { api_.capture_mode(&mode_); }
    Relaxed(const Relaxed&) = delete;
    Relaxed& operator=(const Relaxed&) = delete;

private:
    const Api& api_;
    int mode_ = kCaptureRelaxed;
};

}  // namespace ostinato::cuda
