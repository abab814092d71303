"""The time line of a search: when each device and each place in the compile pool was busy with what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from ostinato.one_line import one_line
from ostinato.tune.report.svg import Scale, element, number, picture, text
from ostinato.tune.wording import duration, settings

if TYPE_CHECKING:
    from ostinato.tune.stretch import Stretch

__all__ = ["kind", "time_line"]

_LEFT, _WIDTH, _RIGHT = 130.0, 1044.0, 52.0
_ROW, _BAR = 22.0, 16.0
_NARROW = 2.0  # bars below it are drawn as one path per colour, and those in the same place once
_LONGEST_NAME = 18


def kind(stretch: Stretch) -> str:
    """Return how a stretch is coloured: by what it was if it went well, else by how it ended."""
    return stretch.what if stretch.status in ("ok", "raced") else str(stretch.status)


def time_line(stretches: Sequence[Stretch]) -> str:
    """Return a row per device and place in the compile pool, with the part of the time that it was busy."""
    if not stretches:
        return ""
    of: dict[str, list[Stretch]] = {}
    for stretch in stretches:
        of.setdefault(stretch.where, []).append(stretch)
    names = sorted(of, key=lambda name: (name.startswith("build:"), _order(name)))
    scale = Scale(0.0, max(max(stretch.end for stretch in stretches), 1e-9), _LEFT, _WIDTH - _RIGHT)
    height = len(names) * _ROW + 40
    parts = []
    for tick in scale.ticks():
        x = scale.place(tick)
        parts.append(element("line", x1=x, x2=x, y1=4.0, y2=height - 30, css="grid"))
        parts.append(text(duration(tick * 1e9) if tick else "0 s", x, height - 14, text_anchor="middle", css="label"))
    for row, name in enumerate(names):
        busy = sum(stretch.end - stretch.begin for stretch in of[name]) / scale.high
        top = 6 + row * _ROW
        shown = one_line(name)
        shown = shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…"
        title = element("title", escape(one_line(name)))
        parts.append(element("text", escape(shown), title, x=_LEFT - 8, y=top + 12, text_anchor="end", css="label"))
        parts += _bars(of[name], scale, top)
        parts.append(text(f"{busy:.0%}", _WIDTH - 6, top + 12, text_anchor="end", css="label"))
    return picture(_WIDTH, height, "what each device was busy with", *parts)


def _bars(stretches: Sequence[Stretch], scale: Scale, top: float) -> Iterator[str]:
    narrow: dict[tuple[str, int], None] = {}
    for stretch in stretches:
        begin, end = scale.place(stretch.begin), scale.place(stretch.end)
        if end - begin < _NARROW:
            narrow[kind(stretch), round(begin)] = None
            continue
        about = "" if stretch.candidate is None else f": {settings(stretch.candidate.config)}"
        words = f"{stretch.what}{about}, {duration((stretch.end - stretch.begin) * 1e9)}, {stretch.status}"
        title = element("title", escape(words))
        gap = 0.5  # so that one can tell neighbours apart
        yield element("rect", title, x=begin, y=top, width=end - begin - gap, height=_BAR, css=f"bar k-{kind(stretch)}")
    for css in dict.fromkeys(css for css, _ in narrow):
        lines = "".join(f"M{x} {number(top)}v{number(_BAR)}" for name, x in narrow if name == css)
        yield element("path", d=lines, css=f"bars k-{css}")


def _order(name: str) -> tuple[str, int]:
    """``cpu:10`` comes after ``cpu:9``."""
    digits = name[len(name.rstrip("0123456789")) :]
    return name.removesuffix(digits), int(digits or 0)
