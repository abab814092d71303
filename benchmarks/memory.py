"""Memory over a million replays: it must not grow after the first thousand."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Row

_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") / 1024
FIRST = 1000


def resident_kib() -> float:
    """Memory of this process that is in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_KIB


def run(context: Context) -> None:
    """Replay one step again and again, then submit and take results."""
    graph = ost.Graph()
    graph.task(ost.native(context.kernels.empty, ()))
    with graph.compile(context.machine) as program:
        cases: list[tuple[str, Callable[[], object], int]] = [
            ("replay(1)", program.replay, 10**5 if context.quick else 10**6),
            ("submit(1).result()", lambda: program.submit().result(), 10**4 if context.quick else 10**5),
        ]
        for name, call, times in cases:
            for _ in repeat(None, FIRST):
                call()
            first = resident_kib()
            for _ in repeat(None, times - FIRST):
                call()
            growth = resident_kib() - first
            context.rows.append(Row("memory", f"{times:,} calls", name, "KiB more than after 1000", (growth,), None))
