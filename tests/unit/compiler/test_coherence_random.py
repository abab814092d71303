"""Random graphs over several memories: the same as if there were one, with no copy too many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler import memories
from compiler.memories import DEVICES, Bench, Call, Interpreter, least_bytes, run_plainly
from ostinato.compiler.ir import HOST
from ostinato.graph.access import Read, ReadWrite, Stream, Write
from ostinato.graph.graph import Graph
from ostinato.graph.ring import RingElement, ring

MODES = (None, Read, Write, ReadWrite)


def body(*_: object) -> None:
    """What the ops of these graphs call."""


@st.composite
def benches(
    draw: st.DrawFn, devices: int = 2, steps: bool = False, copies: bool = True
) -> tuple[Bench, list[np.ndarray[Any, Any]]]:
    """A graph with its arrays, which are anywhere, as are its ops."""
    plane = np.zeros((4, 6), np.int16)
    line = np.zeros(12, np.int16)
    own = [np.zeros(8, np.int16) for _ in range(draw(st.integers(1, 3)))]
    more = [np.zeros(6, np.int16) for _ in range(draw(st.integers(2, 4)))]
    arrays = [plane, line, *own, *more]
    pool: list[Any] = [plane, line, ring(*own), ring(*more)]
    if draw(st.booleans()):
        pool.append(own[0])
    places = st.integers(HOST, devices - 1)
    homes = [(array, place) for array in arrays if (place := draw(st.sampled_from((HOST, draw(places))))) != HOST]
    graph = Graph()
    where = []
    for number in range(draw(st.integers(1, 6))):
        if copies and draw(st.booleans()):
            source, target = (draw(st.sampled_from((own[0], ring(*own)[0], ring(*own)[1]))) for _ in range(2))
            if draw(st.booleans()):
                graph.fill(target, number, name=f"op{number}")
            else:
                graph.copy(source, target, name=f"op{number}")
            where.append(draw(places))
            continue
        values, modes = [], []
        for _ in range(draw(st.integers(1, 3))):
            value = draw(st.sampled_from(pool))
            if hasattr(value, "arrays"):
                value = value[draw(st.integers(0, 3))]
            if draw(st.booleans()):
                value = value[tuple(draw(cut(length, steps)) for length in value.shape)]
            values.append(value)
            modes.append(draw(st.integers(1, 3)))
        values, modes = _without_overlaps(values, modes)
        access = [Stream] * draw(st.integers(0, 1)) + [MODES[mode] for mode in modes]
        graph.task(body, *values, access=access, name=f"op{number}")
        where.append(draw(places))
    return Bench(graph, where, homes), arrays


def _without_overlaps(values: list[Any], modes: list[int]) -> tuple[list[Any], list[int]]:
    """What one op writes, it does not access otherwise: else what it does would depend on its own order."""
    kept: list[int] = []
    for place, value in enumerate(values):
        if not any(_meet(value, values[other]) and (modes[place] | modes[other]) & 2 for other in kept):
            kept.append(place)
    return [values[place] for place in kept], [modes[place] for place in kept]


def _meet(a: Any, b: Any) -> bool:
    return any(np.may_share_memory(x, y) for x in _views(a) for y in _views(b))


def _views(value: Any) -> tuple[Any, ...]:
    return value.views if isinstance(value, RingElement) else (value,)


@st.composite
def cut(draw: st.DrawFn, length: int, steps: bool) -> slice:
    low = draw(st.integers(0, length - 1))
    return slice(low, draw(st.integers(low, length)), draw(st.sampled_from((1, 2, 3))) if steps else 1)


def check(
    bench: Bench, arrays: list[np.ndarray[Any, Any]], runs: list[int], failing: frozenset[Call], seed: int
) -> None:
    for k, array in enumerate(arrays):
        array[...] = (np.arange(array.size) * (k + 3)).reshape(array.shape)
    expected = [array.copy() for array in arrays]
    pairs = [(memories.bounds(array), copy) for array, copy in zip(arrays, expected, strict=True)]

    def at(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        start = array.__array_interface__["data"][0]
        for (low, high), copy in pairs:
            if low <= start < high:
                return np.ndarray(array.shape, array.dtype, copy, start - low, array.strides)
        return array

    interpreter = Interpreter(bench, seed)
    of_op = {op.original.index: op.index for op in bench.found.nodes if op not in bench.added}
    begin = 0
    for steps in runs:
        placed = frozenset((of_op[op], step) for op, step in failing)
        skipped = interpreter.run(steps, placed)
        plainly = run_plainly(bench, begin, steps, at, failing)
        assert {each for each in skipped if each[0] in of_op.values()} == {(of_op[op], s) for op, s in plainly}
        for array, copy in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(array, copy)
        begin += steps


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_memories_apart_are_as_one(data: st.DataObject) -> None:
    bench, arrays = data.draw(benches(steps=True))
    runs = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    check(bench, arrays, runs, frozenset(), data.draw(st.integers(0, 1000)))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_what_falls_into_too_many_parts_is_one(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ostinato.compiler.equivalence_sets.MOST_CELLS", 1)
        patch.setattr("ostinato.compiler.equivalence_sets.MOST_PAIRS", 0)
        bench, arrays = data.draw(benches(steps=True))
    runs = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    check(bench, arrays, runs, frozenset(), data.draw(st.integers(0, 1000)))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_failures_reach_what_they_would_and_nothing_else(data: st.DataObject) -> None:
    bench, arrays = data.draw(benches())
    runs = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=2))
    instances = st.tuples(st.integers(0, len(bench.ops) - 1), st.integers(0, sum(runs) - 1))
    failing = data.draw(st.frozensets(instances, max_size=3))
    check(bench, arrays, runs, failing, data.draw(st.integers(0, 1000)))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_no_byte_is_copied_without_need(data: st.DataObject) -> None:
    bench, _ = data.draw(benches(devices=len(DEVICES), copies=False))
    interpreter = Interpreter(bench)
    begin = 0
    for steps in data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)):
        interpreter.copied = 0
        interpreter.run(steps)
        assert interpreter.copied == least_bytes(bench, begin, steps)
        begin += steps
