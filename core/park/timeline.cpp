#include "park/timeline.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace ostinato {

bool asymmetric_fences = false;

void prepare_fences() {
    static const bool registered = [] {
        return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    }();
    asymmetric_fences = registered;
}

void heavy_fence() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!asymmetric_fences || syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
        return;
    // Refused from now on, by a filter that was installed late. What others stored before we began is visible after
    // this; what they load from now on comes after our stores.
    std::this_thread::sleep_for(std::chrono::nanoseconds(kStoresTakeNs));
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace ostinato
