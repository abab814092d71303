"""Random edges between ops of which some run on devices, and what each may begin after."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from ostinato.compiler.costs import Costs
from ostinato.compiler.ir import Edges, Step, edges_of
from ostinato.compiler.streams.assign_streams import streams_of, with_joins
from ostinato.graph.body import Join, Postcondition, Precondition, PythonCall
from ostinato.graph.op import Op

STEPS = 4


class Case(NamedTuple):
    ops: tuple[Op, ...]
    edges: Edges
    device: np.ndarray
    """By op, its device or -1."""


def op(index, body=None):
    return Op(None, index, f"op {index}", "here", body, ())


def step_of(ops, edges, device, outside):
    """Return a step with streams, as `assign_streams` would, for ops that are only stubs."""
    ordered = with_joins(ops, edges, device)
    n = len(ops)
    costs = Costs(np.full(n, 1e-6), np.zeros(n), np.zeros(n, np.int32))
    streams = streams_of(ops, edges, ordered, outside)
    return Step(ops, edges, edges, costs, device=device, streams=streams), ordered


@st.composite
def cases(draw, most=9):
    n = draw(st.integers(1, most))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.integers(0, 2))
    edges = [(a, b, d) for a, b, d in draw(st.lists(pairs, max_size=16)) if d > 0 or a < b]
    device = np.array(draw(st.lists(st.sampled_from([-1, -1, 0, 0, 0, 1]), min_size=n, max_size=n)), np.int32)
    bodies = [PythonCall] * n
    for index in range(n):
        if device[index] >= 0:
            continue
        entered = any(b == index for _, b, _ in edges)
        left = any(a == index for a, _, _ in edges)
        kinds = [None, *[Precondition("p")] * (not entered), *[Postcondition("q")] * (entered and not left), Join()]
        bodies[index] = draw(st.sampled_from(kinds))
    ops = tuple(op(index, body) for index, body in enumerate(bodies))
    return Case(ops, edges_of(n, *np.array(edges, np.int64).reshape(-1, 3).T), device)


def reached(n, edges, begin):
    """All (op, step) that come after one of the first steps, along edges; itself included."""
    found = {begin}
    waiting = [begin]
    while waiting:
        at, step = waiting.pop()
        for a, b, d in zip(*edges, strict=True):
            after = int(b), step + int(d)
            if a == at and after[1] < STEPS and after not in found:
                found.add(after)
                waiting.append(after)
    return found
