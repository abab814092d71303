#include "python/external.h"

#include <utility>

#include "lanes/worker.h"
#include "outside/blocking_pool.h"
#include "program/program.h"
#include "python/plan.h"
#include "python/thread.h"

namespace ostinato {

bool arrive_with_value(ExternalContext context, Barrier& barrier, std::uint64_t phase, std::uint64_t count,
                       Attendance* attendance, const PythonObject* value, std::int32_t param, ExceptionHandle& raised) {
    PythonThread& python = context.worker.python;
    PythonRun& run = *context.run.python;
    python.acquire();
    python.enter(run.context_of(context.lane.index));
    if (!barrier.promise(phase, count, attendance))
        return false;
    raised = keep_with_value(barrier, phase, count,
                             param < 0 ? value->object.get() : run.values[static_cast<std::size_t>(param)].get());
    return true;
}

namespace {
thread_local const Program* program_here = nullptr;
}  // namespace

const Program* program_of_this_thread() { return program_here; }

ExternalOp::Outcome BlockingTaskOp::advance(ExternalContext context) const {
    Signal& signal = context.signal;
    if (signal.pending == nullptr) {
        if (context.aborted())
            return {Result::kSkipped};
        {
            const std::lock_guard<std::mutex> lock(signal.mutex);  // an abort reads it
            signal.firm = true;
        }
        signal.pending = std::make_shared<Event>();
        const Lane& lane = context.lane;
        const PythonOp& op = context.run.plan->python->ops[index_];
        // The lane stands still until the event: what is borrowed here stays.
        auto job = [program = lane.program, &op, &signal, ended = signal.pending, run = context.run.shared_from_this(),
                    phase = lane.phase[op.period_class], user_step = context.run.user_step(lane.step),
                    lane = lane.index](PythonThread& python) {
            const FloatingPointMode own = FloatingPointMode::current();
            run->floating_point.apply();
            program_here = program;
            python.acquire();
            python.enter(PythonReference::steal(python_api.context_copy(run->python->context.get())).get());
            {
                const EndingWaits ending(run->aborted);
                const InTask here(python, run.get());
                PyObject* const number = run->plan->python->number_of(lane, user_step);
                if (number == nullptr ||
                    PythonReference::steal(run->plan->python->call(op, phase, number)).get() == nullptr)
                    signal.failure = take_exception();
            }
            if (signal.failure && run->aborted.load(std::memory_order_acquire) && raised_cancelled(*signal.failure)) {
                signal.failure.reset();  // nobody's: it ended as it was told to
                signal.left = true;
            }
            python.enter(nullptr);
            python.release();
            program_here = nullptr;
            own.apply();
            ended->trigger();
        };
        lane.program->machine->blocking_pool().run(std::move(job));
    }
    if (!context.happened(signal.pending))
        return {Result::kBlocked};
    signal.pending.reset();
    if (std::exchange(signal.left, false))
        return {Result::kSkipped};
    if (signal.failure)
        return {.result = Result::kFailed, .exception = std::move(signal.failure)};
    return {Result::kDone};
}

}  // namespace ostinato
