#include "devices/bindings.h"

namespace ostinato {

void bind_cuda_device(nanobind::module_&) {}

}  // namespace ostinato
