// What a reaper holds of the lease of its device: duplicates of the tuner's descriptors of locked files.
#pragma once

#include <vector>

#include "descriptor.h"

namespace ostinato::reaper {

class Leases {
public:
    void add(Descriptor file);
    void let_go() { leases_.clear(); }

    // For a reaper whose tuner has died and whose commands are gone: unlocks each lease that no other reaper has. It
    // does so explicitly because a process forked from the tuner may hold a copy, which would keep the lock.
    void unlock();

private:
    struct Lease {
        Descriptor file;  // shares its lock with the tuner and with the other reapers of the device
        Descriptor own;   // the same file, opened once more: says by a lock of another kind that we are not through
    };
    std::vector<Lease> leases_;
};

}  // namespace ostinato::reaper
