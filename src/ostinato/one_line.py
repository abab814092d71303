"""Text that others gave, for messages and terminals."""

from __future__ import annotations

__all__ = ["brief", "one_line"]

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
