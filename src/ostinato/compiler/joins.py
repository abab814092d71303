"""Joins of edges: places in the order with nothing to do, kept only where they save edges."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

__all__ = ["splice"]

_Ends: TypeAlias = "dict[tuple[int, int], None]"
"""Nodes at the other end of edges, with the distance; in the order in which they were found."""


def splice(
    edges: Iterable[tuple[int, int, int]], joins: Collection[int]
) -> tuple[list[tuple[int, int, int]], set[int]]:
    """Return edges that order all nodes but the joins as before, and the joins that are gone.

    A join goes, with its edges joined and their distances added, where that makes no more edges. One that comes after
    itself stays: it carries order from step to step.
    """
    before: dict[int, _Ends] = {join: {} for join in joins}
    after: dict[int, _Ends] = {join: {} for join in joins}
    plain: dict[tuple[int, int, int], None] = {}

    def add(src: int, dst: int, distance: int) -> None:
        if src in after:
            after[src][dst, distance] = None
        if dst in before:
            before[dst][src, distance] = None
        elif src not in after:
            plain[src, dst, distance] = None

    for src, dst, distance in edges:
        add(src, dst, distance)
    gone: set[int] = set()
    waiting = list(joins)
    while waiting:
        join = waiting.pop()
        if join in gone:
            continue
        sources, targets = before[join], after[join]
        if len(sources) * len(targets) > len(sources) + len(targets) or any(src == join for src, _ in sources):
            continue
        gone.add(join)
        del before[join], after[join]
        for src, distance in sources:
            if src in after:
                del after[src][join, distance]
                waiting.append(src)
        for dst, distance in targets:
            if dst in before:
                del before[dst][join, distance]
                waiting.append(dst)
        for src, first in sources:
            for dst, second in targets:
                add(src, dst, first + second)
    kept = [(src, join, distance) for join, sources in before.items() for src, distance in sources if src not in after]
    kept += [(join, dst, distance) for join, targets in after.items() for dst, distance in targets]
    return [*plain, *kept], gone
