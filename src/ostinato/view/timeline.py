"""The picture of a trace: one row a thread, one bar an operation, one colour a step."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ostinato.view.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ostinato.view.trace import Trace

COLOURS = ("#2a6f97", "#f4a259", "#5b8e7d", "#bc4b51", "#8d6a9f", "#e0c14c")
EARLIER = "#c9ccd3"
INK = "#2b2d33"
UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))


MOST_THREADS = 32
"""Of more, the first ones are drawn."""


def draw(trace: Trace, path: str | os.PathLike[str], steps: int) -> None:
    """Draw the last `steps` steps of `trace` into the file `path`."""
    draw_below_each_other({"": trace}, path, steps)


def draw_below_each_other(traces: Mapping[str, Trace], path: str | os.PathLike[str], steps: int) -> None:
    """Draw the last `steps` steps of traces, each under its title, on one axis of time."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('a timeline needs matplotlib: pip install "ostinato[plot]"') from error
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")

    shown = {title: _last_steps(trace.records, steps) for title, trace in traces.items()}
    threads = {title: np.unique(records["thread"])[:MOST_THREADS] for title, records in shown.items()}
    heights = [max(len(rows), 1) for rows in threads.values()]
    span = max((_span(records) for records in shown.values()), default=0)
    figure = Figure(figsize=(10, len(traces) + 0.5 + 0.5 * sum(heights)), dpi=150, layout="constrained")
    grid = figure.subplots(len(traces), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, trace) in zip(grid, traces.items(), strict=True):
        _style(axes, threads[title])
        if len(shown[title]):
            _bars(axes, title, trace, shown[title], threads[title], steps, span)
        else:
            axes.set_title(f"{title + ': ' if title else ''}an empty trace", loc="left", color=INK)
    with replacing(path) as draft:
        figure.savefig(draft, format=draft.suffix[1:] or "png")


def _span(records: NDArray[np.void]) -> int:
    return int(records["end"].max() - records["start"].min()) if len(records) else 0


def _last_steps(records: NDArray[np.void], steps: int) -> NDArray[np.void]:
    """What ran since the first of the last `steps` steps began, what was left of earlier steps included."""
    if not len(records):
        return records
    begin = records["start"][np.isin(records["step"], np.unique(records["step"])[-steps:])].min()
    shown: NDArray[np.void] = records[records["end"] > begin]
    shown["start"] = np.maximum(shown["start"], begin)
    return np.sort(shown, order="start", kind="stable")


def _style(axes: Axes, threads: NDArray[np.int32]) -> None:
    axes.set_yticks(range(len(threads)), [f"thread {thread}" for thread in threads])
    axes.invert_yaxis()
    axes.tick_params(colors=INK, left=False)
    axes.spines[["top", "left", "right"]].set_visible(False)


def _bars(
    axes: Axes,
    title: str,
    trace: Trace,
    records: NDArray[np.void],
    threads: NDArray[np.int32],
    steps: int,
    span: int,
) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Patch

    origin, own_span = records["start"].min(), _span(records)
    scale, unit = next((entry for entry in UNITS if span >= entry[0]), UNITS[-1])
    rows = f", the first {len(threads)} threads of {len(np.unique(records['thread']))}"
    rows = rows if len(threads) == MOST_THREADS else ""
    records = records[np.isin(records["thread"], threads)]
    left = (records["start"] - origin) / scale
    right = (records["end"] - origin) / scale
    row = np.searchsorted(threads, records["thread"])
    corners = np.stack([[left, row - 0.4], [right, row - 0.4], [right, row + 0.4], [left, row + 0.4]])
    numbers = np.unique(records["step"])[-steps:].tolist()
    colours = {number: COLOURS[place % len(COLOURS)] for place, number in enumerate(numbers)}
    faces = [to_rgba(colours.get(step, EARLIER), 0.8 + 0.2 * second) for step, second in _turns(records)]
    bars = PolyCollection(list(corners.transpose(2, 0, 1)), facecolors=faces, linewidths=0)
    axes.add_collection(bars)
    axes.set_xlim(0, span / scale)
    axes.set_ylim(len(threads) - 0.5, -0.5)
    axes.set_xlabel(f"time ({unit})", color=INK)
    axes.label_outer()
    caption = _caption(trace, records, len(threads), float(own_span)) + rows
    axes.set_title(f"{title + ': ' if title else ''}{caption}", loc="left", fontsize=10, color=INK)
    axes.legend(
        handles=[Patch(color=colour, label=f"step {number}") for number, colour in colours.items()],
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=len(COLOURS),
        frameon=False,
        fontsize=9,
        handlelength=1,
        labelcolor=INK,
    )


def _turns(records: NDArray[np.void]) -> Iterator[tuple[int, bool]]:
    """The step of each record, and whether it is every second one of its thread: neighbours differ in shade."""
    second: dict[int, bool] = {}
    for step, thread in records[["step", "thread"]].tolist():
        second[thread] = not second.get(thread, False)
        yield step, second[thread]


def _caption(trace: Trace, records: NDArray[np.void], threads: int, span: float) -> str:
    names = sorted({trace.op_names[op] for op in np.unique(records["op"])})
    what = ", ".join(names) if len(names) <= 3 else f"{len(names)} kinds of operations"
    busy = float((records["end"] - records["start"]).sum()) / max(span * threads, 1)
    return f"{what}: {len(records)} operations, {busy:.0%} busy"
