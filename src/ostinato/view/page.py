"""What notebooks show: HTML that needs nothing else, in the colours of the page that it is shown in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ostinato.text import one_line
from ostinato.view.palette import ink_on

_STYLE = """
.ostinato{max-width:100%;color:inherit}
.ostinato p{margin:.3em 0;overflow-wrap:anywhere}
.ostinato .scroll{overflow-x:auto;max-width:100%}
.ostinato svg{display:block}
.ostinato table{border-collapse:collapse;font-variant-numeric:tabular-nums;color:inherit}
.ostinato th,.ostinato td{padding:.15em .7em;text-align:left;border:0 solid;background:none;color:inherit}
.ostinato th,.ostinato td{white-space:nowrap}.ostinato thead th{border-bottom-width:1px}
.ostinato td.number,.ostinato th.number{text-align:right}
.ostinato .key{display:inline-block;width:.8em;height:.8em;margin-right:.4em;border-radius:2px}
""".replace("\n", "")


class Markup(str):
    """A cell of a table that is markup already."""


def page(title: str, *parts: str) -> str:
    """Return a part of a page with a title; `parts` are markup."""
    return f'<div class="ostinato"><style>{_STYLE}</style><p><b>{shown(title)}</b></p>{"".join(parts)}</div>'


def shown(words: object) -> str:
    r"""Return words as markup.

    >>> shown("a < b\n")
    'a &lt; b\\n'
    """
    return escape(one_line(str(words)))


def paragraphs(lines: Iterable[str]) -> str:
    """Return a paragraph for each line."""
    return "".join(f"<p>{shown(line)}</p>" for line in lines)


def picture(svg: str) -> str:
    """Return a picture that scrolls where the page is narrower."""
    return f'<div class="scroll">{svg}</div>'


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], most: int = 50) -> str:
    """Return a table of at most so many rows, without empty columns; those whose heads begin with ``#`` are numbers."""
    found = list(rows)
    if not found:
        return ""
    kept = [place for place in range(len(heads)) if any(row[place] != "" for row in found)]
    heads, found = [heads[place] for place in kept], [[row[place] for place in kept] for row in found]
    kinds = [' class="number"' if head.startswith("#") else "" for head in heads]
    head = "".join(f"<th{kind}>{shown(each.removeprefix('#'))}</th>" for kind, each in zip(kinds, heads, strict=True))
    lines = []
    for row in found[:most]:
        cells = (
            f"<td{kind}>{cell if isinstance(cell, Markup) else shown(cell)}</td>"
            for kind, cell in zip(kinds, row, strict=True)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    rest = f"<p>and {len(found) - most} more</p>" if len(found) > most else ""
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="scroll">{whole}</div>{rest}'


def disclosed(title: str, *parts: str) -> str:
    """Return parts that are shown when the title is clicked."""
    return f"<details><summary>{shown(title)}</summary>{''.join(parts)}</details>"


def key(colour: str, words: object) -> str:
    """Return words beside a sample of a colour."""
    return f'<span class="key" style="background:{colour};color:{ink_on(colour)}"></span>{shown(words)}'
