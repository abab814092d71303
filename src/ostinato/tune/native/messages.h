// The messages between a tuner and its reaper: one datagram of a SOCK_SEQPACKET pair each, in this machine's byte
// order. src/ostinato/tune/workers/reaper.py has the same layouts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ostinato::reaper {

// To the reaper. The first field of every message is its kind.
enum class Request : std::uint32_t {
    setup = 1,   // Setup, then the bytes of a core mask, or none: not bound
    leases = 2,  // descriptors come with it: locked files; without any: let go of all that came before
    spawn = 3,   // Spawn, then `targets` numbers; descriptors come with it: the words, then one for each number
    kill = 4,
    sweep = 5,
    close = 6,
};

struct Setup {
    Request kind;
    std::uint32_t idle_priority;
};

struct Spawn {
    Request kind;
    std::uint32_t arguments;
    std::uint32_t variables;
    std::uint32_t targets;   // descriptors of the command
    std::uint64_t limit_ns;  // 0: none
    std::uint64_t memory;    // 0: no limit
};

// From the reaper.
enum class Event : std::uint32_t { started = 1, not_started = 2, exited = 3, stuck = 4, swept = 5 };

enum class Stage : std::uint32_t { fork, setup, chdir, exec };
enum class Cause : std::uint32_t { exit, time, memory, killed };

struct Started {
    Event kind = Event::started;
    std::int32_t pid = 0;
};

struct NotStarted {
    Event kind = Event::not_started;
    std::int32_t error = 0;
    Stage stage = Stage::fork;
};

struct Exited {
    Event kind = Event::exited;
    std::int32_t status = 0;
    Cause cause = Cause::exit;
    std::uint32_t leftovers = 0;
    std::uint64_t max_rss = 0, cpu_ns = 0, preemptions = 0, ns = 0;
};

struct Swept {
    Event kind = Event::swept;
    std::uint32_t killed = 0;
};

constexpr std::size_t longest_request = 1 << 16;
constexpr std::ptrdiff_t most_stuck = 1000;  // of the process numbers told after Event::stuck

}  // namespace ostinato::reaper
