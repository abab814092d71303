"""Where what was measured is remembered."""

from __future__ import annotations

import os

__all__ = ["cache_directory", "default_store"]


def cache_directory() -> str:
    """Return the directory that ``OSTINATO_CACHE_DIR`` names, or ``ostinato`` in the user's cache directory.

    It need not exist.

    Examples
    --------
    >>> os.path.isabs(cache_directory())
    True
    """
    chosen = os.environ.get("OSTINATO_CACHE_DIR")
    if chosen:
        return os.path.abspath(chosen)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(cache if os.path.isabs(cache) else os.path.expanduser("~/.cache"), "ostinato")


def default_store() -> str:
    """Return the path of the store in the cache directory; there need not be one."""
    return os.path.join(cache_directory(), "tune.db")
