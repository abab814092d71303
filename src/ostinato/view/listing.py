"""Lists of names, for texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ostinato.counting import counted

__all__ = ["listed", "more"]

_MOST_NAMES = 6


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
