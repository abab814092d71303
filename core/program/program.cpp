#include "program/program.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "devices/device_ops.h"
#include "lanes/machine.h"
#include "messages/channel.h"
#include "park/parking.h"

namespace ostinato {

Program::Program(std::shared_ptr<Machine> its_machine, std::shared_ptr<const Schedule> its_schedule,
                 std::shared_ptr<Plan> its_plan, Runs runs)
    : machine(std::move(its_machine)), schedule(std::move(its_schedule)), holdings(schedule->n_holdings),
      step_offset(schedule->first_step * schedule->unrolled), runs_(runs), plan_(std::move(its_plan)) {
    const auto sentinel = std::make_shared<Run>();
    sentinel->done = true;
    sentinel->lanes_behind = static_cast<std::uint32_t>(schedule->lanes.size());
    for (const std::shared_ptr<const ExternalOp>& op : plan_->external) {
        signals.push_back(std::make_shared<Signal>());
        signals.back()->firm = op->firm();
    }
    for (std::size_t i = 0; plan_->device && i < plan_->device->streams.size(); ++i) {
        in_flight_queues.push_back(std::make_shared<InFlightQueue>());
        const auto& streams = plan_->device->streams;
        const auto same = std::find_if(streams.begin(), streams.begin() + static_cast<std::ptrdiff_t>(i),
                                       [&](const auto& other) { return other->device == streams[i]->device; });
        in_flight_queues[i]->device_failed =
            in_flight_queues[static_cast<std::size_t>(same - streams.begin())]->device_failed;
        if (!in_flight_queues[i]->device_failed)
            in_flight_queues[i]->device_failed = std::make_shared<std::atomic<bool>>(false);
    }
    for (std::uint32_t i = 0; i < schedule->lanes.size(); ++i) {
        auto lane = std::make_unique<Lane>();
        lane->program = this;
        lane->order = &schedule->lanes[i];
        lane->index = i;
        lane->step = schedule->first_step;
        lane->begun = schedule->first_step;
        lane->run = sentinel;
        lane->phase.assign(schedule->periods.size(), 0);
        lane->timeline.value = schedule->first_step * lane->order->ops.size();
        lane->block(frontier, 1);
        lanes.push_back(std::move(lane));
        if (schedule->lanes[i].affinity >= machine->slots().size())
            throw std::invalid_argument("a lane is with affinity on a slot that the machine lacks");
        if (std::find(affinities.begin(), affinities.end(), schedule->lanes[i].affinity) == affinities.end())
            affinities.push_back(schedule->lanes[i].affinity);
        if (!signals.empty()) {
            for (const std::uint32_t op : schedule->lanes[i].ops) {
                if (schedule->external_of[op] != kNotExternal)
                    signals[schedule->external_of[op]]->lane = i;
            }
        }
    }
    for (const auto& lane : lanes) {
        for (const auto& other : lanes)
            lane->neighbours.push_back({&other->timeline, 0});
    }
    last_ = sentinel;
}

// A device may be slow to leave the signals, which outlive this then; the slots of the machine may not.
Program::~Program() {
    {
        const std::lock_guard<std::mutex> parking(parking_mutex());
        unregister(*this);
    }
    for (const auto& signal : signals)
        forget_waiters(signal->timeline);
    for (const auto& in_flight_queue : in_flight_queues)
        forget_waiters(in_flight_queue->timeline);
    if (traffic)
        traffic->close();
}

void Program::attend_barriers(Run& run) const {
    if (!run.outside || run.outside->barriers.empty())
        return;
    std::vector<BarrierParam*> first;  // that were given the barrier
    for (BarrierParam& param : run.outside->barriers) {
        const auto same = std::find_if(first.begin(), first.end(),
                                       [&](const auto* other) { return other->barrier == param.barrier; });
        if (same != first.end()) {
            param.attendance = (*same)->attendance;
            continue;
        }
        param.attendance = std::make_shared<Attendance>();
        param.attendance->program = runs_ == Runs::kIndependent ? nullptr : this;
        param.attendance->steps = run.requested;
        first.push_back(&param);
    }
    for (const std::shared_ptr<const ExternalOp>& op : run.plan->external)
        op->attend(run);
    const std::shared_ptr<Run> continued = std::move(run.outside->continues);
    for (const BarrierParam* const param : first) {
        const auto number = static_cast<std::size_t>(param - run.outside->barriers.data());
        param->barrier->attend(param->attendance,
                               continued ? continued->outside->barriers[number].attendance->end() : 0);
    }
}

bool Program::submit(const std::shared_ptr<Run>& run) {
    const auto n_lanes = static_cast<std::uint32_t>(lanes.size());
    run->set_limit(std::min(run->requested, kNever - 1));
    run->lanes_left = n_lanes;
    run->lanes_behind = n_lanes;
    if (schedule->n_posts != 0) {
        if (!run->outside)
            run->outside = std::make_unique<RunOutside>();
        run->outside->posts.resize(schedule->n_posts);
    }
    const std::shared_ptr<Event> after = run->outside ? run->outside->after : nullptr;
    const bool waits = runs_ == Runs::kSerial && after && !after->done();
    bool in_queue = false;
    std::vector<std::shared_ptr<Run>> released;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (passive_ || (run->asked == Asked::kWaiting && run->requested > turn_.left))
            return false;
        const bool part = run->asked == Asked::kPart;
        const std::shared_ptr<Plan>& plan = part ? held_plan_ : plan_;
        if (!plan)
            throw std::runtime_error("the program is closed");
        if (run->asked == Asked::kWhole)
            turn_.disturbed = true;
        else if (turn_.left != UINT64_MAX)
            turn_.left -= std::min(turn_.left, run->requested);
        const bool alone = idle();
        turn_.disturbed |= !alone;
        if (run->asked == Asked::kWhole)
            habit.submitted(alone && !waits);
        run->plan = plan;
        attend_barriers(*run);
        // Nothing is in flight when parts are submitted. What a rebind has begun meanwhile is for the run after them.
        run->fenced = (!part && std::exchange(fence_next_, false)) || runs_ != Runs::kPipelined ||
                      (plan->device && plan->device->fenced);
        run->all_delivered_at_submit = undelivered_.empty();
        run->failures_at_submit = failures_;
        if (waits) {
            waiting_.push_back(run);
            unqueued.fetch_add(1, std::memory_order_relaxed);
        } else {
            in_queue = start_or_hold_locked(run);
        }
        if (part && run->last_part)
            released = release_locked();
        else if (part)
            further_parts.fetch_add(1, std::memory_order_relaxed);
    }
    if (in_queue)
        queued(run);
    for (const std::shared_ptr<Run>& other : released)
        queued(other);
    if (in_queue)
        return true;
    machine->activate(shared_from_this());  // so that the machine knows of the run
    if (waits) {
        after->listen([self = shared_from_this(), run](Event&) {
            bool starts = false;
            {
                const std::lock_guard<std::mutex> lock(self->mutex);
                if (std::erase(self->waiting_, run) == 0)
                    return;  // cancelled meanwhile
                starts = self->start_or_hold_locked(run);
                self->unqueued.fetch_sub(1, std::memory_order_release);
            }
            if (starts)
                self->queued(run);
        });
    }
    return true;
}

bool Program::start_or_hold_locked(const std::shared_ptr<Run>& run) {
    if (!held_plan_ || run->asked == Asked::kPart) {
        enqueue_locked(run);
        return true;
    }
    held_.push_back(run);
    unqueued.fetch_add(1, std::memory_order_relaxed);
    return false;
}

std::vector<std::shared_ptr<Run>> Program::release_locked() {
    held_plan_.reset();
    std::vector<std::shared_ptr<Run>> runs = std::move(held_);
    held_.clear();
    for (const std::shared_ptr<Run>& run : runs) {
        enqueue_locked(run);
        unqueued.fetch_sub(1, std::memory_order_release);
    }
    return runs;
}

void Program::release() {
    std::shared_ptr<Plan> plan;  // ends outside the lock
    std::vector<std::shared_ptr<Run>> released;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        plan = held_plan_;
        released = release_locked();
    }
    for (const std::shared_ptr<Run>& run : released)
        queued(run);
}

bool Program::hold() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (passive_ || held_plan_ || !quiet_locked())
        return false;
    held_plan_ = plan_;
    return true;
}

void Program::advance(std::uint64_t step) {
    const std::lock_guard<std::mutex> lock(mutex);
    step_offset += steps_run_locked() - step;
}

void Program::begin_turn(std::uint64_t steps, bool timed) {
    const std::lock_guard<std::mutex> lock(mutex);
    turn_ = {.left = steps};
    turn_timed_.store(timed, std::memory_order_relaxed);
}

Turn Program::turn() {
    const std::lock_guard<std::mutex> lock(mutex);
    return turn_;
}

void Program::add_to_turn(std::uint64_t steps, std::int64_t ns) {
    const std::lock_guard<std::mutex> lock(mutex);
    turn_.steps += steps;
    turn_.ns += ns;
}

std::uint64_t Program::steps_run() {
    const std::lock_guard<std::mutex> lock(mutex);
    return steps_run_locked();
}

std::uint64_t Program::steps_run_locked() const {
    const Lane& lane = *lanes.front();
    const std::uint64_t steps = lane.timeline.value.load(std::memory_order_acquire) / lane.order->ops.size();
    return steps * schedule->unrolled - step_offset;
}

bool Program::number_from(std::uint64_t step) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!idle())
        return false;
    step_offset += steps_run_locked() - step;  // modulo 2^64: lanes only ever subtract it
    return true;
}

bool Program::takes_runs() {
    const std::lock_guard<std::mutex> lock(mutex);
    return plan_ && !passive_;
}

bool Program::passive() {
    const std::lock_guard<std::mutex> lock(mutex);
    return passive_;
}

void Program::make_passive() {
    const std::lock_guard<std::mutex> lock(mutex);
    passive_ = true;
}

bool Program::switch_from(Program& other) {
    {
        const std::scoped_lock lock(mutex, other.mutex);
        if (other.passive_ || !quiet_locked() || !other.quiet_locked() ||
            (other.held_plan_ && other.held_plan_ != other.plan_))
            return false;
        if (std::exchange(other.held_plan_, nullptr))
            held_plan_ = plan_;
        step_offset += steps_run_locked() - other.steps_run_locked();  // its lanes go on counting from where they stood
        for (std::size_t i = 0; i < holdings.size(); ++i) {
            holdings[i].held = other.holdings[i].held.exchange(0);
            holdings[i].skipped = other.holdings[i].skipped.exchange(0);
        }
        passive_ = false;
        other.passive_ = true;
    }
    if (other.active.load(std::memory_order_relaxed))
        machine->retire(other);  // workers need not look at its lanes any more
    return true;
}

void Program::enqueue_locked(const std::shared_ptr<Run>& run) {
    run->index = last_->index + 1;
    if (runs_ == Runs::kIndependent)
        undelivered_.clear();
    if (slow.load(std::memory_order_relaxed) && undelivered_.empty()) {
        if (completed.value.load(std::memory_order_acquire) == last_->index) {
            slow.store(false, std::memory_order_relaxed);  // nothing is in flight: nobody reads it now
            for (auto& lane : lanes)
                lane->clean_from = 0;
            trust_devices_locked();
        } else {
            run->fenced = true;
        }
    }
    if (std::exchange(last_priority_, run->priority) != run->priority) {
        machine->priorities_differ.store(true, std::memory_order_relaxed);
        // Lanes learn how urgent a run is when they enter it; until then they must be chosen for it.
        for (auto& lane : lanes) {
            if (pending_.empty() || lane->priority.load(std::memory_order_relaxed) < run->priority)
                lane->priority.store(run->priority, std::memory_order_relaxed);
        }
    }
    pending_.push_back(run);
    if (run->outside && run->outside->after) {
        std::shared_ptr<Event>& after = run->outside->after;
        run->started = after->done();
        if (run->started && !after->poisoned())
            after.reset();
        else
            start_locked();
    }
    last_->next = run;
    last_ = run;
    frontier.value.store(run->index, std::memory_order_release);
}

void Program::queued(const std::shared_ptr<Run>& run) {
    // Against workers that go to sleep: they set `asleep`, fence, and look at the frontier once more.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!listed.load(std::memory_order_relaxed))
        machine->activate(shared_from_this());
    machine->notify_slots(*this, run->priority);
    if (run->outside && run->outside->after) {
        run->outside->after->listen([self = shared_from_this(), run](Event&) {
            {
                const std::lock_guard<std::mutex> lock(self->mutex);
                run->started = true;
                self->start_locked();
            }
            self->machine->notify_slots(*self, run->priority);  // from what is less urgent
        });
    }
}

void Program::start_locked() {
    // Events happen in any order; the timeline counts runs in theirs, since lanes are in it.
    std::uint64_t upto = started.value.load(std::memory_order_relaxed);
    for (const std::shared_ptr<Run>& run : pending_) {
        if (!run->started)
            break;
        upto = std::max(upto, run->index);
    }
    if (upto != started.value.load(std::memory_order_relaxed))
        publish(started, upto);
}

bool Program::hold_waiting_lanes() {
    std::size_t held = 0;
    while (held < lanes.size() && lanes[held]->try_claim()) {
        if (lanes[held++]->reached())
            break;
    }
    if (held == lanes.size() && !lanes.back()->reached())
        return true;
    while (held-- > 0)
        machine->give_back(*lanes[held]);
    return false;
}

void Program::rebind(std::shared_ptr<Plan> plan) {
    if (plan->device && plan->device->streams.size() != in_flight_queues.size())
        throw std::invalid_argument("a plan with other streams");
    const std::lock_guard<std::mutex> lock(mutex);
    plan_.swap(plan);
    fence_next_ = true;
}

std::vector<std::shared_ptr<Run>> Program::in_flight() {
    const std::lock_guard<std::mutex> lock(mutex);
    std::vector<std::shared_ptr<Run>> runs(pending_.begin(), pending_.end());
    runs.insert(runs.end(), waiting_.begin(), waiting_.end());
    runs.insert(runs.end(), held_.begin(), held_.end());
    return runs;
}

std::shared_ptr<Plan> Program::plan() {
    const std::lock_guard<std::mutex> lock(mutex);
    return plan_;
}

std::shared_ptr<Plan> Program::held_plan() {
    const std::lock_guard<std::mutex> lock(mutex);
    return held_plan_;
}

void Program::close() {
    std::shared_ptr<Plan> plan;  // ends outside the lock
    const std::lock_guard<std::mutex> lock(mutex);
    plan.swap(plan_);
}

}  // namespace ostinato
