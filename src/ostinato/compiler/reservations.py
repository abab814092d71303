"""The order in which a program acquires and releases reservations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ostinato.compiler.ir import Edges, edges_of
from ostinato.graph.body import Acquire, Release

if TYPE_CHECKING:
    from ostinato.graph.op import Op

__all__ = ["holding_order"]

_Triple: TypeAlias = tuple[int, int, int]


def holding_order(ops: Sequence[Op], edges: Edges) -> Edges:
    """Return edges that keep the acquires and releases of each reservation in program order, step after step.

    Lanes that asked on a first-come basis could each hold what the other waits for. That is true of shared requests,
    too: one that overtook another would be held while the other stands behind somebody outside who waits for its end.
    Releases of neighbouring shared requests are not ordered among themselves, but each comes after a request of its
    own: one that it depends on, by `edges`, if there is one. The edges returned order ops, but make none depend on
    another: where one fails, they carry no poison.
    """
    by_reservation: dict[int, list[Op]] = {}
    for op in ops:
        if isinstance(op.body, Acquire | Release):
            by_reservation.setdefault(id(op.body.reservation), []).append(op)
    found = [triple for used in by_reservation.values() for triple in _order(_phases(used, edges))]
    return edges_of(len(ops), *np.array(found, np.int32).reshape(-1, 3).T)


class _Phase:
    """One op; or neighbouring shared requests, and releases of these."""

    def __init__(self, shared: bool) -> None:
        self.shared = shared
        self.requests: list[int] = []
        self.pairs: list[tuple[int, int]] = []
        self._held: dict[int, None] = {}

    def request(self, op: int) -> None:
        self.requests.append(op)
        self._held[op] = None

    def release(self, op: int, edges: Edges) -> bool:
        """Add the release of a request; return whether there is one."""
        if not self.shared or not self._held:
            return False
        known = _before(op, edges) if len(self._held) > 1 else set()
        request = next((held for held in self._held if held in known), next(iter(self._held)))
        del self._held[request]
        self.pairs.append((request, op))
        return True

    @property
    def first(self) -> Iterable[int]:
        return self.requests

    @property
    def last(self) -> Iterable[int]:
        return [*(release for _, release in self.pairs), *self._held]


def _before(op: int, edges: Edges) -> set[int]:
    """Return all that an op depends on within a step."""
    found = {op}
    waiting = [op]
    while waiting:
        after = waiting.pop()
        low, high = np.searchsorted(edges.dst, [after, after + 1])
        for src in edges.src[low:high][edges.distance[low:high] == 0].tolist():
            if src not in found:
                found.add(src)
                waiting.append(src)
    return found


def _phases(used: Sequence[Op], edges: Edges) -> list[_Phase]:
    """Cut what a step does with a reservation into phases that come after each other."""
    phases: list[_Phase] = []
    for op in used:
        shared = isinstance(op.body, Acquire) and not op.body.exclusive
        if isinstance(op.body, Release) and phases and phases[-1].release(op.index, edges):
            continue
        if not (shared and phases and phases[-1].shared):
            phases.append(_Phase(shared))
        phases[-1].request(op.index)
    return phases


def _order(phases: Sequence[_Phase]) -> Iterator[_Triple]:
    """Yield edges within phases, from each to the next, and from the last to the first of the next step."""
    for phase in phases:
        yield from ((request, release, 0) for request, release in phase.pairs)
        yield from ((before, after, 0) for before, after in pairwise(phase.requests))
    for before, after in pairwise(phases):
        yield from _between(before, after, 0)
    first, last = phases[0], phases[-1]
    if not (first.shared and last.shared):
        yield from _between(last, first, 1)
        return
    yield last.requests[-1], first.requests[0], 1
    if len(phases) > 1:  # these two are one phase, which the others come after, and before
        yield from _between(last, phases[1], 1)
        yield from _between(phases[-2], first, 1)


def _between(before: _Phase, after: _Phase, distance: int) -> Iterator[_Triple]:
    return ((src, dst, distance) for src, dst in product(before.last, after.first))
