"""Views as boxes of what they are views of."""

from __future__ import annotations

import ctypes
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from compiler.graphs import body
from ostinato.compiler.dependences import find_accesses, infer_dependences
from ostinato.compiler.flatten import flatten
from ostinato.graph.access import Read, Write
from ostinato.graph.graph import Graph
from ostinato.graph.ring import ring


def boxes(*values: object) -> list[tuple[int, list[tuple[int, int]]]]:
    """Group and box of each access of one op."""
    graph = Graph()
    graph.task(body, *values, access=(Read,) * len(values))
    found = find_accesses(graph.ops)
    return [
        (int(group), list(zip(found.lo[box].tolist(), found.hi[box].tolist(), strict=True)))
        for group, box in zip(found.group, found.box, strict=True)
    ]


def meet(*values: object) -> bool:
    """Whether two values can touch the same memory."""
    found = boxes(*values)
    if len(found) < 2:
        return False
    (group, box), (other_group, other_box) = found
    return group == other_group and all(a < d and c < b for (a, b), (c, d) in zip(box, other_box, strict=True))


@st.composite
def basic_views(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[object, ...]:
    index: list[object] = []
    for length in shape:
        kind = draw(st.integers(0, 3))
        if kind == 0:
            index.append(draw(st.integers(0, length - 1)))
        else:
            low = draw(st.integers(0, length - 1))
            high = draw(st.integers(low + 1, length))
            step = draw(st.integers(1, 3))
            index.append(slice(low, high, step) if kind < 3 else slice(high - 1, low - 1 if low else None, -step))
        if draw(st.integers(0, 4)) == 0:
            index.append(None)
    return tuple(index)


@given(st.data(), st.sampled_from(["C", "F"]), st.booleans())
def test_a_sliced_view_is_the_box_of_its_indices(data: st.DataObject, order: str, transpose: bool) -> None:
    shape = tuple(data.draw(st.lists(st.integers(2, 5), min_size=1, max_size=3)))
    index = data.draw(basic_views(shape))
    root = np.zeros(shape, order=order)
    view = root[(*index, ...)]
    touched = np.unravel_index(np.arange(root.size).reshape(shape)[index].ravel(), shape)
    expected = [(int(axis.min()), int(axis.max()) + 1) for axis in touched]
    if order == "F":
        expected.reverse()
    ((_, box),) = boxes(view.T if transpose else view)
    assert box == [*expected, (0, 8)]


@given(st.data())
def test_boxes_never_miss_an_overlap(data: st.DataObject) -> None:
    root = np.zeros((4, 6))
    forms = [root, root.reshape(-1), root.reshape(2, 2, 6), root.view(np.complex128), root.view(np.int8), root.T[1:5]]
    first, second = (data.draw(st.sampled_from(forms)) for _ in range(2))
    first = first[(*data.draw(basic_views(first.shape)), ...)]
    second = second[(*data.draw(basic_views(second.shape)), ...)]
    if np.shares_memory(first, second):
        assert meet(first, second)


def test_tiles_are_apart() -> None:
    plane = np.zeros((8, 8))
    tiles = [plane[i : i + 4, j : j + 4] for i, j in product((0, 4), repeat=2)]
    assert not any(meet(a, b) for a in tiles for b in tiles if a is not b)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (lambda a: a.real, lambda a: a.imag),
        (lambda a: a.view(np.float64)[0:2, :4], lambda a: a[1:3, 2:]),
        (lambda a: a.reshape(-1)[:4], lambda a: a[1]),
        (lambda a: a[0:0], lambda a: a),
        (lambda a: np.broadcast_to(a[0], (3, 4)), lambda a: a[1]),
    ],
)
def test_views_that_are_apart(left, right) -> None:
    array = np.zeros((3, 4), np.complex128)
    assert not meet(left(array), right(array))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (lambda a: a.diagonal(), lambda a: a[2, 2:]),
        (lambda a: a.view(np.int8)[1, 3:5], lambda a: a[1, :1]),
        (lambda a: as_strided(a, (2, 2), (8, 8)), lambda a: a[0, 2:3]),
        (lambda a: np.frombuffer(memoryview(a).cast("B"), np.uint8), lambda a: a[1]),
        (lambda a: np.broadcast_to(a[0, :1], (3, 4)), lambda a: a[0, :1]),
    ],
)
def test_views_that_meet(left, right) -> None:
    array = np.zeros((3, 4))
    assert meet(left(array), right(array))


def test_arrays_over_one_foreign_buffer_are_one_allocation() -> None:
    buffer = (ctypes.c_double * 24)()
    whole = np.ndarray((4, 6), np.float64, buffer)
    rows = np.ndarray((2, 6), np.float64, buffer)
    corner = np.ndarray((2, 3), np.float64, buffer, 2 * 48, (48, 8))
    beside = np.ndarray((2, 3), np.float64, buffer, 2 * 48 + 24, (48, 8))
    assert meet(whole, rows)
    assert not meet(rows, corner)
    found = boxes(corner, beside, whole)
    assert found[0][1] == [(2, 4), (0, 3), (0, 8)]
    assert found[1][1] == [(2, 4), (3, 6), (0, 8)]


def test_the_owner_of_reshaped_memory_has_the_axes_of_its_views() -> None:
    plane = np.arange(48.0).reshape(6, 8)
    assert not meet(plane[0:4, 0:4], plane[0:4, 4:8])
    assert not meet(plane[1:3], plane[3:, 2:5])
    assert meet(plane[0:4, 0:4], plane[3:, 3:])
    cube = np.arange(48.0).reshape(2, 4, 6)
    assert not meet(cube[:, 0:2, 1:3], cube[:, 2:4, 1:3])
    buffer = (ctypes.c_double * 48)()
    tiles = [np.ndarray((3, 4), np.float64, buffer, at, (64, 8)) for at in (0, 32, 192, 224)]
    assert not any(meet(a, b) for a in tiles for b in tiles if a is not b)


@pytest.mark.parametrize("begin", [0, 3, 7, 13])
def test_rows_may_begin_anywhere_in_their_memory(begin: int) -> None:
    memory = np.zeros(100)
    plane = memory[begin : begin + 48].reshape(6, 8)
    tiles = [plane[:, 0:4], plane[:, 4:8], plane[2:3, 0:8]]
    assert not meet(tiles[0], tiles[1])
    assert meet(tiles[0], tiles[2])
    assert meet(tiles[1], tiles[2])
    assert meet(tiles[1], memory[begin + 6 : begin + 9])  # the end of one row and the begin of the next
    assert not meet(tiles[0], memory[begin + 4 : begin + 8])
    x, force = memory[begin : begin + 72].reshape(3, 3, 8)[::2]
    graph = Graph()
    for i in (0, 4):
        graph.task(body, x, x[:, i : i + 4], force[:, i : i + 4], access=(Read, Read, Write))
    assert not len(infer_dependences(flatten(graph)).edges.within_a_step().src)


@given(st.data(), st.integers(0, 20))
def test_views_that_share_bytes_meet_wherever_rows_begin(data: st.DataObject, begin: int) -> None:
    memory = np.zeros(80)
    plane = memory[begin : begin + 48].reshape(6, 8)
    one, two = (plane[(*data.draw(basic_views(plane.shape)), ...)] for _ in range(2))
    low = data.draw(st.integers(0, 79))
    line = memory[low : data.draw(st.integers(low + 1, 80))]
    for a, b in ((one, two), (one, line), (two, line)):
        assert meet(a, b) or not np.shares_memory(a, b)


def test_a_ring_alone_has_a_group_of_its_own() -> None:
    stack = np.zeros((3, 8))
    turns = ring(*stack)
    graph = Graph()
    graph.task(body, turns[0][2:4], turns[2], access=(Read, Write))
    found = find_accesses(graph.ops)
    assert found.group[0] == found.group[1]
    assert found.period.tolist() == [3, 3]
    assert found.phase.tolist() == [0, 2]
    assert found.alias.tolist() == [-1, -1]
    assert found.lo[found.box, 0].tolist() == [2, 0]


def test_a_ring_that_meets_others_has_shadows() -> None:
    stack = np.zeros((2, 8))
    graph = Graph()
    graph.task(body, ring(*stack)[0], stack, access=(Read, Write))
    found = find_accesses(graph.ops)
    assert (found.alias >= 0).tolist() == [False, True, True, False]
    assert found.group[1] == found.group[3]


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[ns]", "f2", "U3", "S5", "O", "V7", [("a", "i4"), ("b", "O")], ">i2"])
def test_any_dtype(dtype) -> None:
    array = np.zeros(4, dtype)
    assert not meet(array[:2], array[2:])
    assert meet(array[:3], array[2:])


def test_read_only_arrays_and_arrays_of_no_dimensions() -> None:
    array = np.zeros(())
    array.flags.writeable = False
    assert meet(array, array[...])
