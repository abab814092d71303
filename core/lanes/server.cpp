#include "lanes/server.h"

#include <algorithm>

#include "park/parking.h"
#include "park/relax.h"
#include "python/interrupt.h"

namespace ostinato {

namespace {

constexpr std::int64_t kBudget = 4096;          // operations between looks at the clock, at most
constexpr std::int64_t kFirstBudget = 4;        // in a lane whose operations may cost anything
constexpr int kAlonePatience = 64;              // what a result takes from core to core, many times over
constexpr int kPatience = 8;                    // about what it takes to turn to another lane
constexpr std::int64_t kPollNs = 40'000;        // about what a sleep and a wake cost
constexpr std::int64_t kShortPollNs = 1'000;    // polling takes the core from somebody who has work
constexpr std::int64_t kSignalNs = 20'000'000;  // a caller asleep looks at signals this often

thread_local const Server* serving = nullptr;

}  // namespace

const Server* Server::current() { return serving; }

Server::Server(Machine& its_machine, Seat& its_seat, PythonThread& its_python)
    : machine(its_machine), seat(its_seat), python(its_python), budget(kBudget),
      own_mode_(FloatingPointMode::current()), mode_(own_mode_) {
    serving = this;
    wake_up(machine, seat);
}

Server::~Server() {
    take_mode(own_mode_);
    serving = nullptr;
}

std::uint64_t Server::await(Lane& lane, Timeline& timeline, std::uint64_t target) {
    lane.count_blocked();
    python.release();
    // With other lanes to serve, look at them; alone, stay here while the other side is likely to be at work.
    const int polls = patience == kAlonePatience ? 2000 : 0;
    std::uint64_t value = timeline.value.load(std::memory_order_acquire);
    for (int i = 0; i < polls && value < target; ++i) {
        relax();  // every look takes the line from its writer: looking less often lets it get more done
        value = timeline.value.load(std::memory_order_acquire);
        if (attention())
            break;
    }
    if (value < target)
        lane.block(timeline, target);
    return value;
}

void Server::begin_turn() {
    turn_started_ = looked_ = monotonic_ns();
    budget = granted_ = kFirstBudget;
}

bool Server::turn_over() {
    const bool calls = machine.calls().at_hand();
    budget = kBudget;
    if (machine.stale(seat))
        return true;
    if (seat.own.size() <= 1 && !calls)
        return false;
    // The clock is looked at a few times a turn, whatever operations cost.
    const std::int64_t now = monotonic_ns();
    granted_ = now - looked_ < kTurnNs / 4 ? std::min(2 * granted_, kBudget) : std::max(granted_ / 2, std::int64_t{1});
    budget = granted_;
    looked_ = now;
    if (now - turn_started_ < kTurnNs)
        return false;
    const bool call_ready = calls && machine.calls().ready(seat.index, machine.takes_calls(seat));
    if (call_ready)
        return true;
    const std::size_t n = seat.own.size() + (calls ? seat.others.size() : 0);
    for (std::size_t at = 0; at < n; ++at) {
        const Seat::Listed* const listed = candidate(at);
        if (listed != nullptr && listed->lane->ready())
            return true;
    }
    turn_started_ = now;
    return false;
}

// The lane at place `at` of this seat's and then the others', if it is to be served like this seat's.
Seat::Listed* Server::candidate(std::size_t at) {
    if (at < seat.own.size())
        return &seat.own[at];
    Seat::Listed& listed = seat.others[at - seat.own.size()];
    return machine.seat(listed.lane->order->home).in_call.load(std::memory_order_relaxed) ? &listed : nullptr;
}

Server::Choice Server::choose(bool visiting, std::optional<std::int32_t> urgent) {
    const std::size_t n = seat.own.size() + (visiting ? seat.others.size() : 0);
    const std::size_t first = seat.next < n ? seat.next : 0;
    Choice choice;
    std::int32_t most = 0;
    bool passes = false;  // over something less urgent
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t at = first + i < n ? first + i : first + i - n;
        Seat::Listed* const listed = candidate(at);
        if (listed == nullptr || !listed->lane->ready())
            continue;
        const std::int32_t priority = listed->lane->priority.load(std::memory_order_relaxed);
        passes = passes || (choice.listed != nullptr && priority != most);
        if (choice.listed == nullptr || priority > most) {
            choice.listed = listed;
            most = priority;
            seat.next = at + 1 < n ? at + 1 : 0;
            if (!machine.priorities_differ.load(std::memory_order_relaxed))
                break;  // all are equally urgent
        }
    }
    if (choice.listed != nullptr && (passes || (urgent && *urgent > most))) [[unlikely]] {
        if (Seat::Listed* const due = passed_over(n, urgent && *urgent > most ? *urgent : most))
            return {due, true};
    }
    return choice;
}

// Of the first `n` candidates that are ready and less urgent than `priority`, the one passed over for longest, if that
// is for too long.
Seat::Listed* Server::passed_over(std::size_t n, std::int32_t priority) {
    const std::int64_t now = monotonic_ns();
    Seat::Listed* due = nullptr;
    for (std::size_t at = 0; at < n; ++at) {
        Seat::Listed* const listed = candidate(at);
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

void Server::run(Lane& lane, bool calls) {
    seat.running.store(&lane, std::memory_order_relaxed);
    seat.priority.store(lane.priority.load(std::memory_order_relaxed), std::memory_order_relaxed);
    patience = seat.own.size() > 1 || machine.crowded ? kPatience : kAlonePatience;
    if (seat.own.size() > 1 && machine.sleepers.load(std::memory_order_relaxed) != 0)
        offer_lanes(machine, seat, &lane);
    if (calls && machine.sleepers.load(std::memory_order_relaxed) != 0) [[unlikely]]
        machine.pass_on_calls(seat);
    if (seat.own.size() > 1 || calls)
        begin_turn();
    if (run_lane(*this, lane) == Outcome::kYielded)
        lane.blocked_on.store(nullptr, std::memory_order_relaxed);  // ready as it stands
    python.enter(nullptr);  // the lane's context goes with it: no two threads can be in one
    if (lane.order->home == seat.index)
        lane.claim.store(0, std::memory_order_release);
    else
        machine.give_back(lane);
    seat.running.store(nullptr, std::memory_order_relaxed);
    seat.priority.store(INT32_MAX, std::memory_order_relaxed);
}

void Server::run(SpawnedCall& call) {
    seat.in_call.store(true, std::memory_order_relaxed);
    // Against fall_asleep, Caller::leave and submit: they see that this seat looks after no lanes, or are seen here.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (machine.sleepers.load(std::memory_order_relaxed) != 0)
        machine.pass_on(seat);
    take_mode(call.floating_point);
    python.acquire();
    if (seat.by_caller.load(std::memory_order_relaxed))
        defer_interrupts();
    machine.calls().run(call, python);
    seat.in_call.store(false, std::memory_order_relaxed);
}

// Among equals, calls and lanes take turns by the clock.
bool Server::calls_have_turn(std::int64_t now) {
    if (now - calls_turn_since_ >= kTurnNs) {
        calls_turn_ = !calls_turn_;
        calls_turn_since_ = now;
    }
    return calls_turn_;
}

bool Server::serve_one() {
    if (machine.stale(seat)) [[unlikely]]
        look_at_lists();
    const bool calls = machine.calls().at_hand();
    std::optional<std::int32_t> urgent;
    std::int64_t now = 0;
    bool unbound = false;
    if (calls) [[unlikely]] {
        unbound = machine.should_take_calls(seat);
        if (machine.calls().ready(seat.index, unbound)) {
            now = monotonic_ns();
            urgent = machine.calls().most_urgent(seat.index, unbound, now);
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
        if (const auto call = machine.calls().take(seat.index, unbound, at_least, now)) {
            run(*call);
            return true;
        }
    }
    if (choice.listed != nullptr && choice.listed->lane->try_claim()) {
        choice.listed->passed_since = 0;
        run(*choice.listed->lane, calls);
        return true;
    }
    for (const Seat::Listed& listed : seat.others) {
        if (listed.lane->ready() && may_take_over(machine, *listed.lane) && listed.lane->try_claim()) {
            run(*listed.lane, calls);
            return true;
        }
    }
    return false;
}

// Whether a device is waited for that has kept this seat waiting for long, and by all of its lanes: some of them
// through others.
bool Server::waits_long() const {
    bool found = false;
    for (const Seat::Listed& listed : seat.own) {
        const Lane& lane = *listed.lane;
        const Timeline* const timeline = lane.blocked_on.load(std::memory_order_relaxed);
        if (lane.waits_long.load(std::memory_order_relaxed)) {
            found = true;
        } else if (timeline != &listed.program->frontier) {
            const auto& lanes = listed.program->lanes;
            if (std::none_of(lanes.begin(), lanes.end(), [&](const auto& other) {
                    return &other->timeline == timeline && other->order->home == seat.index;
                }))
                return false;
        }
    }
    return found;
}

bool Server::polled_enough() {
    if (polls_++ == 0) {
        polling_since_ = monotonic_ns();
        polling_for_ = machine.crowded || waits_long() ? kShortPollNs : kPollNs;
    } else if (polls_ % 16 == 0 && monotonic_ns() - polling_since_ > polling_for_) {
        return true;
    }
    relax();
    return false;
}

void Server::shorten_lists() {
    for (auto* list : {&seat.own, &seat.others}) {
        for (const Seat::Listed& listed : *list) {
            if (listed.program->listed.load(std::memory_order_relaxed) && listed.program->idle())
                machine.retire(*listed.program);
        }
    }
    if (machine.stale(seat) || seat.unswept != 0)
        machine.refresh(seat, true);
    if (seat.own.size() + seat.others.size() > machine.few_listed) {
        machine.suspend_waiting(seat);
        machine.refresh(seat, true);
    }
    seat.most_listed = std::max(machine.few_listed, 2 * (seat.own.size() + seat.others.size()));
}

// A seat that is given ever more to wait for must not look through all of it again and again.
void Server::look_at_lists() {
    machine.refresh(seat);
    if (seat.own.size() + seat.others.size() > seat.most_listed)
        shorten_lists();
}

std::uint32_t Server::serve_as_worker() {
    polls_ = 0;
    for (;;) {
        const std::uint32_t ticket = seat.doorbell.ticket();
        const bool called = attention();
        if (called) [[unlikely]] {
            seat.attention.exchange(0, std::memory_order_acquire);
            if (machine.closed())
                return ticket;
        }
        if (seat.callers_waiting.load(std::memory_order_seq_cst) != 0) [[unlikely]] {
            python.release();
            // The lanes left behind are served by whoever asked; it rings when it leaves or gives up waiting.
            seat.asleep.store(true, std::memory_order_relaxed);
            machine.sleepers.fetch_add(1, std::memory_order_relaxed);
            return ticket;
        }
        if (called && python.holds()) [[unlikely]]
            python.check();
        if (serve_one()) {
            polls_ = 0;
            continue;
        }
        python.release();
        if (!polled_enough())
            continue;
        polls_ = 0;
        shorten_lists();
        if (fall_asleep(machine, seat))
            return ticket;
    }
}

bool Server::serve_until_done(const Run& run) {
    polls_ = 0;
    while (!run.done.load(std::memory_order_acquire)) {
        const std::uint32_t ticket = seat.doorbell.ticket();
        if (attention()) [[unlikely]] {
            seat.attention.exchange(0, std::memory_order_acquire);
            if (!python.check())
                return false;
        }
        if (serve_one()) {
            polls_ = 0;
            continue;
        }
        if (run.done.load(std::memory_order_acquire))
            break;
        python.release();
        if (!polled_enough())
            continue;
        polls_ = 0;
        if (fall_asleep(machine, seat)) {
            if (!run.done.load(std::memory_order_acquire))
                seat.doorbell.sleep_first(ticket, kSignalNs);
            wake_up(machine, seat);
            if (!python.check())
                return false;
        }
    }
    return true;
}

}  // namespace ostinato
