"""Counts, values and times as messages and tables show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def counted(number: int, what: str) -> str:
    """Return a number of things.

    Examples
    --------
    >>> counted(1, "op"), counted(2, "publish")
    ('1 op', '2 publishes')
    """
    plural = "es" if what.endswith("sh") else "s"
    return f"{number} {what}{plural * (number != 1)}"


_LONGEST = 80


def one_line(text: str) -> str:
    r"""Return a text that does nothing to a terminal and stays in its line: what cannot be printed is escaped.

    >>> one_line("red \x1b[31m\n\udcff")
    'red \\x1b[31m\\n\\udcff'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def brief(value: object) -> str:
    r"""Return a value as messages quote it: its `repr` in one line, cut where it is long.

    >>> brief([1, 2]), brief("two\nlines")
    ('[1, 2]', "'two\\nlines'")
    >>> brief(list(range(1000)))
    '[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, ...'
    """
    try:
        text = one_line(" ".join(repr(value).split("\n")))
    except Exception:  # the message is about the value; what its __repr__ raises would hide that
        text = f"<{type(value).__name__} object>"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def shorten(text: str, most: int) -> str:
    """Return a text of at most so many letters, without its last words if it is longer, and with a sign of that.

    Only a first word that is longer is cut itself.

    >>> shorten("smooth_the_image", 20), shorten("smooth_the_image", 12), shorten("a(tile=16, order=ij)", 12)
    ('smooth_the_image', 'smooth_the_…', 'a(tile=16, …')
    """
    if len(text) <= most:
        return text
    end = 0
    for place in range(most - 1):
        if not text[place].isalnum() or not text[place + 1].isalnum():
            end = place + 1
    return f"{text[: end or most - 1]}…"


_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def duration(ns: float) -> str:
    """Return a time with four digits and its unit.

    >>> duration(1234567.0), duration(0.5)
    ('1.235 ms', '0.5 ns')
    """
    size, unit = next((entry for entry in _UNITS if ns >= entry[0]), _UNITS[-1])
    digits = ns / size
    return f"{digits:.0f} {unit}" if digits >= 1000 else f"{digits:.4g} {unit}"


def micros(ns: float) -> str:
    """Return a time in microseconds with four digits, for a column or an axis that says so.

    >>> micros(1234567.0), micros(0.5), micros(12345678.0)
    ('1,235', '0.0005', '12,346')
    """
    value = ns / 1e3
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}" if value >= 1e-4 or not value else f"{value:.1e}"


def settings(config: Mapping[str, Any]) -> str:
    """Return a configuration in one line.

    >>> settings({"tile": 16, "order": "ij", "flags": ["-O2", "-g"]})
    'tile=16 order=ij flags=["-O2","-g"]'
    """
    return " ".join(f"{one_line(name)}={setting(value)}" for name, value in config.items()) or "(no parameters)"


def setting(value: object) -> str:
    """Return one value of a configuration: a str as it is, anything else as JSON.

    >>> setting(None), setting("a\\n"), setting("")
    ('null', 'a\\\\n', '""')
    """
    if isinstance(value, str) and value:
        return one_line(value)
    import json  # not with ostinato: most programs need none

    return one_line(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
