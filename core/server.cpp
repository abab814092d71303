#include "server.h"

#include "parking.h"
#include "relax.h"

namespace ostinato {

namespace {

constexpr std::int64_t kBudget = 4096;          // operations between looks at the clock
constexpr int kAlonePatience = 64;              // what a result takes from core to core, many times over
constexpr int kPatience = 8;                    // about what it takes to turn to another lane
constexpr std::int64_t kTurnNs = 100'000;       // a lane's turn among equals
constexpr std::int64_t kPollNs = 40'000;        // about what a sleep and a wake cost
constexpr std::int64_t kCrowdedPollNs = 1'000;  // polling takes the core from somebody who has work
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

bool Server::turn_over() {
    budget = kBudget;
    if (machine.stale(seat))
        return true;
    if (seat.own.size() <= 1)
        return false;
    if (monotonic_ns() - turn_started_ < kTurnNs)
        return false;
    for (const Seat::Listed& listed : seat.own) {
        if (listed.lane->ready())
            return true;
    }
    turn_started_ = monotonic_ns();
    return false;
}

Lane* Server::pick() {
    Lane* best = nullptr;
    const std::size_t n = seat.own.size();
    for (std::size_t i = 0; i < n; ++i) {
        std::size_t at = seat.next_own + i;
        at = at >= n ? at - n : at;
        Lane* const lane = seat.own[at].lane;
        if (lane->ready() && (best == nullptr || lane->priority.load(std::memory_order_relaxed) >
                                                     best->priority.load(std::memory_order_relaxed))) {
            best = lane;
            seat.next_own = at + 1 == n ? 0 : at + 1;
        }
    }
    if (best != nullptr && best->try_claim())
        return best;
    for (const Seat::Listed& listed : seat.others) {
        if (listed.lane->ready() && may_take_over(machine, *listed.lane) && listed.lane->try_claim())
            return listed.lane;
    }
    return nullptr;
}

void Server::run(Lane& lane) {
    seat.running.store(&lane, std::memory_order_relaxed);
    seat.priority.store(lane.priority.load(std::memory_order_relaxed), std::memory_order_relaxed);
    patience = seat.own.size() > 1 || machine.crowded ? kPatience : kAlonePatience;
    if (seat.own.size() > 1) {
        if (machine.sleepers.load(std::memory_order_relaxed) != 0)
            offer_lanes(machine, seat, &lane);
        turn_started_ = monotonic_ns();
    }
    if (run_lane(*this, lane) == Outcome::kYielded)
        lane.blocked_on.store(nullptr, std::memory_order_relaxed);  // ready as it stands
    Seat& home = machine.seat(lane.order->home);
    python.enter(nullptr);  // the lane's context goes with it: no two threads can be in one
    lane.claim.store(0, std::memory_order_release);
    if (&home != &seat) {
        light_fence();  // against fall_asleep: it sees the claim free, or this sees it asleep
        if (home.asleep.load(std::memory_order_relaxed))
            home.doorbell.ring();
    }
    seat.running.store(nullptr, std::memory_order_relaxed);
    seat.priority.store(INT32_MAX, std::memory_order_relaxed);
}

bool Server::serve_one() {
    if (machine.stale(seat)) [[unlikely]]
        machine.refresh(seat);
    Lane* const lane = pick();
    if (lane == nullptr)
        return false;
    run(*lane);
    return true;
}

bool Server::polled_enough() {
    if (polls_++ == 0)
        polling_since_ = monotonic_ns();
    else if (polls_ % 16 == 0 && monotonic_ns() - polling_since_ > (machine.crowded ? kCrowdedPollNs : kPollNs))
        return true;
    relax();
    return false;
}

void Server::retire_idle() {
    for (auto* list : {&seat.own, &seat.others}) {
        for (const Seat::Listed& listed : *list) {
            if (listed.program->active.load(std::memory_order_relaxed) && listed.program->idle())
                machine.retire(*listed.program);
        }
    }
    if (machine.stale(seat))
        machine.refresh(seat);
}

std::uint32_t Server::serve_as_worker() {
    polls_ = 0;
    for (;;) {
        const std::uint32_t ticket = seat.doorbell.ticket();
        if (attention()) [[unlikely]] {
            const std::uint32_t asked = seat.attention.exchange(0, std::memory_order_acquire);
            if (machine.closed())
                return ticket;
            if ((asked & kWanted) != 0 && seat.callers_waiting.load(std::memory_order_seq_cst) != 0) {
                python.release();
                // The lanes left behind are served by whoever asked; it rings when it leaves or gives up waiting.
                seat.asleep.store(true, std::memory_order_relaxed);
                machine.sleepers.fetch_add(1, std::memory_order_relaxed);
                return ticket;
            }
            if (python.holds())
                python.check();
        }
        if (serve_one()) {
            polls_ = 0;
            continue;
        }
        python.release();
        if (!polled_enough())
            continue;
        polls_ = 0;
        retire_idle();
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
                seat.doorbell.sleep(ticket, kSignalNs);
            wake_up(machine, seat);
            if (!python.check())
                return false;
        }
    }
    return true;
}

}  // namespace ostinato
