// How a lane passes from run to run.
#include "devices/device_ops.h"
#include "lanes/lane_loop.h"
#include "program/program.h"
#include "python/ops.h"

namespace ostinato {

bool enter_next_run(Worker& worker, Lane& lane) {
    Program& program = *lane.program;
    const std::uint64_t wanted = lane.run->index + 1;
    if (program.frontier.value.load(std::memory_order_acquire) < wanted) {
        lane.block(program.frontier, wanted);
        return false;
    }
    // A worker leaves the run to the thread in replay() that submitted it, and asked for the slot before.
    const Slot& slot = worker.slot;
    if (slot.callers_waiting.load(std::memory_order_relaxed) != 0 && !slot.by_caller.load(std::memory_order_relaxed))
        [[unlikely]] {
        lane.block(program.frontier, wanted);
        return false;
    }
    // Set before the frontier was published; cleared only after every lane has moved on.
    const std::shared_ptr<Run>& next = lane.run->next;
    if (next->fenced && !program.completed.reached(wanted - 1) &&
        worker.await(lane, program.completed, wanted - 1) < wanted - 1)
        return false;
    if (next->outside && next->outside->after && !program.started.reached(wanted) &&
        worker.await(lane, program.started, wanted) < wanted)
        return false;
    if (next->fenced && program.starts_clean(*next))
        lane.clean_from = lane.step;
    std::shared_ptr<Run> left = std::move(lane.run);
    lane.run = next;
    if (left->lanes_behind.fetch_sub(1, std::memory_order_acq_rel) == 1)
        left->next.reset();
    Run& run = *lane.run;
    run.first.store(lane.step, std::memory_order_relaxed);
    run.offset.store(run.user_first == kContinued ? program.step_offset : lane.step - run.user_first,
                     std::memory_order_relaxed);
    lane.run_index.store(run.index, std::memory_order_release);
    lane.priority.store(run.priority, std::memory_order_relaxed);
    worker.slot.priority.store(run.priority, std::memory_order_relaxed);
    lane.entered = true;
    lane.in_step = false;
    if (run.outside && run.outside->after && run.outside->after->poisoned())
        program.poison_start(run);
    Plan& plan = *run.plan;
    for (std::uint32_t i = plan.scalar_patch_begin[lane.index]; i < plan.scalar_patch_begin[lane.index + 1]; ++i) {
        const ScalarPatch& patch = plan.scalar_patches[i];
        plan.scalars[patch.scalar].i64 = static_cast<std::int64_t>(run.values[patch.value]);
    }
    if (plan.python)
        apply_python_parameters(worker, lane);
    return true;
}

bool leave_run(Worker& worker, Lane& lane) {
    const std::shared_ptr<Run> run = lane.run;
    const bool device = run->plan->device != nullptr;
    if (lane.program->shared() && !lane.last) {
        // A stopper on this rank has lowered the bound: the ranks agree on one that all can share, which is not lower.
        if (!run->settled.load(std::memory_order_acquire) && run->limit() < run->requested) {
            lane.block(lane.program->settled, run->index);
            return false;
        }
        if (lane.step - run->first.load(std::memory_order_relaxed) < run->limit())
            return true;
    }
    if (!lane.last) {
        if (device && !device_settled(worker, lane))
            return false;
        publish(lane.timeline, lane.step * lane.order->ops.size());
        if (run->lanes_left.fetch_sub(1, std::memory_order_acq_rel) != 1) {
            lane.entered = false;
            return true;
        }
        if (device && run->trace)
            tell_untold(worker, lane);
        lane.last = device && write_back(worker, lane);
    }
    if (lane.last && !written_back(worker, lane))
        return false;
    lane.last = false;
    lane.entered = false;
    lane.program->finish(*run);
    return true;
}

}  // namespace ostinato
