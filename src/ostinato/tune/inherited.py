"""What candidates inherit of this process's environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase

__all__ = ["allowed_names", "inherited"]

_ALWAYS = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
    "PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "OSTINATO_*", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
)  # fmt: skip


def allowed_names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return checked names and patterns of variables; None if all are inherited.

    Raises
    ------
    TypeError, ValueError
        If it is no list of names.
    """
    if names is None:
        return None
    if isinstance(names, str | bytes) or not isinstance(names, Sequence):
        raise TypeError(f"env_allow must be a list of names or patterns of variables, got {names!r}")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"env_allow must hold names of variables, got {name!r}")
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"env_allow must hold names of variables, got {name!r}, which no variable has")
    return tuple(names)


def inherited(allowed: tuple[str, ...] | None) -> dict[str, str]:
    """Return the variables of this process that candidates inherit.

    Examples
    --------
    >>> os.environ["API_TOKEN"] = "secret"
    >>> "API_TOKEN" in inherited(None), "API_TOKEN" in inherited(()), "PATH" in inherited(())
    (True, False, True)
    >>> inherited(("API_*",))["API_TOKEN"]
    'secret'
    >>> del os.environ["API_TOKEN"]
    """
    if allowed is None:
        return dict(os.environ)
    patterns = (*_ALWAYS, *allowed)
    return {name: value for name, value in os.environ.items() if any(fnmatchcase(name, each) for each in patterns)}
