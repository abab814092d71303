"""An empty Warp kernel, in a module of its own because Warp compiles whole modules."""

import warp as wp

wp.config.quiet = True


@wp.kernel
def empty():  # type: ignore[no-untyped-def]
    pass
