#include "replay/machine_costs.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "lanes/lane.h"
#include "park/event_count.h"
#include "park/threads.h"
#include "program/plan.h"
#include "program/program.h"
#include "program/schedule.h"
#include "program/trace.h"

namespace ostinato {

std::int32_t nothing(const ost_call*) { return 0; }

namespace {

// What one of the four may take, where threads do not run at the same time for long enough.
constexpr std::int64_t kLongestNs = 50'000'000;
constexpr std::size_t kSamples = 31, kEnough = 7;
constexpr int kTurns = 64;      // of each thread, in one sample
constexpr int kTimelines = 32;  // that are looked at in one sample
// A slot polls for so long before it sleeps; by then its core sleeps as deeply as it does between a program's steps.
constexpr std::int64_t kAsleepNs = 60'000;
constexpr std::uint64_t kTurnSteps = 256;
constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

// Samples in nanoseconds. Their median: an interruption makes some of them long, but seldom most.
class Samples {
public:
    bool wanted() const { return values_.size() < kSamples; }
    void add(double nanoseconds) { values_.push_back(nanoseconds); }
    double seconds() {
        if (values_.size() < kEnough)
            return -1.0;
        const auto middle = values_.begin() + static_cast<std::ptrdiff_t>(values_.size() / 2);
        std::nth_element(values_.begin(), middle, values_.end());
        return std::max(*middle, 0.0) / static_cast<double>(kNanosecondsPerSecond);
    }

private:
    std::vector<double> values_;
};

// Two threads that take turns, until one of them has enough or the time is over.
class Turns {
public:
    // Waits as a lane does for another's timeline. False: in vain.
    bool wait(const Timeline& timeline, std::uint64_t target) {
        for (;;) {
            for (int i = 0; i < 1000; ++i) {
                if (timeline.reached(target))
                    return true;
                relax();
            }
            if (over() || monotonic_ns() > deadline)
                return false;
        }
    }
    void end() { over_.store(true, std::memory_order_relaxed); }
    bool over() const { return over_.load(std::memory_order_relaxed); }

    const std::int64_t deadline = monotonic_ns() + kLongestNs;
    Timeline first, second;

private:
    std::atomic<bool> over_{false};
};

void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(core), &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // where it is refused, the system places the threads
}

// Runs the two as threads, and returns what the samples say.
template <class First, class Second>
double run_both(int first_core, int second_core, First first, Second second) {
    Turns turns;
    Samples samples;
    std::thread other = start_thread([&] {
        pin(second_core);
        second(turns);
        turns.end();
    });
    try {
        start_thread([&] {
            pin(first_core);
            first(turns, samples);
            turns.end();
        }).join();
    } catch (...) {
        turns.end();
        other.join();
        throw;
    }
    other.join();
    return samples.seconds();
}

// What each turn does beside publishing: `use` is called by either thread in turn.
template <class Use>
double per_turn(int first_core, int second_core, const Use& use) {
    const auto first = [&](Turns& turns, Samples& samples) {
        for (std::uint64_t turn = 0; samples.wanted();) {
            const std::int64_t begin = monotonic_ns();
            for (int i = 0; i < kTurns; ++i) {
                use();
                publish(turns.first, ++turn);
                if (!turns.wait(turns.second, turn))
                    return;
            }
            samples.add(static_cast<double>(monotonic_ns() - begin) / (2 * kTurns));
        }
    };
    const auto second = [&](Turns& turns) {
        for (std::uint64_t turn = 1; turns.wait(turns.first, turn); ++turn) {
            use();
            publish(turns.second, turn);
        }
    };
    return run_both(first_core, second_core, first, second);
}

double measure_poll(int first_core, int second_core) {
    const auto timelines = std::make_unique<std::array<Timeline, kTimelines>>();
    std::array<Lane::Neighbour, kTimelines> neighbours;
    for (std::size_t i = 0; i < kTimelines; ++i)
        neighbours[i] = {&(*timelines)[i], 0};
    const auto first = [&](Turns& turns, Samples& samples) {
        for (std::uint64_t turn = 1; samples.wanted() && turns.wait(turns.second, turn); ++turn) {
            const std::int64_t begin = monotonic_ns();
            for (Lane::Neighbour& neighbour : neighbours) {
                const std::uint64_t value = neighbour.timeline->value.load(std::memory_order_acquire);
                if (value < turn)
                    return;
                neighbour.seen = value;
            }
            samples.add(static_cast<double>(monotonic_ns() - begin) / kTimelines);
            publish(turns.first, turn);
        }
    };
    const auto second = [&](Turns& turns) {
        for (std::uint64_t turn = 1;; ++turn) {
            for (Timeline& timeline : *timelines)
                publish(timeline, turn);
            publish(turns.second, turn);
            if (!turns.wait(turns.first, turn))
                return;
        }
    };
    return run_both(first_core, second_core, first, second);
}

// What a worker touches of a lane that it takes up and runs an operation of.
double measure_hand_over(int first_core, int second_core) {
    Lane lane;
    LineVector<NativeOp> ops(1);
    lane.neighbours.resize(1);
    return per_turn(first_core, second_core, [&] {
        if (!lane.ready() || !lane.try_claim())
            return;  // never: the other gave it back before it published
        lane.begun.store(lane.step, std::memory_order_relaxed);
        ops[0].call.step = ++lane.step;
        ++lane.neighbours[0].seen;
        publish(lane.timeline, lane.step);
        lane.block(lane.timeline, 0);
        lane.claim.store(0, std::memory_order_release);
    });
}

void measure_wake(int first_core, int second_core, MachineCosts& costs) {
    EventCount event_count;
    std::atomic<std::int64_t> woken{0};
    Samples notifies;
    const auto first = [&](Turns& turns, Samples& wakes) {
        for (std::uint64_t turn = 1; wakes.wanted() && turns.wait(turns.second, turn); ++turn) {
            const std::int64_t asleep = monotonic_ns() + kAsleepNs;
            while (monotonic_ns() < asleep)
                relax();
            const std::int64_t begin = monotonic_ns();
            event_count.notify();
            const std::int64_t notified = monotonic_ns();
            publish(turns.first, turn);
            if (!turns.wait(turns.second, turn + 1))
                break;
            wakes.add(static_cast<double>(woken.load(std::memory_order_relaxed) - begin));
            notifies.add(static_cast<double>(notified - begin));
        }
        event_count.notify();
    };
    const auto second = [&](Turns& turns) {
        for (std::uint64_t turn = 1; !turns.over(); ++turn) {
            const std::uint32_t epoch = event_count.prepare_wait();
            publish(turns.second, turn);
            event_count.commit_wait(epoch, kLongestNs);
            woken.store(monotonic_ns(), std::memory_order_relaxed);
            if (!turns.wait(turns.first, turn))
                break;
        }
        turns.end();
    };
    costs.wake = run_both(first_core, second_core, first, second);
    costs.notify = notifies.seconds();
}

// Two operations that wait for each other, on two lanes of the machine's first slot.
std::shared_ptr<Program> two_lanes(Machine& machine) {
    constexpr std::array<std::int64_t, 3> begin{0, 1, 2};
    constexpr std::array<std::int32_t, 2> ops{0, 1}, affinity{0, 0}, before{1, 0}, distance{1, 0};
    constexpr std::array<std::uint8_t, 2> pinned{1, 1}, published{1, 1};
    constexpr std::array kind{static_cast<std::uint8_t>(Kind::kNative), static_cast<std::uint8_t>(Kind::kNative)};
    constexpr std::array<std::int32_t, 1> periods{1};
    std::shared_ptr<Schedule> schedule = build_schedule({.lane_begin = begin,
                                                         .lane_ops = ops,
                                                         .affinity = affinity,
                                                         .pinned = pinned,
                                                         .kind = kind,
                                                         .wait_begin = begin,
                                                         .wait_op = before,
                                                         .wait_distance = distance,
                                                         .published = published,
                                                         .pred_begin = begin,
                                                         .pred_op = before,
                                                         .pred_distance = distance,
                                                         .periods = periods,
                                                         .largest_distance = 1});
    auto plan = std::make_shared<Plan>();
    plan->native.resize(schedule->n_stored);
    for (NativeOp& op : plan->native)
        op.function = &nothing;
    plan->scalar_patch_begin.assign(schedule->lanes.size() + 1, 0);
    plan->step_patch_begin.assign(schedule->lanes.size() + 1, 0);
    return std::make_shared<Program>(machine.shared_from_this(), schedule, plan, Runs::kPipelined);
}

// From one lane to another on one thread. In nanoseconds.
Samples measure_turn(Machine& machine) {
    Samples samples;
    const std::shared_ptr<Program> program = two_lanes(machine);
    const std::int64_t deadline = monotonic_ns() + kLongestNs;
    while (samples.wanted() && monotonic_ns() < deadline) {
        const auto run = std::make_shared<Run>();
        run->requested = kTurnSteps;
        run->floating_point = FloatingPointMode::current();
        const std::int64_t begin = monotonic_ns();
        program->submit(run);
        while (!run->done.load(std::memory_order_acquire)) {
            const std::uint32_t epoch = run->finished.prepare_wait();
            if (!run->done.load(std::memory_order_acquire))
                run->finished.commit_wait(epoch, kLongestNs);
        }
        samples.add(static_cast<double>(monotonic_ns() - begin) / (2 * kTurnSteps));
    }
    program->close();
    if (program->active.load(std::memory_order_relaxed)) {
        machine.retire(*program);
        machine.notify_all();
    }
    return samples;
}

}  // namespace

MachineCosts measure_machine(Machine& machine, int first_core, int second_core) {
    MachineCosts costs;
    costs.transfer = per_turn(first_core, second_core, [] {});
    if (costs.transfer < 0.0)
        return costs;
    costs.poll = measure_poll(first_core, second_core);
    const double turn = measure_turn(machine).seconds(), hand_over = measure_hand_over(first_core, second_core);
    if (turn >= 0.0 && hand_over >= 0.0)
        costs.switch_ = turn + std::max(hand_over - costs.transfer, 0.0);
    measure_wake(first_core, second_core, costs);
    return costs;
}

}  // namespace ostinato
