"""Racing against measuring every configuration equally often, on recorded spaces: ``python benchmarks/tuning_race.py``.

Nothing is timed: the times were recorded (``record_spaces.py``), so the table is the same everywhere.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from racing import Found, Space, recorded

REPETITIONS = (7, 20, 40, 60)


def _row(space: Space, name: str, found: Sequence[Found], raced: Sequence[Found]) -> list[str]:
    slower = sorted(space.slower(each.verdict.best) for each in found)
    samples = mean(each.samples for each in found)
    shared = mean(
        bool(set(each.verdict.ties) & set(race.verdict.ties)) for each, race in zip(found, raced, strict=True)
    )
    return [
        name,
        f"{samples:.0f}",
        f"{mean(race.samples for race in raced) / samples:.2f}",
        f"{mean(slower):.1%}",
        f"{slower[len(slower) * 95 // 100]:.1%}",
        f"{mean(len(each.verdict.ties) for each in found):.1f}",
        f"{mean(max(map(space.slower, each.verdict.ties)) for each in found):.1%}",
        f"{shared:.0%}",
    ]


def table(races: int) -> Table:
    """Return the comparison over so many races of each space."""
    made = Table(title=f"means of {races} races; slower: than the fastest, by the medians of all that was recorded")
    for title in ("", "samples", "race / this", "winner slower", "95 %", "ties", "worst tie slower", "shares ties"):
        made.add_column(title, justify="right" if title else "left")
    for space in recorded():
        raced = [space.race(seed) for seed in range(races)]
        made.add_section()
        made.add_row(f"[bold]{space.name}[/bold], {len(space.configs)} configurations")
        made.add_row(*_row(space, "race", raced, raced))
        for repetitions in REPETITIONS:
            fixed = [space.fixed(seed, repetitions) for seed in range(races)]
            made.add_row(*_row(space, f"{repetitions} of each", fixed, raced))
    return made


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--races", type=int, default=100, help="races of each space")
    Console(width=120).print(table(parser.parse_args().races))


if __name__ == "__main__":
    main()
