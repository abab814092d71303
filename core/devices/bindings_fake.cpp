#include "devices/bindings.h"

namespace ostinato {

void bind_fake_device(nanobind::module_&) {}

}  // namespace ostinato
