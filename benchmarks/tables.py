"""Results as tables on the console and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Row
from benchmarks.reach import Target


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _cell(row: Row, reference: Row | None) -> str:
    low, high = row.quartiles
    text = f"{_number(row.median)}\n[dim]{_number(low)}-{_number(high)}[/]"
    if reference is not None and reference is not row and reference.median:
        text += f"\n{row.median / reference.median:.2f}x"
    return text


def print_benchmark(console: Console, title: str, rows: Sequence[Row]) -> None:
    """Print a table for each unit: cases down, contestants across; medians, quartiles, ratios to the reference."""
    for unit in dict.fromkeys(row.unit for row in rows):
        own = [row for row in rows if row.unit == unit]
        contestants = list(dict.fromkeys(row.contestant for row in own))
        references = {row.reference for row in own if row.reference}
        caption = (
            f"median, quartiles, ratio to {' or '.join(sorted(references))}" if references else "median, quartiles"
        )
        table = Table(title=f"{title} ({unit})", caption=caption, show_lines=True)
        table.add_column("")
        for name in contestants:
            table.add_column(name, justify="right")
        by_place = {(row.case, row.contestant): row for row in own}
        for case in dict.fromkeys(row.case for row in own):
            cells = []
            for name in contestants:
                row = by_place.get((case, name))
                cells.append(_cell(row, by_place.get((case, row.reference or ""))) if row else "")
            table.add_row(case, *cells)
        console.print(table)


def print_targets(console: Console, targets: Sequence[Target]) -> None:
    """Print what was to be reached, and what was."""
    table = Table(title="Targets")
    for heading in ("", "measured", "wanted", ""):
        table.add_column(heading, justify="left" if not heading else "right")
    for target in targets:
        sign = "at most" if target.at_most else "at least"
        verdict = "[green]reached[/]" if target.reached else "[red]missed[/]"
        table.add_row(
            target.name,
            f"{_number(target.measured)}{target.unit}",
            f"{sign} {_number(target.wanted)}{target.unit}",
            verdict,
        )
    console.print(table)


def write_json(path: Path, description: dict[str, Any], rows: Sequence[Row], targets: Sequence[Target]) -> None:
    """Write everything measured, every sample included."""
    results = [
        {
            "benchmark": row.benchmark,
            "case": row.case,
            "contestant": row.contestant,
            "unit": row.unit,
            "reference": row.reference,
            "median": row.median,
            "quartiles": row.quartiles,
            "samples": row.samples,
        }
        for row in rows
    ]
    reached = [
        {"name": t.name, "measured": t.measured, "wanted": t.wanted, "at_most": t.at_most, "reached": t.reached}
        for t in targets
    ]
    path.write_text(json.dumps({**description, "targets": reached, "results": results}, indent=1) + "\n")
