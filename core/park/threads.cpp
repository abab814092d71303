#include "park/threads.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <system_error>
#include <utility>

namespace ostinato {

namespace {

std::atomic<std::uint32_t> threads_alive{0};

// A new thread inherits what its maker blocks.
class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

private:
    sigset_t before_;
};

}  // namespace

std::thread start_thread_without_python(std::function<void()> body) {
    const SignalsBlocked blocked;
    try {
        return std::thread(std::move(body));
    } catch (const std::system_error&) {
        return {};
    }
}

std::thread start_thread(std::function<void()> body) {
    const SignalsBlocked blocked;
    threads_alive.fetch_add(1, std::memory_order_relaxed);
    try {
        return std::thread([body = std::move(body)]() mutable {
            body();
            body = nullptr;
            threads_alive.fetch_sub(1, std::memory_order_release);
            threads_alive.notify_all();
        });
    } catch (...) {
        threads_alive.fetch_sub(1, std::memory_order_relaxed);
        throw;
    }
}

void wait_for_threads() {
    while (const std::uint32_t alive = threads_alive.load(std::memory_order_acquire))
        threads_alive.wait(alive, std::memory_order_acquire);
}

void forget_threads() { threads_alive.store(0, std::memory_order_relaxed); }

}  // namespace ostinato
