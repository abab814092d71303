"""Where files of Ostinato are."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_directory", "default_store", "get_include"]


def get_include() -> str:
    """Return the directory that holds ``ostinato.h`` and ``ostinato_report.h``.

    Examples
    --------
    >>> import os
    >>> os.path.exists(os.path.join(get_include(), "ostinato.h"))
    True
    """
    # An editable installation keeps the header beside the compiled module, not beside the Python files.
    for directory in _package_directories():
        include = directory / "include"
        if (include / "ostinato.h").is_file():
            return str(include)
    raise FileNotFoundError("ostinato.h is not installed beside the package; install Ostinato again")


def _package_directories() -> list[Path]:
    from importlib.resources import files  # takes as long to import as all that a tuner's worker needs

    import ostinato

    directories = [Path(entry) for entry in ostinato.__path__]
    resources = files(ostinato)
    if isinstance(resources, Path):
        directories.append(resources)
    try:
        import ostinato._core as core
    except ImportError:
        return directories
    if core.__file__ is not None:
        directories.append(Path(core.__file__).parent)
    return directories


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
