#include "lanes/worker.h"

#include <algorithm>
#include <utility>

#include "messages/channel.h"
#include "park/parking.h"
#include "python/interrupt.h"

namespace ostinato {

namespace {

constexpr std::int64_t kBudget = 4096;        // operations between looks at the clock, at most
constexpr std::int64_t kFirstBudget = 4;      // in a lane whose operations may cost anything
constexpr int kAlonePatience = 64;            // what a result takes from core to core, many times over
constexpr int kPatience = 8;                  // about what it takes to turn to another lane
constexpr int kInPlace = 256;                 // looks at it with the lane's claim, which nobody can take meanwhile
constexpr std::int64_t kPollNs = 40'000;      // about what a sleep and a wake cost
constexpr std::int64_t kVisitPollNs = 5'000;  // then a visitor leaves the slot to its worker
constexpr std::int64_t kMessagePollNs = 1'000'000;  // other ranks wake no thread here: it finds out after a nap
constexpr std::int64_t kShortPollNs = 1'000;        // where polling takes the core from a thread that has work

thread_local const Worker* serving = nullptr;

}  // namespace

const Worker* Worker::current() { return serving; }

Worker::Worker(Machine& its_machine, Slot& its_slot, PythonThread& its_python)
    : machine(its_machine), slot(its_slot), python(its_python), budget(kBudget),
      own_mode_(FloatingPointMode::current()), mode_(own_mode_) {
    serving = this;
    cancel_wait(machine, slot);
}

Worker::~Worker() {
    stop_polling();
    take_mode(own_mode_);
    serving = nullptr;
}

std::uint64_t Worker::await(Lane& lane, Timeline& timeline, std::uint64_t target) {
    lane.count_blocked();
    python.release();
    // With other lanes to serve, look at them; alone, stay here while the other side is likely to be at work.
    const int polls = patience == kAlonePatience ? kInPlace : 0;
    if (machine.watched && polls != 0) [[unlikely]]
        slot.idle.begin();
    std::uint64_t value = timeline.value.load(std::memory_order_acquire);
    for (int i = 0; i < polls && value < target; ++i) {
        relax();  // every look takes the line from its writer: looking less often lets it get more done
        value = timeline.value.load(std::memory_order_acquire);
        if (attention())
            break;
    }
    if (value < target)
        lane.block(timeline, target);
    else
        end_idle();
    return value;
}

bool Worker::turn_over() {
    const bool calls = machine.calls().at_hand();
    budget = kBudget;
    if (machine.stale(slot))
        return true;
    if (slot.own.size() <= 1 && !calls)
        return false;
    // The clock is looked at a few times a turn, whatever operations cost.
    const std::int64_t now = monotonic_ns();
    granted_ = now - looked_ < kTurnNs / 4 ? std::min(2 * granted_, kBudget) : std::max(granted_ / 2, std::int64_t{1});
    budget = granted_;
    looked_ = now;
    if (now - turn_started_ < kTurnNs)
        return false;
    if (calls && machine.calls().ready(slot.index, machine.takes_calls(slot)))
        return true;
    const std::size_t n = slot.own.size() + (calls ? slot.others.size() : 0);
    for (std::size_t at = 0; at < n; ++at) {
        const Slot::Listed* const listed = candidate(at);
        if (listed != nullptr && listed->lane->ready())
            return true;
    }
    turn_started_ = now;
    return false;
}

// The lane at index `at` of this slot's lanes and then the others, or null: it is not to be served like this slot's.
Slot::Listed* Worker::candidate(std::size_t at) {
    if (at < slot.own.size())
        return &slot.own[at];
    Slot::Listed& listed = slot.others[at - slot.own.size()];
    return machine.slot(listed.lane->order->affinity).in_call.load(std::memory_order_relaxed) ? &listed : nullptr;
}

Worker::Choice Worker::choose(bool visiting, std::optional<std::int32_t> urgent) {
    const std::size_t n = slot.own.size() + (visiting ? slot.others.size() : 0);
    const std::size_t first = slot.next < n ? slot.next : 0;
    Choice choice;
    std::int32_t most = 0;
    bool passes = false;  // over something less urgent
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t at = first + i < n ? first + i : first + i - n;
        Slot::Listed* const listed = candidate(at);
        if (listed == nullptr || !listed->lane->ready() || left_alone(*listed->lane))
            continue;
        const std::int32_t priority = listed->lane->priority.load(std::memory_order_relaxed);
        passes = passes || (choice.listed != nullptr && priority != most);
        if (choice.listed == nullptr || priority > most) {
            choice.listed = listed;
            most = priority;
            slot.next = at + 1 < n ? at + 1 : 0;
            if (!machine.priorities_differ.load(std::memory_order_relaxed))
                break;  // all are equally urgent
        }
    }
    if (choice.listed != nullptr && (passes || (urgent && *urgent > most))) [[unlikely]] {
        if (Slot::Listed* const due = passed_over(n, urgent && *urgent > most ? *urgent : most))
            return {due, true};
    }
    return choice;
}

// Whether the lane's run is left to the thread that has just submitted it, and usually does it itself.
bool Worker::left_alone(const Lane& lane) const {
    return lane.program->habit.left() && lane.program != visited_program_;
}

// Of the first `n` candidates that are ready and less urgent than `priority`, the one passed over for longest, if that
// is for too long.
Slot::Listed* Worker::passed_over(std::size_t n, std::int32_t priority) {
    const std::int64_t now = monotonic_ns();
    Slot::Listed* due = nullptr;
    for (std::size_t at = 0; at < n; ++at) {
        Slot::Listed* const listed = candidate(at);
        if (listed == nullptr)
            continue;
        if (!listed->lane->ready() || listed->lane->priority.load(std::memory_order_relaxed) >= priority)
            listed->passed_since = 0;
        else if (listed->passed_since == 0)
            listed->passed_since = now;
        else if (now - listed->passed_since > kPassedOverNs &&
                 (due == nullptr || listed->passed_since < due->passed_since))
            due = listed;
    }
    return due;
}

// Machine::notify_for relies on a slot that polls to find a new call. A worker that stops polling must look for calls
// afterwards, or notify another worker.
void Worker::start_polling() {
    if (!polling_) {
        polling_ = true;
        slot.polling.store(true, std::memory_order_relaxed);
    }
}

// Returns whether it polled.
bool Worker::stop_polling() {
    polls_ = 0;
    if (polling_)
        slot.polling.exchange(false, std::memory_order_seq_cst);
    return std::exchange(polling_, false);
}

void Worker::end_idle() {
    if (machine.watched && slot.idle.going()) [[unlikely]]
        slot.idle.end();
}

void Worker::run(Lane& lane, bool calls) {
    const bool polled = stop_polling();
    end_idle();
    slot.running.store(&lane, std::memory_order_relaxed);
    slot.priority.store(lane.priority.load(std::memory_order_relaxed), std::memory_order_relaxed);
    patience = slot.own.size() > 1 || machine.crowded ? kPatience : kAlonePatience;
    if (slot.own.size() > 1 && machine.sleepers.load(std::memory_order_relaxed) != 0)
        offer_lanes(machine, slot, &lane);
    if ((calls || polled) && machine.sleepers.load(std::memory_order_relaxed) != 0) [[unlikely]]
        machine.pass_on_calls(slot);
    if (slot.own.size() > 1 || calls) {
        turn_started_ = looked_ = monotonic_ns();
        budget = granted_ = kFirstBudget;
    }
    if (run_lane(*this, lane) == Outcome::kYielded)
        lane.blocked_on.store(nullptr, std::memory_order_relaxed);  // ready as it stands
    python.enter(nullptr);  // the lane's context goes with it: no two threads can be in one
    if (lane.order->affinity == slot.index)
        lane.claim.store(0, std::memory_order_release);
    else
        machine.give_back(lane);
    slot.running.store(nullptr, std::memory_order_relaxed);
    slot.priority.store(INT32_MAX, std::memory_order_relaxed);
}

void Worker::run(SpawnedCall& call) {
    stop_polling();
    end_idle();
    slot.in_call.store(true, std::memory_order_relaxed);
    // Against prepare_wait, Caller::leave and submit: they see that this slot looks after no lanes, or are seen here.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (machine.sleepers.load(std::memory_order_relaxed) != 0)
        machine.pass_on(slot);
    take_mode(call.floating_point);
    python.acquire();
    if (slot.by_caller.load(std::memory_order_relaxed))
        defer_interrupts();
    machine.calls().run(call, python);
    if (!slot.by_caller.load(std::memory_order_relaxed))
        start_polling();  // a thread that waits for this call may spawn the next one at once
    machine.calls().finish(call);
    slot.in_call.store(false, std::memory_order_relaxed);
}

// Among equals, calls and lanes take turns by the clock.
bool Worker::calls_have_turn(std::int64_t now) {
    if (now - calls_turn_since_ >= kTurnNs) {
        calls_turn_ = !calls_turn_;
        calls_turn_since_ = now;
    }
    return calls_turn_;
}

bool Worker::serve_one() {
    if (machine.stale(slot)) [[unlikely]] {
        machine.refresh(slot);
        // A slot that is given ever more to wait for must not look through all of it again and again.
        if (slot.own.size() + slot.others.size() > slot.most_listed)
            shorten_lists();
    }
    const bool calls = machine.calls().at_hand();
    std::optional<std::int32_t> urgent;
    std::int64_t now = 0;
    bool unbound = false;
    if (calls) [[unlikely]] {
        unbound = machine.should_take_calls(slot);
        if (machine.calls().ready(slot.index, unbound) && !machine.calls().left_alone()) {
            now = monotonic_ns();
            urgent = machine.calls().most_urgent(slot.index, unbound, now);
        }
    }
    const Choice choice = choose(calls, urgent);
    if (urgent && !choice.due) [[unlikely]] {
        std::int64_t at_least = INT32_MIN;
        if (choice.listed != nullptr) {
            at_least = choice.listed->lane->priority.load(std::memory_order_relaxed);
            if (*urgent == at_least && !calls_have_turn(now))
                ++at_least;
        }
        // Held here: its last reference ends Python objects, and that is with the GIL.
        if (const auto call = machine.calls().take(slot.index, unbound, at_least, now)) {
            run(*call);
            return true;
        }
    }
    if (choice.listed != nullptr && choice.listed->lane->try_claim()) {
        choice.listed->passed_since = 0;
        run(*choice.listed->lane, calls);
        return true;
    }
    return serve_other(false);
}

// Runs a ready lane of another slot. `any`: also a lane that the other slot would have served if its thread ran.
bool Worker::serve_other(bool any) {
    for (const Slot::Listed& listed : slot.others) {
        if (listed.lane->ready() && (any || may_take_over(machine, *listed.lane)) && !left_alone(*listed.lane) &&
            listed.lane->try_claim()) {
            run(*listed.lane, machine.calls().at_hand());
            return true;
        }
    }
    return false;
}

// Whether a device is waited for that has kept this slot waiting for long, and by all of its lanes: some of them
// through others.
bool Worker::waits_long() const {
    bool found = false;
    for (const Slot::Listed& listed : slot.own) {
        const Lane& lane = *listed.lane;
        const Timeline* const timeline = lane.blocked_on.load(std::memory_order_relaxed);
        if (lane.waits_long.load(std::memory_order_relaxed)) {
            found = true;
        } else if (timeline != &listed.program->frontier) {
            const auto& lanes = listed.program->lanes;
            if (std::none_of(lanes.begin(), lanes.end(), [&](const auto& other) {
                    return &other->timeline == timeline && other->order->affinity == slot.index;
                }))
                return false;
        }
    }
    return found;
}

// Of the programs whose lanes this slot serves: those by which idle workers make progress.
template <class Function>
void Worker::for_each_messenger(Function call) {
    const Messenger* last = nullptr;
    for (const Slot::Listed& listed : slot.own) {
        if (!listed.program->shared() || !listed.program->traffic->messenger->by_workers)
            continue;
        Messenger& messenger = *listed.program->traffic->messenger;
        if (std::exchange(last, &messenger) != &messenger)
            call(messenger);
    }
}

bool Worker::polled_enough() {
    if (polls_++ == 0) {
        start_polling();
        polling_since_ = monotonic_ns();
        if (machine.watched) [[unlikely]]
            slot.idle.begin();
        bool messages = false;
        for_each_messenger([&](const Messenger&) { messages = true; });
        polling_for_ = machine.crowded || waits_long() ? kShortPollNs : messages ? kMessagePollNs : kPollNs;
    } else if (polls_ % 16 == 0 && monotonic_ns() - polling_since_ > polling_for_) {
        return true;
    }
    for_each_messenger([](Messenger& messenger) { messenger.progress(); });
    relax();
    return false;
}

void Worker::leave_messages() {
    for_each_messenger([](Messenger& messenger) { messenger.take_over(); });
}

void Worker::shorten_lists() {
    for (auto* list : {&slot.own, &slot.others}) {
        for (const Slot::Listed& listed : *list) {
            if (listed.program->listed.load(std::memory_order_relaxed) && listed.program->idle())
                machine.retire(*listed.program);
        }
    }
    if (machine.stale(slot) || slot.unswept != 0)
        machine.refresh(slot, true);
    if (slot.own.size() + slot.others.size() > machine.few_listed) {
        machine.suspend_waiting(slot);
        machine.refresh(slot, true);
    }
    slot.most_listed = std::max(machine.few_listed, 2 * (slot.own.size() + slot.others.size()));
}

std::uint32_t Worker::serve_as_worker() {
    for (;;) {
        const std::uint32_t epoch = slot.event_count.prepare_wait();
        const bool called = attention();
        if (called) [[unlikely]] {
            slot.attention.exchange(0, std::memory_order_acquire);
            if (machine.closed())
                return epoch;
        }
        if (slot.callers_waiting.load(std::memory_order_seq_cst) != 0) [[unlikely]] {
            python.release();
            // The lanes left behind are served by whoever asked; it notifies when it leaves or gives up waiting.
            slot.asleep.store(true, std::memory_order_relaxed);
            machine.sleepers.fetch_add(1, std::memory_order_relaxed);
            return epoch;
        }
        if (called && python.holds()) [[unlikely]]
            python.check();
        if (serve_one())
            continue;
        python.release();
        if (!polled_enough())
            continue;
        if (serve_other(true))
            continue;
        stop_polling();
        shorten_lists();
        if (prepare_wait(machine, slot)) {
            leave_messages();
            return epoch;
        }
    }
}

bool Worker::serve_until_done(const Run& run) {
    while (!run.done.load(std::memory_order_acquire)) {
        const std::uint32_t epoch = slot.event_count.prepare_wait();
        if (attention()) [[unlikely]] {
            slot.attention.exchange(0, std::memory_order_acquire);
            if (!python.check())
                return false;
        }
        if (serve_one())
            continue;
        if (run.done.load(std::memory_order_acquire))
            break;
        python.release();
        if (!polled_enough())
            continue;
        if (serve_other(true))
            continue;
        stop_polling();
        if (prepare_wait(machine, slot)) {
            leave_messages();
            if (!run.done.load(std::memory_order_acquire))
                slot.event_count.commit_wait_first(epoch, kStoresTakeNs);
            if (!run.done.load(std::memory_order_acquire) && still_waits(machine, slot))
                slot.event_count.commit_wait_first(epoch, kSignalNs);
            cancel_wait(machine, slot);
            if (!python.check())
                return false;
        }
    }
    return true;
}

// A visitor keeps the slot's order of service: where that brings up something else, it leaves the slot to its worker.
bool Worker::serve_visit(const Program& program, const Run& run) {
    visited_ = &run;
    visited_program_ = &program;
    std::int64_t give_up = 0;
    while (!run.done.load(std::memory_order_acquire)) {
        if (attention()) [[unlikely]] {
            slot.attention.exchange(0, std::memory_order_acquire);
            if (!python.check())
                return false;
            if (machine.closed() || slot.callers_waiting.load(std::memory_order_seq_cst) != 0)
                break;
        }
        if (machine.stale(slot)) [[unlikely]]
            machine.refresh(slot);
        if (machine.calls().at_hand())
            break;
        Slot::Listed* listed = choose(false, std::nullopt).listed;
        if (listed == nullptr) {
            const auto mine = [&](const Slot::Listed& other) {
                return other.program.get() == &program && other.lane->ready();
            };
            const auto at = std::find_if(slot.others.begin(), slot.others.end(), mine);
            listed = at == slot.others.end() ? nullptr : &*at;
        } else if (listed->program.get() != &program) {
            break;
        }
        if (listed != nullptr && listed->lane->try_claim()) {
            listed->passed_since = 0;
            this->run(*listed->lane, false);
            give_up = 0;
            continue;
        }
        python.release();
        relax();
        const std::int64_t now = monotonic_ns();
        if (give_up == 0)
            give_up = now + kVisitPollNs;
        else if (now > give_up)
            break;
    }
    return true;
}

void Worker::serve_visit(SpawnedCall& call) {
    if (machine.stale(slot))
        machine.refresh(slot);
    if (slot.callers_waiting.load(std::memory_order_seq_cst) != 0 || choose(true, call.priority).listed != nullptr)
        return;
    if (const auto taken = machine.calls().take_only(call, slot.index, monotonic_ns()))
        this->run(*taken);
}

}  // namespace ostinato
