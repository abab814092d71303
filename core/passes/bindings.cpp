#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_passes(nb::module_& m);

void bind_passes(nb::module_& m) { (void)m; }
