// Threads of ours: they take no signals, which are the user's, and the interpreter does not end before they have.
#pragma once

#include <functional>
#include <thread>

namespace ostinato {

// `body` is destroyed before the thread counts as ended, so that it may hold the last reference to Python objects.
// Throws std::system_error where the system allows no more threads.
std::thread start_thread(std::function<void()> body);

// A thread that needs no Python, so that the interpreter does not wait for it. It cannot be joined where the system
// allows no more threads.
std::thread start_thread_without_python(std::function<void()> body);

// Waits until none is left. Without the GIL.
void wait_for_threads();

// In a forked child, which has none.
void forget_threads();

}  // namespace ostinato
