// How runs are stopped, how they end, and who is told: core/DESIGN.md, "Stopping", "The end of a run".
#include <algorithm>
#include <utility>

#include "lanes/machine.h"
#include "messages/channel.h"
#include "program/program.h"
#include "python/ops.h"

namespace ostinato {

void Program::reach_post(Run& run, std::uint32_t index, std::uint64_t step, bool skipped) {
    std::shared_ptr<Event> event;
    std::vector<Event::Listener> listeners;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        Post& post = run.outside->posts[index];
        if (skipped)
            post.skipped = step + 1;
        if (step - run.first.load(std::memory_order_relaxed) + 1 != run.limit())
            return;
        post.told = true;
        post.poisoned = skipped || run.exhausted;
        event = std::move(post.event);
        if (event)
            listeners = event->settle(post.poisoned, run.only_poison());
    }
    if (event)
        event->announce(std::move(listeners));
}

std::shared_ptr<Event> Program::end_of(Run& run, PythonObjectHandle origin) {
    auto event = std::make_shared<Event>(std::move(origin));
    const std::lock_guard<std::mutex> lock(mutex);
    if (run.end)
        return run.end;
    if (run.outside)
        event->comes_after(run.outside->grants);
    if (!run.done.load(std::memory_order_acquire))
        return run.end = event;
    (void)event->settle(run.bad(), run.only_poison());  // nobody listens yet
    return event;
}

std::shared_ptr<Event> Program::post_of(Run& run, std::uint32_t index, PythonObjectHandle origin) {
    auto event = std::make_shared<Event>(std::move(origin));
    const std::lock_guard<std::mutex> lock(mutex);
    Post& post = run.outside->posts[index];
    if (post.event)
        return post.event;
    event->comes_after(run.outside->grants);
    if (!post.told)
        return post.event = event;
    (void)event->settle(post.poisoned, run.only_poison());  // likewise
    return event;
}

void Program::finish(Run& run) {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        run.ended = true;
    }
    if (shared_)
        tell_ranks(run, true);
    // Lanes pass through runs in order, but the last of two lanes may get here before the last of another two. Runs
    // are told to be done in order all the same, by whoever finds them first in the queue.
    while (finish_first()) {
    }
}

bool Program::finish_first() {
    Told told;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (pending_.empty() || !pending_.front()->ended || (shared_ && !pending_.front()->agreed))
            return false;
        told = end_locked(std::move(pending_.front()));
        pending_.pop_front();
    }
    tell(told);
    return true;
}

Program::Told Program::end_locked(std::shared_ptr<Run> its_run) {
    Told told{std::move(its_run), {}, {}};
    const std::shared_ptr<Run>& run = told.run;
    const auto settle = [&](std::shared_ptr<Event>& event, bool poisoned) {
        std::vector<Event::Listener> listeners = event->settle(poisoned, run->only_poison());
        told.events.emplace_back(std::move(event), std::move(listeners));
    };
    told.plan = std::move(run->plan);
    const std::uint64_t steps = run->limit(), end = run->first.load(std::memory_order_relaxed) + steps;
    if (run->outside) {
        for (const BarrierParam& param : run->outside->barriers)
            param.barrier->leave(param.attendance);
        for (Post& post : run->outside->posts) {
            if (post.told)
                continue;
            post.told = true;
            post.poisoned = run->cancelled || run->exhausted || (steps != 0 && post.skipped == end);
            if (post.event)
                settle(post.event, post.poisoned);
        }
    }
    if (run->end)
        settle(run->end, run->bad());
    if (run->wants_callback)
        // Before it is done, and the machine can be closed; it waits for our mutex.
        machine->do_soon([run](PythonThread& python) { run_callbacks(*run, python); });
    if (machine->watched) [[unlikely]]
        machine->steps_ended.fetch_add(run->steps_run() * schedule->unrolled, std::memory_order_relaxed);
    run->done.store(true, std::memory_order_release);
    if (run->index != 0)
        publish(completed, run->index);
    return told;
}

void Program::tell(Told& told) {
    Run& run = *told.run;
    run.finished.notify();
    light_fence();  // against a caller that falls asleep: it looks at `done` after its nap, too
    Slot* const caller = run.caller.load(std::memory_order_acquire);
    if (caller != nullptr && caller->asleep.load(std::memory_order_relaxed))
        caller->event_count.notify();
    for (auto& [event, listeners] : told.events)
        event->announce(std::move(listeners));
}

bool Program::stop_locked(Run& run, std::uint64_t at_least) {
    if (run.done.load(std::memory_order_acquire))
        return false;
    if (run.settled.load(std::memory_order_relaxed))
        return true;  // the other ranks count on it
    const std::uint64_t limit = run.limit();
    run.bound.store(kDeciding, std::memory_order_release);
    heavy_fence();  // every lane has stored the step it begins, or will see that we decide and wait for our mutex
    std::uint64_t steps = at_least;
    for (const auto& lane : lanes) {
        const std::uint64_t in = lane->run_index.load(std::memory_order_acquire);
        if (in > run.index)
            steps = limit;
        else if (in == run.index)
            steps = std::max(
                steps, lane->begun.load(std::memory_order_relaxed) - run.first.load(std::memory_order_relaxed) + 1);
    }
    run.set_limit(std::min(steps, limit));
    if (shared_ && steps < limit)
        tell_ranks(run, false);
    return true;
}

void Program::tell_ranks(Run& run, bool ended) {
    traffic->messenger->tell({ended ? Messenger::News::kEnded : Messenger::News::kStopping,
                              0,
                              {},
                              shared_from_this(),
                              run.shared_from_this()});
}

void Program::join(std::shared_ptr<Traffic> its_traffic) {
    traffic = std::move(its_traffic);
    shared_ = traffic->shared();
}

std::uint64_t Program::halt(Run& run, bool cancels) {
    const std::lock_guard<std::mutex> lock(mutex);
    (void)stop_locked(run, 0);
    run.cancelled = run.cancelled || cancels;
    if (!run.started) {
        run.started = true;
        start_locked();
    }
    return run.limit();
}

void Program::settle(Run& run, std::uint64_t steps) {
    const std::lock_guard<std::mutex> lock(mutex);
    run.set_limit(steps);
    run.settled.store(true, std::memory_order_release);
    if (settled.value.load(std::memory_order_relaxed) < run.index)
        publish(settled, run.index);
}

void Program::agree(Run& run, bool failed_elsewhere) {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        run.agreed = true;
        run.failed_elsewhere = failed_elsewhere;
    }
    while (finish_first()) {
    }
}

void Program::skip_held(const std::shared_ptr<Run>& failed) {
    std::vector<Told> all;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        for (std::shared_ptr<Run>& run : held_) {
            run->poisoned = true;
            run->skipped_for = failed;
            run->set_limit(0);
            all.push_back(end_locked(std::move(run)));
        }
        held_.clear();
    }
    for (Told& told : all) {
        tell(told);
        unqueued.fetch_sub(1, std::memory_order_seq_cst);  // against Machine::suspend_waiting
    }
}

bool Program::cancel(Run& run) {
    Told told;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto is_it = [&](const auto& entry) { return entry.get() == &run; };
        auto* list = &waiting_;
        auto at = std::find_if(waiting_.begin(), waiting_.end(), is_it);
        if (at == waiting_.end()) {
            list = &held_;
            at = std::find_if(held_.begin(), held_.end(), is_it);
        }
        if (at == list->end()) {
            if (!stop_locked(run, 0))
                return false;
            run.cancelled = true;
            if (!run.started) {
                run.started = true;
                start_locked();
            }
            return true;
        }
        run.cancelled = true;
        run.set_limit(0);
        told = end_locked(std::move(*at));
        list->erase(at);
    }
    tell(told);
    unqueued.fetch_sub(1, std::memory_order_seq_cst);  // against Machine::suspend_waiting
    if (!listed.load(std::memory_order_seq_cst))
        machine->activate(shared_from_this());  // to be retired, if it is idle now
    return true;
}

void Program::abort(Run& run) {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!stop_locked(run, 0))
            return;
        run.aborted.store(true, std::memory_order_release);
        go_slow_locked();
    }
    for (const auto& signal : signals) {
        // The lane looks whether its run is aborted, and arms, under one hold of this; so that either it sees the
        // abort, or we see that it is in the run, and what is armed is not a later run's.
        const std::lock_guard<std::mutex> lock(signal->mutex);
        if (lanes[signal->lane]->run_index.load(std::memory_order_acquire) != run.index)
            continue;
        if (!signal->firm && signal->timeline.value.load(std::memory_order_relaxed) < signal->armed)
            publish(signal->timeline, signal->armed);
    }
    machine->call_attention();
}

void Program::stop_at(Run& run, std::uint64_t last_step) {
    const std::lock_guard<std::mutex> lock(mutex);
    const std::uint64_t steps = last_step - run.first.load(std::memory_order_relaxed) + 1;
    // No lane has begun a later step: all wait for this verdict before they read the limit.
    if (run.settled.load(std::memory_order_relaxed) && steps < run.limit()) {
        run.disagreed = true;
        return;
    }
    if (steps <= run.limit())
        run.met = true;
    if (steps < run.limit()) {
        run.set_limit(steps);
        if (shared_)
            tell_ranks(run, false);
    }
}

}  // namespace ostinato
