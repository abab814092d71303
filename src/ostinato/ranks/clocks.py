"""Whether two processes read the same monotonic clock."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def name_clock() -> str:
    """Return an identifier that is equal where two processes read the same monotonic clock, and differs otherwise.

    Processes of one boot of one host do, unless they are in time namespaces of their own. Empty: that is not known.
    """
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/time")
    return ""
