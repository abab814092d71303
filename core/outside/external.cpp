#include "outside/external.h"

#include "lanes/lane.h"
#include "program/program.h"

namespace ostinato {

void Signal::reach(std::uint64_t value) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (timeline.value.load(std::memory_order_relaxed) < value)
        publish(timeline, value);
}

bool ExternalContext::happened(const std::shared_ptr<Event>& event) {
    if (event->done())
        return true;
    const std::uint64_t value = lane.step + 1;
    bool listening = false;
    {
        const std::lock_guard<std::mutex> lock(signal.mutex);
        if (aborted() && !signal.firm)
            return true;  // Program::abort looked at this signal before it was armed
        listening = signal.armed == value;
        signal.armed = value;
    }
    if (!listening)
        event->listen(
            [program = lane.program->shared_from_this(), &reached = signal, value](Event&) { reached.reach(value); });
    lane.block(signal.timeline, value);
    return event->done();
}

}  // namespace ostinato
