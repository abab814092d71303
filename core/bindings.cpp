#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_passes(nb::module_& m);

NB_MODULE(_core, m) { bind_passes(m); }
