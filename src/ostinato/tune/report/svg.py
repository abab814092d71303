"""Pictures as SVG: elements, dots, and axes with round numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import NamedTuple

from ostinato.one_line import one_line

__all__ = ["Dot", "Scale", "dots", "element", "number", "picture", "text"]

_MOST_TITLED = 1000
_FEWEST_LINEAR = 4.0  # times the lowest value: from there, an axis is logarithmic


def element(name: str, *content: str, **attributes: object) -> str:
    """Return an element; `content` is markup, the attributes' values are not.

    >>> element("text", "a", x=1.25, css="big", text_anchor="end")
    '<text x="1.25" class="big" text-anchor="end">a</text>'
    """
    given = "".join(
        f' {"class" if key == "css" else key.replace("_", "-")}="{escape(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{''.join(content)}</{name}>"


def _attribute(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def number(value: float) -> str:
    """Return a coordinate.

    >>> number(12.3456), number(3.0)
    ('12.35', '3')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")


def text(words: str, x: float, y: float, **attributes: object) -> str:
    """Return an element with words in it."""
    return element("text", escape(words), x=float(x), y=float(y), **attributes)


def picture(width: float, height: float, described: str, *content: str) -> str:
    """Return a picture that shrinks with the page; `described` is read out where it cannot be seen."""
    return element(
        "svg",
        *content,
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=float(width),
        role="img",
        aria_label=one_line(described),
    )


class Dot(NamedTuple):
    """A dot, and what says what is shown when it is pointed at."""

    x: float
    y: float
    title: Callable[[], str]


def dots(entries: Iterable[Dot], css: str, radius: float = 3.0) -> Iterator[str]:
    """Yield dots: with their titles as long as there are few, else as one path that keeps pages of thousands fast."""
    found = list(entries)
    if len(found) <= _MOST_TITLED:
        for dot in found:
            title = element("title", escape(dot.title()))
            yield element("circle", title, cx=dot.x, cy=dot.y, r=radius, css=css)
        return
    places = dict.fromkeys((round(2 * dot.x) / 2, round(2 * dot.y) / 2) for dot in found)
    path = "".join(f"M{number(x)} {number(y)}h0" for x, y in places)
    yield element("path", d=path, css=f"{css} dots", stroke_width=2 * radius)


class Scale:
    """Where values are along an axis: evenly, or by their logarithm where they differ much.

    Parameters
    ----------
    low, high
        The least and greatest value.
    begin, end
        Where they are.

    Examples
    --------
    >>> scale = Scale(1.0, 1000.0, begin=0.0, end=300.0)
    >>> round(scale.place(10.0), 6), scale.ticks()
    (100.0, [1.0, 10.0, 100.0, 1000.0])
    >>> Scale(0.0, 1.0, begin=0.0, end=50.0).ticks()
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """

    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        self.logarithmic = low > 0 and high / low > _FEWEST_LINEAR
        if not self.logarithmic and high <= low:
            low, high = low - 0.5 * abs(low) - 1e-9, high + 0.5 * abs(high) + 1e-9
        self.low, self.high, self._begin, self._end = low, high, begin, end

    def place(self, value: float) -> float:
        return self._begin + (self._end - self._begin) * self.part(value)

    def part(self, value: float) -> float:
        """How far along it is, from 0 to 1."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return up to about six round values."""
        if self.logarithmic:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for steps in ((1, 2, 5), (1, 3), (1,)):
                found = self._inside(step * 10.0**decade for decade in decades for step in steps)
                if len(found) <= 6:
                    return found
            return found[:: math.ceil(len(found) / 6)]
        rough = (self.high - self.low) / 5
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= 0.999 * rough)
        first = math.ceil(self.low / step - 1e-6)
        return self._inside(round(first + index, 6) * step for index in range(8))

    def _inside(self, values: Iterable[float]) -> list[float]:
        slack = 1e-6 * (self.high - self.low)
        rounded = (float(f"{value:.9g}") for value in values)
        return [value for value in rounded if self.low - slack <= value <= self.high + slack]
