"""Pipes for what candidates print."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

__all__ = ["ROOM", "output_pipe"]

ROOM = 1 << 18
"""Bytes that fit into such a pipe, unless this user has very many of them already."""


def output_pipe() -> tuple[int, int]:
    """Return a pipe's two ends, to read and to write, with room for more than usual.

    Who prints much waits, within its limit of time, until the tuner reads; which may be a while where many candidates
    share few cores with it.

    Examples
    --------
    >>> reader, writer = output_pipe()
    >>> os.write(writer, b"x" * 65_537)
    65537
    >>> os.close(reader), os.close(writer)
    (None, None)
    """
    reader, writer = os.pipe()
    with suppress(OSError):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, ROOM)
    return reader, writer
