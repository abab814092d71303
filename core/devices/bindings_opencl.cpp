#include "devices/bindings.h"

namespace ostinato {

void bind_opencl_device(nanobind::module_&) {}

}  // namespace ostinato
