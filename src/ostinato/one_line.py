"""Text that others gave, for messages and terminals."""

from __future__ import annotations

__all__ = ["one_line"]


def one_line(text: str) -> str:
    r"""Return a text that does nothing to a terminal and stays in its line: what cannot be printed is escaped.

    >>> one_line("red \x1b[31m\n\udcff")
    'red \\x1b[31m\\n\\udcff'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
