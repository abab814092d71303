// External operations that need Python: arrivals with a value, and tasks that may block.
#pragma once

#include "outside/external.h"

namespace ostinato {

class Program;

// Arrives with a value: `value`, or the run's object number `param` where that is not negative. False: too many
// arrivals. `raised`: what the barrier's reduction raised; nothing has arrived then.
bool arrive_with_value(ExternalContext context, Barrier& barrier, std::uint64_t phase, std::uint64_t count,
                       Attendance* attendance, const PythonObject* value, std::int32_t param, ExceptionHandle& raised);

// A Python task that may wait: it runs on a thread of its own, and its lane waits for its end as for any event.
// The program whose task that may block the calling thread runs; null if it runs none.
const Program* program_of_this_thread();

class BlockingTaskOp final : public ExternalOp {
public:
    explicit BlockingTaskOp(std::uint32_t index) : index_(index) {}  // of PythonPlan::ops
    Outcome advance(ExternalContext context) const override;
    std::string waits_for(const Plan&, const Run&, std::uint64_t) const override {
        return "a task that may block, to end";
    }

private:
    std::uint32_t index_;
};

}  // namespace ostinato
