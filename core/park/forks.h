// Which process we are in, counted in forks: what was made before a fork has its threads in the parent.
#pragma once

#include <cstdint>

namespace ostinato {

// How many forks lie between the process that loaded us and this one.
std::uint64_t forks();

// A member of what needs other threads to go on.
class MadeHere {
public:
    bool forked() const { return forks_ != forks(); }

private:
    std::uint64_t forks_ = forks();
};

}  // namespace ostinato
