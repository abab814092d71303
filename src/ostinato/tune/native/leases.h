// What a reaper holds of the lease of its device: duplicates of the tuner's descriptors of locked files.
#pragma once

#include <fcntl.h>
#include <sys/file.h>

#include <string>
#include <vector>

#include "descriptor.h"

namespace ostinato::reaper {

class Leases {
public:
    void add(Descriptor file) {
        const std::string path = "/proc/self/fd/" + std::to_string(file.number());
        Descriptor own(::open(path.c_str(), O_RDWR | O_CLOEXEC));
        lock(own, F_RDLCK);
        leases_.push_back({std::move(file), std::move(own)});
    }

    void let_go() { leases_.clear(); }

    // For a reaper whose tuner has died and whose commands are gone: unlocks each lease that no other reaper has. It
    // does so explicitly because a process forked from the tuner may hold a copy, which would keep the lock.
    void unlock() {
        for (const Lease& lease : leases_) {
            lock(lease.own, F_UNLCK);
            // Without the right to write there is no telling: then it is unlocked when the last descriptor is closed.
            const bool last = lock(lease.own, F_WRLCK);
            lock(lease.own, F_UNLCK);  // before another tuner's reapers can come
            if (last) {
                ::flock(lease.file.number(), LOCK_UN);
            }
        }
    }

private:
    struct Lease {
        Descriptor file;  // shares its lock with the tuner and with the other reapers of the device
        Descriptor own;   // the same file, opened once more, with a lock of another kind while we still need the lease
    };

    // These locks know nothing of those of flock. Each belongs to one opening of the file, and ends with it.
    static bool lock(const Descriptor& file, short kind) {
        struct flock whole{};
        whole.l_type = kind;
        whole.l_whence = SEEK_SET;
        return ::fcntl(file.number(), F_OFD_SETLK, &whole) == 0;
    }

    std::vector<Lease> leases_;
};

}  // namespace ostinato::reaper
