"""Which shared library an address is in."""

from __future__ import annotations

import ctypes
import os

from ostinato.tune.candidate import Candidate
from ostinato.tune.graphs.cases.code import Unknown
from ostinato.tune.store.source import Sources

__all__ = ["in_library"]


class _Info(ctypes.Structure):
    """What ``dladdr`` says."""

    _fields_ = (
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def in_library(address: int) -> tuple[str, int]:
    """Return the digest of the file of the shared library that holds an address, and the offset in the library.

    Raises
    ------
    Unknown
        It is in none, or that has been changed since it was loaded.
    """
    info = _Info()
    found = ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info))
    if not found or not info.path or info.base is None:
        raise Unknown(f"no library is at {address:#x}")
    path = _loaded_from(address)
    if path is None or os.path.samefile(path, "/proc/self/exe"):
        raise Unknown(f"the library at {address:#x} is there no more")
    return Sources().imported(Candidate.call("builtins:_", source=[path]))[f"file {path}"], address - info.base


def _loaded_from(address: int) -> str | None:
    """Return the file that is mapped at an address; None if it has been replaced since."""
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            where, _, _, _, _, *path = line.rstrip(b"\n").split(maxsplit=5)
            begin, end = (int(bound, 16) for bound in where.split(b"-"))
            if begin <= address < end:
                found = os.fsdecode(path[0]) if path else ""
                return found if os.path.isfile(found) else None  # "FILE (deleted)" is no file
    return None
