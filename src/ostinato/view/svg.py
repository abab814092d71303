"""Pictures of boxes, lines and words, written as SVG by ourselves, or as PNG by matplotlib.

Words are set in a monospaced font, whose widths are known without a renderer: what fits here fits everywhere.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

from ostinato.text import one_line
from ostinato.view.palette import DIM, GRID, INK, ON_LIGHT, REPORT, ink_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FONT = "ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace"
_LETTER = 0.61  # of the size of the font
_OF_PAGE = {INK: "currentColor", DIM: "currentColor", GRID: "currentColor"}
_FAINTER = {DIM: 0.65, GRID: 0.2}

_DARK_INK, _DARK_GROUND = REPORT["ink"][1], REPORT["ground"][1]
_OWN_COLOURS = (
    f":root{{color:{ON_LIGHT[INK]};background:#fff}}"
    f"@media(prefers-color-scheme:dark){{:root{{color:{_DARK_INK};background:{_DARK_GROUND}}}}}"
)
"""Of a file: by the colours that the reader prefers."""

Point = tuple[float, float]


def element(name: str, *content: str, **attributes: object) -> str:
    """Return an element; `content` is markup, the attributes' values are not.

    >>> element("text", "a", x=1.25, css="big", text_anchor="end")
    '<text x="1.25" class="big" text-anchor="end">a</text>'
    """
    given = "".join(
        f' {"class" if key == "css" else key.replace("_", "-")}="{escape(words)}"'
        for key, value in attributes.items()
        if value is not None
        for words in [number(value) if isinstance(value, float) else str(value)]
    )
    return f"<{name}{given}>{''.join(content)}</{name}>"


def number(value: float) -> str:
    """Return a coordinate.

    >>> number(12.3456), number(3.0)
    ('12.35', '3')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")


def text(words: str, x: float, y: float, **attributes: object) -> str:
    """Return an element with words in it."""
    return element("text", escape(words), x=float(x), y=float(y), **attributes)


def width_of(words: str, size: float) -> float:
    """Return how wide words are, at a size of the font.

    >>> width_of("ab", 10.0) < width_of("漢字", 10.0)
    True
    """
    return _LETTER * size * (len(words) + sum(east_asian_width(letter) in "WF" for letter in words))


def wrap(words: str, most: int) -> list[str]:
    """Break words into lines of at most `most` letters, after spaces and the signs of names; nothing is left out.

    >>> wrap("decode_all_of_the_frames", 12)
    ['decode_all_', 'of_the_', 'frames']
    """
    lines = [""]
    for part in re.findall(r".+?(?:[\s_.,/:()\[\]→-]+|(?<=[a-z])(?=[A-Z])|$)", words):
        while part:
            if len(lines[-1]) + len(part.rstrip()) <= most:
                lines[-1] += part
                break
            if lines[-1]:
                lines.append("")
            elif len(part.rstrip()) > most:  # one word that is longer than a line
                lines[-1:], part = [part[:most], ""], part[most:]
    return [line.rstrip() for line in lines if line.strip()] or [""]


@dataclass(frozen=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str | None = None
    round: float = 4.0
    dashed: bool = False


@dataclass(frozen=True)
class Words:
    """A line of words, whose foot is at `y`."""

    words: str
    x: float
    y: float
    size: float = 11.0
    anchor: str = "start"  # or "middle", "end"
    colour: str = INK
    bold: bool = False


@dataclass(frozen=True)
class Line:
    """Bezier curves one after the other: the begin, then for each two control points and its end."""

    points: tuple[Point, ...]
    colour: str = DIM
    dashed: bool = False
    arrow: bool = False
    width: float = 1.2


@dataclass(frozen=True)
class Titled:
    """Parts of a picture; pointing at them shows the title."""

    title: str
    parts: tuple[Box | Words | Line, ...]


@dataclass
class Scene:
    """A picture: parts in the order in which they are painted."""

    described: str
    """What is read out where it cannot be seen."""
    width: float = 0.0
    height: float = 0.0
    parts: list[Box | Words | Line | Titled] = field(default_factory=list)

    def add(self, *parts: Box | Words | Line, title: str = "") -> None:
        """Paint parts above all others."""
        self.parts += [Titled(title, parts)] if title else parts

    def add_legend(self, entries: Iterable[tuple[str, Box | Line]], x: float, y: float, width: float) -> float:
        """Paint samples with words beside them, in rows; return the foot of the last row.

        The sample is given as it is painted at the origin, 18 wide and 10 high.
        """
        left = x
        for words, sample in entries:
            long = 24 + width_of(words, 11) + 18
            if left > x and left + long > x + width:
                left, y = x, y + 20
            if isinstance(sample, Box):
                self.add(Box(left, y, 18, 10, sample.fill, sample.stroke, 2, sample.dashed))
            else:
                line = ((left, y + 5), (left + 6, y + 5), (left + 12, y + 5), (left + 18, y + 5))
                self.add(Line(line, sample.colour, sample.dashed, sample.arrow, sample.width))
            self.add(Words(words, left + 24, y + 9))
            left += long
            self.width = max(self.width, left)
        return y + 12

    def svg(self, inline: bool = False) -> str:
        """Return the picture; `inline`: in a page, whose colours of text it takes."""
        own = "" if inline else f"<style>{_OWN_COLOURS}</style>\n"
        body = "\n".join(markup for part in self.parts for markup in _markup(part))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(self.width)} {number(self.height)}" '
            f'width="{number(self.width)}" height="{number(self.height)}" role="img" '
            f'aria-label="{escape(one_line(self.described))}" '
            f'style="font-family:{FONT}">\n{own}{body}\n</svg>\n'
        )

    def save(self, path: str | os.PathLike[str], what: str) -> None:
        """Write the picture to a file, whole or not at all: ``.svg``, or ``.png``, which takes matplotlib."""
        suffix = Path(os.fspath(path)).suffix.lower()
        if suffix not in (".svg", ".png"):
            raise ValueError(f"the suffix of {what} must be .svg or .png, got {os.fspath(path)!r}")
        if suffix == ".svg":
            with replacing(path) as draft:
                draft.write_text(self.svg(), encoding="utf-8")
            return
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError(
                f"{what} as .png needs matplotlib: pip install 'ostinato[plot]'; .svg does not"
            ) from error
        shrunk = min(1.0, 30_000 / (2 * max(self.width, self.height, 1)))
        figure = Figure(figsize=(self.width / 72, self.height / 72), dpi=144 * shrunk)
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.set_xlim(0, self.width)
        axes.set_ylim(self.height, 0)
        for part in self.parts:
            _paint(axes, part)
        with warnings.catch_warnings(), replacing(path) as draft:
            warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box stands for it
            figure.savefig(draft, format="png", metadata={"Software": None})


def _markup(part: Box | Words | Line | Titled) -> Iterator[str]:
    if isinstance(part, Titled):
        title = element("title", escape("\n".join(map(one_line, part.title.split("\n")))))
        yield element("g", title, *(markup for each in part.parts for markup in _markup(each)))
    elif isinstance(part, Box):
        yield element(
            "rect",
            x=float(part.x),
            y=float(part.y),
            width=float(part.width),
            height=float(part.height),
            rx=float(part.round) if part.round else None,
            stroke_dasharray="4 3" if part.dashed else None,
            **_coloured("fill", part.fill),
            **({} if part.stroke is None else _coloured("stroke", part.stroke)),
        )
    elif isinstance(part, Words):
        yield text(
            one_line(part.words),
            part.x,
            part.y,
            font_size=float(part.size),
            text_anchor=None if part.anchor == "start" else part.anchor,
            font_weight="bold" if part.bold else None,
            **_coloured("fill", part.colour),
        )
    else:
        begin, *rest = part.points
        path = f"M{_at(begin)}C{' '.join(map(_at, rest))}"
        look = {"stroke_width": part.width, "stroke_dasharray": "5 4" if part.dashed else None}
        yield element("path", d=path, fill="none", **look, **_coloured("stroke", part.colour))
        if part.arrow:
            corners = " ".join(map(_at, _arrow_head(part)))
            yield element("polygon", points=corners, **_coloured("fill", part.colour))


def _at(point: Point) -> str:
    return f"{number(point[0])},{number(point[1])}"


def _coloured(what: str, colour: str) -> dict[str, object]:
    return {what: _OF_PAGE.get(colour, colour), f"{what}_opacity": _FAINTER.get(colour)}


def _arrow_head(line: Line) -> list[Point]:
    (x, y), (tip_x, tip_y) = line.points[-2], line.points[-1]
    if (x, y) == (tip_x, tip_y):
        x, y = line.points[-3]
    long = max(((tip_x - x) ** 2 + (tip_y - y) ** 2) ** 0.5, 1e-9)
    ahead_x, ahead_y = (tip_x - x) / long, (tip_y - y) / long
    foot_x, foot_y = tip_x - 7 * ahead_x, tip_y - 7 * ahead_y
    return [(tip_x, tip_y), (foot_x - 3 * ahead_y, foot_y + 3 * ahead_x), (foot_x + 3 * ahead_y, foot_y - 3 * ahead_x)]


def _paint(axes: Axes, part: Box | Words | Line | Titled) -> None:
    from matplotlib.patches import FancyBboxPatch, PathPatch, Polygon
    from matplotlib.path import Path as Curve

    if isinstance(part, Titled):
        for each in part.parts:
            _paint(axes, each)
    elif isinstance(part, Box):
        axes.add_patch(
            FancyBboxPatch(
                (part.x, part.y),
                part.width,
                part.height,
                boxstyle=f"round,pad=0,rounding_size={min(part.round, part.width / 2, part.height / 2)}",
                facecolor="none" if part.fill == "none" else ON_LIGHT.get(part.fill, part.fill),
                edgecolor="none" if part.stroke is None else ON_LIGHT.get(part.stroke, part.stroke),
                linewidth=1,
                linestyle="--" if part.dashed else "-",
            )
        )
    elif isinstance(part, Words):
        axes.text(
            part.x,
            part.y,
            one_line(part.words).replace("$", r"\$"),
            color=ON_LIGHT.get(part.colour, part.colour),
            fontsize=part.size,
            ha={"start": "left", "middle": "center", "end": "right"}[part.anchor],
            va="baseline",
            family="DejaVu Sans Mono",
            weight="bold" if part.bold else "normal",
        )
    else:
        colour = ON_LIGHT.get(part.colour, part.colour)
        codes = [Curve.MOVETO] + [Curve.CURVE4] * (len(part.points) - 1)
        style = "--" if part.dashed else "-"
        axes.add_patch(
            PathPatch(
                Curve(list(part.points), codes), facecolor="none", edgecolor=colour, lw=part.width, linestyle=style
            )
        )
        if part.arrow:
            axes.add_patch(Polygon(_arrow_head(part), closed=True, facecolor=colour, edgecolor="none"))


def label_box(box: Box, words: str, size: float = 11.0) -> list[Box | Words]:
    """Return a box with a word in it where there is room: all of the word, or none."""
    if width_of(words, size) + 6 > box.width:
        return [box]
    middle = box.x + box.width / 2, box.y + box.height / 2 + 0.36 * size
    return [box, Words(words, *middle, size, "middle", ink_on(box.fill))]


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path beside `path` to write to, and move it into place when the block ends.

    When the block raises, nothing is left behind and what was at `path` stays. An `OSError` names `path`, not
    the path in its place. A device or pipe at `path` is written directly.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        yield target
        return
    # A name that is nobody's: the draft is overwritten and removed. The suffix tells libraries the format.
    draft = target.with_name(f".{os.urandom(8).hex()}-{target.name}")
    try:
        yield draft
        os.replace(draft, target)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (str(draft), draft):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise
