"""Racing against measuring every configuration equally often, over times that were recorded."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.context import Context
from benchmarks.measure import Row

BENCHMARK = "tuning"
SAMPLES, SLOWER = "samples of a search", "% that the winner is slower than the fastest"
RACE = "race"
REPETITIONS = (7, 20, 40, 60)
LIKE = "40 of each"  # who win are as fast as those of races


def run(context: Context, directory: Path) -> None:
    """Race, and measure everything equally often, over the same times."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
    import racing

    races = 10 if context.quick else 100
    for space in racing.recorded():
        case = f"{space.name}, {len(space.configs)} configurations"
        ways = {RACE: [space.race(seed) for seed in range(races)]}
        for repetitions in REPETITIONS:
            ways[f"{repetitions} of each"] = [space.fixed(seed, repetitions) for seed in range(races)]
        for name, found in ways.items():
            taken = tuple(float(each.samples) for each in found)
            slower = tuple(space.slower(each.verdict.best) * 100 for each in found)
            context.rows.append(Row(BENCHMARK, case, name, SAMPLES, taken))
            context.rows.append(Row(BENCHMARK, case, name, SLOWER, slower))
