"""Where the C headers of native tasks and of profilers are."""

from __future__ import annotations

from pathlib import Path

__all__ = ["get_include"]


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
