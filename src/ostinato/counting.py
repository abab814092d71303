"""Numbers of things, with the singular for one."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, what: str) -> str:
    """Return a number of things.

    Examples
    --------
    >>> counted(1, "op"), counted(2, "publish")
    ('1 op', '2 publishes')
    """
    plural = "es" if what.endswith("sh") else "s"
    return f"{number} {what}{plural * (number != 1)}"
