// A queue that writes down what is enqueued on it, behind the table of entry points that the loader looks in.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "devices/opencl/api.h"
#include "devices/opencl/sequence.h"

namespace ostinato::opencl {

// Where clFinish stands in each driver's table.
inline constexpr Int kFinish = 47;

// Whoever retains it may use it for longer than it records. As an object of OpenCL's it begins with its table.
class Recording {
public:
    // It stands for `queue`, and says of itself what that says. Released by clReleaseCommandQueue, as all queues are.
    static Recording* begin(const Api& api, Context context, Queue queue) { return new Recording(api, context, queue); }
    Queue queue() { return reinterpret_cast<Queue>(this); }
    // What was enqueued; from now on all is refused. `refused` says what could not be recorded, if anything.
    std::vector<Command> end(Int& refused);

    // The entries of the table come here.
    Int after(Uint count, const Event* events);  // may a command be recorded that comes after these?
    Int add(Command command, Event* event);
    Int give(Event* event);
    Int refuse(Int index);
    Int info(Uint what, std::size_t size, void* value, std::size_t* length) const;
    OwnedMemory share(Memory memory) const;
    const Api& api() const { return api_; }
    void retain();
    void release();

private:
    Recording(const Api& api, Context context, Queue queue);
    ~Recording();

    const void* const* table_;
    const void* const* other_table_;  // where loaders look if the table is marked as of the second kind; ours is not
    std::atomic<int> owners_ = 1;
    const Api& api_;
    Queue stands_for_;
    OwnedEvent done_;  // given to who asks for an event: all that a recording could wait for has happened
    bool recording_ = true;
    Int refused_ = kSuccess;
    std::vector<Command> commands_;
};

// What a code that `end` gave means; empty for codes of OpenCL.
std::string refusal(Int code);

}  // namespace ostinato::opencl
