// Threads for tasks that may block: as many as there are jobs in flight. They take no slots, so that waiting there
// holds up nobody else. Idle ones are used again, and end after a few seconds.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace ostinato {

class Machine;
class PythonThread;

class BlockingPool {
public:
    // Gets the thread without the GIL, may take it, and throws nothing. It is called, and what it holds ends, before
    // the pool has closed.
    using Job = std::function<void(PythonThread&)>;

    explicit BlockingPool(Machine& machine) : machine_(machine) {}

    // Calls `job` on a thread of the pool, soon. Any thread, with or without the GIL. Where the system allows no more
    // threads, the job waits for one.
    void run(Job job);

    // Whether jobs waited though no thread was there for them: then it tries again to make one.
    bool grow_if_starving();

    // The threads end when nothing is left to do; waits for that if `wait`. Nothing is given to the pool from here on.
    void close(bool wait);

    // Whether the calling thread is one of this pool's.
    bool here() const;

private:
    void grow_locked();
    void work();

    Machine& machine_;
    std::mutex mutex_;
    std::condition_variable wake_, ended_;
    std::deque<Job> jobs_;
    std::size_t idle_ = 0, threads_ = 0;
    bool closing_ = false;
};

}  // namespace ostinato
