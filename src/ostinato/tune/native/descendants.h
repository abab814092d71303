// The processes below this one, as /proc shows them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace ostinato::reaper {

// Sends SIGKILL to every living descendant but `spared`, and returns them. One that is born or gets another parent
// meanwhile may be missed; but who is killed does not fork any more, so when this is called again and again, none
// remains.
std::vector<pid_t> kill_descendants(pid_t spared);

// Bytes that all descendants together have resident. Where that is more than `limit`, counts what they share once.
std::uint64_t resident_bytes(std::uint64_t limit);

}  // namespace ostinato::reaper
