"""NVIDIA's management library, where ``nvidia-ml-py`` and a driver are installed."""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from typing import Any

__all__ = ["nvml", "text"]


def nvml() -> Any:
    """Return the module `pynvml`, initialised; None if it or a driver is missing."""
    return _initialised(os.getpid())


def text(value: str | bytes) -> str:
    """Return what the library calls a string: bytes in older versions."""
    return value.decode() if isinstance(value, bytes) else value


@lru_cache(maxsize=1)
def _initialised(pid: int) -> Any:  # once per process: what is initialised does not survive a fork
    try:
        module = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        module.nvmlInit()
    except module.NVMLError:
        return None
    return module
