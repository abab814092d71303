"""Versions of what runs a candidate."""

from __future__ import annotations

import os
import platform
import re
import sys
from contextlib import suppress
from functools import cache

__all__ = ["versions"]

_LIBRARIES = (
    "cuda-bindings",
    "cupy",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "jax",
    "jaxlib",
    "llvmlite",
    "numba",
    "numba-cuda",
    "numpy",
    "nvidia-cutlass-dsl",
    "ostinato",
    "scipy",
    "torch",
    "triton",
)
"""Libraries that compile or compute, so that another version of one may give other times; and the one that measures."""


def versions() -> dict[str, str]:
    """Return the version of Python and of each installed library that may change what a candidate does.

    Nothing is imported to find out.

    Examples
    --------
    >>> found = versions()
    >>> sorted(found)[-1], found["ostinato"]
    ('python', '...')
    """
    return dict(_installed())


@cache
def _installed() -> dict[str, str]:
    found = _named()
    for name in _LIBRARIES:
        if found.get(name) == "":
            from importlib import metadata

            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                del found[name]
    return {**dict(sorted(found.items())), "python": f"{platform.python_implementation()} {platform.python_version()}"}


def _named() -> dict[str, str]:
    """Return the versions that the names of installed libraries' metadata say; an empty one where that does not.

    `importlib.metadata` would read all that metadata, and takes longer to import than anything else that finding what
    was tuned needs.
    """
    wanted = {name.replace("-", "_"): name for name in _LIBRARIES}
    found: dict[str, str] = {}
    for folder in sys.path:
        here: dict[str, str] = {}
        with suppress(OSError):
            for entry in os.listdir(folder or "."):
                stem, ending = os.path.splitext(entry)
                if ending not in (".dist-info", ".egg-info"):
                    continue
                name, _, version = stem.partition("-")
                library = wanted.get(re.sub(r"[-_.]+", "_", name).lower())
                if library is not None:
                    plain = ending == ".dist-info" and version and library not in here
                    here[library] = version if plain else ""
        found = {**here, **found}
    return found
