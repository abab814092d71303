#include "bindings.h"

NB_MODULE(_core, module) {
    module.doc() = "The replay core. Private: its names change without notice.";
    bind_passes(module);
    bind_schedule(module);
    bind_plan(module);
    bind_runtime(module);
}
