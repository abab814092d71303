#include "timeline.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ostinato {

bool asymmetric_fences = false;

void prepare_fences() {
    static const bool registered = [] {
        return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    }();
    asymmetric_fences = registered;
}

void heavy_fence() {
    if (asymmetric_fences)
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    else
        std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace ostinato
