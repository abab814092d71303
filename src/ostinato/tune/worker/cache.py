"""Emptying the processor's caches between samples."""

from __future__ import annotations

import os

__all__ = ["Flusher", "last_level_bytes"]

_CPUS = "/sys/devices/system/cpu"
_MOST = 64 << 20  # a server's cache of hundreds of MiB takes longer to fill than most candidates run
_UNKNOWN = 32 << 20
_PIECE = 256 << 10  # memcpy of more than this may go past the caches: it would leave them as they are


def last_level_bytes(cpus: str = _CPUS) -> int:
    """Return the size of the largest cache of the first core that this process may use."""
    core = min(os.sched_getaffinity(0))
    directory = f"{cpus}/cpu{core}/cache"
    largest = 0
    try:
        for index in os.listdir(directory):
            if index.startswith("index"):
                with open(f"{directory}/{index}/size", encoding="ascii") as file:
                    text = file.read().strip()
                largest = max(largest, int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]])
    except (OSError, ValueError, KeyError, IndexError):
        pass
    return largest or _UNKNOWN


class Flusher:
    """Called, it writes a buffer as large as the last-level cache, up to 64 MiB."""

    __slots__ = ("_buffer", "_piece")

    def __init__(self) -> None:
        size = min(last_level_bytes(), _MOST)
        self._buffer = memoryview(bytearray(-(-size // _PIECE) * _PIECE))
        self._piece = memoryview(bytes(_PIECE))

    def __call__(self) -> None:
        buffer, piece = self._buffer, self._piece
        for begin in range(0, len(buffer), _PIECE):
            buffer[begin : begin + _PIECE] = piece
