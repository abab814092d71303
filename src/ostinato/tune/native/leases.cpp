#include "leases.h"

#include <fcntl.h>
#include <sys/file.h>

#include <string>

namespace ostinato::reaper {

namespace {

// These locks know nothing of those of flock. Each belongs to one opening of the file, and ends with it.
bool lock(const Descriptor& file, short kind) {
    struct flock whole{};
    whole.l_type = kind;
    whole.l_whence = SEEK_SET;
    return ::fcntl(file.number(), F_OFD_SETLK, &whole) == 0;
}

}  // namespace

void Leases::add(Descriptor file) {
    const std::string path = "/proc/self/fd/" + std::to_string(file.number());
    Descriptor own(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    lock(own, F_RDLCK);
    leases_.push_back({std::move(file), std::move(own)});
}

void Leases::unlock() {
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

}  // namespace ostinato::reaper
