"""Numbers of things and lists of names, for texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

__all__ = ["counted", "listed", "more"]

_MOST_NAMES = 6


def counted(number: int, what: str) -> str:
    """Return a number of things.

    Examples
    --------
    >>> counted(1, "op"), counted(2, "publish")
    ('1 op', '2 publishes')
    """
    plural = "es" if what.endswith("sh") else "s"
    return f"{number} {what}{plural * (number != 1)}"


def more(number: int, what: str) -> Sequence[str]:
    """Return the line that says how many were left out, if any were."""
    return [f"  and {counted(number, what)} more"] if number > 0 else []


def listed(names: Iterable[str]) -> str:
    """Return names, each once with its number, the most frequent first.

    Examples
    --------
    >>> listed(["add", "scale", "add"])
    '2 x add, scale'
    """
    counts = Counter(names)
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    shown = [f"{counts[name]} x {name}" if counts[name] > 1 else name for name in ranked[:_MOST_NAMES]]
    return ", ".join([*shown, *(line.strip() for line in more(len(ranked) - _MOST_NAMES, "name"))]) or "nothing"
