"""Versions of what runs a candidate."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

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
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {**found, "python": f"{platform.python_implementation()} {platform.python_version()}"}
