#include "bindings/bindings.h"

#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "bindings/numpy.h"
#include "python/api.h"

NB_MODULE(_core, module) {
    module.doc() = "The replay core. Private: its names change without notice.";
    if (!ostinato::find_python_api() || !ostinato::find_numpy())
        throw nanobind::python_error();
    nanobind::set_leak_warnings(false);  // a program kept in a global lives until the interpreter ends; that is fine
    bind_passes(module);
    bind_schedule(module);
    bind_native(module);
    bind_eager(module);
    bind_recording(module);
    bind_plan(module);
    bind_events(module);
    bind_run(module);
    bind_runtime(module);
    bind_spawn(module);
    bind_machine_costs(module);
    bind_devices(module);
    bind_messages(module);
    module.def(
        "return_memory",
        [] {
#ifdef __GLIBC__
            malloc_trim(0);
#endif
        },
        "Give free memory back to the system, where the C library keeps it.");
}
