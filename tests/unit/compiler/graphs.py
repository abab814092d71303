"""Random graphs over views of a few arrays and rings, and which of their accesses conflict."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from ostinato.graph.access import Read, ReadWrite, Write
from ostinato.graph.graph import Graph
from ostinato.graph.ring import RingElement, ring

MODES = (None, Read, Write, ReadWrite)


def body(*_: object) -> None:
    """What the ops of these graphs call."""


class Access(NamedTuple):
    """One access, as the oracle sees it."""

    value: Any
    mode: int


def conflict(a: Access, b: Access, step_a: int, step_b: int) -> bool:
    """Whether two accesses in two steps can touch the same memory, and one of them writes."""
    if not (a.mode | b.mode) & 2:
        return False
    x, y = a.value, b.value
    if isinstance(x, RingElement) and isinstance(y, RingElement) and x.ring is y.ring and x.ring.disjoint:
        n = len(x.views)
        here = (step_a + x.offset) % n
        return here == (step_b + y.offset) % n and np.shares_memory(x.views[here], y.views[here])
    if isinstance(x, np.ndarray | RingElement) and isinstance(y, np.ndarray | RingElement):
        return any(np.shares_memory(v, w) for v in views(x) for w in views(y))
    return x is y


def views(value: np.ndarray[Any, Any] | RingElement) -> tuple[np.ndarray[Any, Any], ...]:
    return value.views if isinstance(value, RingElement) else (value,)


@st.composite
def values(draw: st.DrawFn) -> list[Any]:
    """Arrays, some of them over the same memory, and rings, some of them over arrays that are used alone too."""
    plane = np.zeros((5, 6))
    line = np.zeros(12)
    stack = np.zeros((draw(st.integers(1, 4)), 8))
    own = ring(*(np.zeros(8) for _ in range(draw(st.integers(1, 4)))))
    pool: list[Any] = [plane, plane[1:4].T, line, line.view(np.complex128), own, ring(*stack)]
    if draw(st.booleans()):
        pool.append(stack)
    if draw(st.booleans()):
        pool.append(ring(line[:4], line[4:8], line[8:]))
    if draw(st.booleans()):
        pool.append(ring(line[:6], line[3:9]))
    pool += [object(), np.frombuffer(line, np.float64)]
    return pool


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, list[list[Access]]]:
    """A graph with inferred and given edges, and the accesses of its ops."""
    pool = draw(values())
    graph = Graph()
    found = []
    for _ in range(draw(st.integers(1, 6))):
        accesses = []
        for _ in range(draw(st.integers(0, 3))):
            value = draw(st.sampled_from(pool))
            if hasattr(value, "arrays"):
                value = value[draw(st.integers(0, 3))]
            if type(value) is not object:
                value = value[tuple(draw(cut(length)) for length in value.shape)]
            accesses.append(Access(value, draw(st.integers(1, 3))))
        graph.task(body, *(a.value for a in accesses), access=tuple(MODES[a.mode] for a in accesses))
        found.append(accesses)
    for _ in range(draw(st.integers(0, 2))):
        src, dst = sorted((draw(st.integers(0, len(found) - 1)), draw(st.integers(0, len(found) - 1))))
        distance = draw(st.integers(0 if src < dst else 1, 3))
        graph.edge(graph.ops[src], graph.ops[dst], distance)
    return graph, found


@st.composite
def cut(draw: st.DrawFn, length: int) -> slice:
    low = draw(st.integers(0, length))
    return slice(low, draw(st.integers(low, length)))
