// MPI as a transport. Nothing is linked: the functions are those of the library that mpi4py has loaded, and so are the
// handles, which are of 4 or of 8 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "messages/transport.h"

namespace ostinato {

// Handles as they lie in memory, in the lowest bytes.
struct MpiHandles {
    std::uint64_t communicator = 0, byte = 0;
    int any_source = 0;
    std::size_t handle_bytes = 0, status_bytes = 0;
};

// `library`: the path of a loaded library that depends on that of MPI. Throws where a function is missing.
std::unique_ptr<Transport> transport_by_mpi(const std::string& library, const MpiHandles& handles);

}  // namespace ostinato
