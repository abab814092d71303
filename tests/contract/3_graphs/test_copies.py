"""The contract on copies and fills of Python objects, and on copies that combine by a function of the user's."""

from __future__ import annotations

import functools
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import ostinato as ost
from native import load


@ost.task
def combine_in_python(dst: ost.ReadWrite, src: ost.Read):
    dst *= 2
    dst += src


def combine(a, b):
    """Depends on the order of arguments and of calls."""
    return 2 * a + b


def reductions():
    """What combines a into 2 a + b, in each of the ways in which that can be said."""
    yield "function", lambda: combine
    yield "partial", lambda: functools.partial(lambda two, a, b: two * a + b, 2)
    yield "python task", lambda: combine_in_python
    yield "native", lambda: ost.native(load("contract/tasks.c").combine, (ost.ReadWrite, ost.Read), name="combine")
    yield "kernel", kernel


def kernel():
    pytest.importorskip("numba")

    @ost.kernel
    def combine(dst: ost.ReadWrite, src: ost.Read):
        for i in range(len(dst)):
            dst[i] = 2 * dst[i] + src[i]

    return combine


@pytest.fixture(params=reductions(), ids=lambda entry: entry[0])
def reduce(request):
    return request.param[1]()


def by_hand(dst, src, indices=None, scatter=None, function=combine):
    """What a loop gives."""
    src = src.copy()
    moved = src if indices is None else src[indices]
    for i in range(len(moved)):
        place = i if scatter is None else scatter[i]
        dst[place] = function(dst[place], moved[i])
    return dst


CASES = {
    "plain": (6, 6, None, None),
    "gathered": (6, 4, np.array([5, 0, 0, -3]), None),
    "scattered": (6, 4, None, np.array([3, 0, 3, -1, 3, 1])),
    "both": (6, 4, np.array([5, 5, 1]), np.array([2, 2, 0], np.uint8)),
    "nothing": (0, 4, None, np.zeros(0, np.int64)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("strided", [False, True])
def test_a_reduction_of_the_users(reduce, case, strided, machine):
    n, m, indices, scatter = CASES[case]
    src, dst = np.arange(1.0, n + 1), np.full(m, 10.0)
    if strided:
        src, dst = np.repeat(src, 2)[::2], np.repeat(dst, 3)[::3]
    expected = dst.copy()
    for _ in range(3):
        by_hand(expected, src, indices, scatter)
    graph = ost.Graph()
    graph.copy(src, dst, reduce=reduce, indices=indices, scatter=scatter)
    with graph.compile(machine) as program:
        program.verify(2)
        assert (dst == 10).all()
        program.replay(3)
    assert dst.tolist() == expected.tolist()


def test_at_once(reduce):
    src, dst = np.arange(4.0), np.ones(4)
    ost.copy(src, dst, reduce=reduce, scatter=np.array([0, 0, 1, 3]))
    assert dst.tolist() == by_hand(np.ones(4), src, scatter=[0, 0, 1, 3]).tolist()


def test_overlapping_arrays_are_as_if_the_source_had_been_copied_first(reduce, machine):
    x = np.arange(6.0)
    expected = x.copy()
    expected[1:] = 2 * x[1:] + x[:-1]
    graph = ost.Graph()
    graph.copy(x[:-1], x[1:], reduce=reduce)
    with graph.compile(machine) as program:
        program.verify()
        program.replay()
    assert x.tolist() == expected.tolist()


def test_rows_are_combined_element_by_element(machine):
    src, dst = np.arange(6.0).reshape(3, 2), np.ones((2, 2))
    graph = ost.Graph()
    graph.copy(src, dst, reduce=combine, scatter=np.array([1, 0, 1]))
    with graph.compile(machine) as program:
        program.replay()
    assert dst.tolist() == [[4, 5], [2 * (2 + 0) + 4, 2 * (2 + 1) + 5]]


def test_a_ufunc_is_as_at_is(machine):
    src, dst, places = np.array([3.0, 1.0, 4.0, 1.0]), np.zeros(3), np.array([2, 2, 0, 2])
    expected = dst.copy()
    np.hypot.at(expected, places, src)
    graph = ost.Graph()
    graph.copy(src, dst, reduce=np.hypot, scatter=places)
    with graph.compile(machine) as program:
        program.verify()
        program.replay()
    assert dst.tobytes() == expected.tobytes()


def test_built_in_functions_get_elements(machine):
    src, dst = np.array([3, -1, 4]), np.array([1, 1, 9])
    graph = ost.Graph()
    graph.copy(src, dst, reduce=max)
    graph.copy(src.astype(np.int8), dst, reduce=lambda a, b: int(a) + int(b))
    with graph.compile(machine) as program:
        program.replay()
    assert dst.tolist() == [6, 0, 13]


def test_elements_of_a_ring(machine):
    a, b, total = np.full(2, 1.0), np.full(2, 5.0), np.zeros(2)
    graph = ost.Graph()
    graph.copy(graph.ring(a, b)[0], total, reduce=combine)
    with graph.compile(machine) as program:
        program.replay(3)
    assert total.tolist() == [2 * (2 * 1 + 5) + 1] * 2


def test_a_place_out_of_range_fails_and_changes_nothing(reduce, machine):
    dst = np.ones(3)
    graph = ost.Graph()
    graph.copy(np.ones(2), dst, reduce=reduce, scatter=np.array([0, 3]))
    with graph.compile(machine) as program, pytest.raises(ost.TaskError, match="out of bounds"):
        program.replay()
    assert dst.tolist() == [1, 1, 1]


@pytest.mark.parametrize("value", [2.5, None, 1j, "x"])
def test_a_value_that_cannot_be_stored_is_no_silent_nan(value, machine):
    dst = np.ones(2, np.int64)
    graph = ost.Graph()
    graph.copy(np.ones(2, np.int64), dst, reduce=lambda a, b: value)
    with graph.compile(machine) as program, pytest.raises(ost.TaskError, match="must return a value") as caught:
        program.replay()
    assert isinstance(caught.value.__cause__, TypeError)
    assert dst.tolist() == [1, 1]


def test_what_a_function_raises_is_a_task_error(machine):
    def fail(a, b):
        raise KeyError("on purpose")

    graph = ost.Graph()
    graph.copy(np.ones(2), np.ones(2), reduce=fail)
    with graph.compile(machine) as program, pytest.raises(ost.TaskError, match="on purpose") as caught:
        program.replay()
    assert isinstance(caught.value.__cause__, KeyError)


@ost.task
def reads_both(dst: ost.Read, src: ost.Read): ...


@ost.task(pure=False)
def impure(dst: ost.ReadWrite, src: ost.Read): ...


@ost.task(blocking=True)
def waits(dst: ost.ReadWrite, src: ost.Read): ...


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ("-", ValueError, "'min', 'max' or a function, got '-'"),
        (3, TypeError, "or a function, got 3"),
        (["+"], TypeError, "or a function, got"),
        (np.sin, TypeError, "two elements to one"),
        (np.divmod, TypeError, "two elements to one"),
        (reads_both, TypeError, r"combine\(dst: ost.ReadWrite, src: ost.Read\)"),
        (impure, TypeError, "must be pure"),
        (waits, TypeError, "must not wait"),
    ],
    ids=repr,
)
def test_what_combines_nothing(wrong, error, words):
    with pytest.raises(error, match=words):
        ost.Graph().copy(np.ones(2), np.ones(2), reduce=wrong)


def test_tune_calls_no_reduction_of_the_users(machine, tmp_path):
    calls = []
    graph = ost.Graph()
    graph.copy(np.ones(2), np.ones(2), reduce=lambda a, b: calls.append(a))
    reports = graph.tune(machine, store=tmp_path / "store.db", everything=True, progress=False)
    assert "reduce=" in reports["copy"].results[0].message
    assert calls == []


# Python objects


def objects(*values):
    found = np.empty(len(values), object)
    found[:] = values
    return found


def test_objects_are_copied_by_reference(machine):
    thing = {"a": 1}
    src, dst = objects(thing, Fraction(1, 3), "text", None), objects(0, 0, 0, 0)
    graph = ost.Graph()
    graph.copy(src, dst)
    with graph.compile(machine) as program:
        program.verify(2)
        assert dst.tolist() == [0] * 4
        program.replay()
        assert dst[0] is thing
        src[1:] = 5
        program.replay()
    assert dst.tolist() == [thing, 5, 5, 5]


def test_references_are_counted(machine):
    class Thing: ...

    thing = Thing()
    before = sys.getrefcount(thing)
    src, dst = objects(thing, thing), objects(None, None)
    graph = ost.Graph()
    graph.copy(src, dst)
    graph.fill(src, None)
    with graph.compile(machine) as program:
        program.replay(1)
        assert sys.getrefcount(thing) == before + 2
        program.replay(1)
        assert sys.getrefcount(thing) == before
    assert dst.tolist() == [None, None]


@pytest.mark.parametrize("value", [None, "text", {"a": 1}, [1, [2, 3]], 3.5, Decimal("0.1"), np.arange(2), (None, 7)])
def test_fills_do_what_an_assignment_does(value, machine):
    given, dst = objects(0, 0), objects(0, 0)
    expected = objects(0, 0)
    expected[...] = value
    graph = ost.Graph()
    graph.fill(dst, value)
    graph.fill(given, graph.param("value"))
    with graph.compile(machine) as program:
        program.verify(value=value)
        program.replay(value=value)
    assert dst.tolist() == given.tolist() == expected.tolist()
    assert [type(each) for each in dst] == [type(each) for each in expected]


def test_numbers_become_objects_but_not_the_other_way_round(machine):
    dst = objects(0, 0)
    graph = ost.Graph()
    graph.copy(np.array([1.5, 2.5]), dst)
    with graph.compile(machine) as program:
        program.replay()
    assert dst.tolist() == [1.5, 2.5]
    with pytest.raises(TypeError, match=r"numpy\.copyto would refuse"):
        ost.Graph().copy(dst, np.zeros(2))


def test_gathered_scattered_and_combined_objects(machine):
    src, picked, spread = objects("a", "b", "c"), objects("", ""), objects("x", "y")
    texts = objects("u", "v")
    graph = ost.Graph()
    graph.copy(src, picked, indices=np.array([2, 0]))
    graph.copy(src, spread, scatter=np.array([1, 1, 0]), reduce="+")
    graph.copy(src[:2], texts, reduce=lambda a, b: f"({a},{b})")
    with graph.compile(machine) as program:
        program.verify(2)
        program.replay()
    assert picked.tolist() == ["c", "a"]
    assert spread.tolist() == ["xc", "yab"]
    assert texts.tolist() == ["(u,a)", "(v,b)"]


def test_what_numpy_cannot_combine_fails_as_a_task(machine):
    graph = ost.Graph()
    graph.copy(objects(1, {}), objects(1, 1), reduce="+")
    with graph.compile(machine) as program, pytest.raises(ost.TaskError, match="unsupported operand"):
        program.replay()


def test_native_code_combines_no_objects():
    with pytest.raises(ost.GraphError, match="Python objects"):
        ost.Graph().copy(objects(1), objects(1), reduce=ost.native(12345, (ost.ReadWrite, ost.Read)))


def test_records_that_hold_objects(machine):
    dtype = np.dtype([("key", "i4"), ("what", object)])
    src, dst = np.array([(1, "one"), (2, None)], dtype), np.zeros(2, dtype)
    graph = ost.Graph()
    graph.copy(src[::-1], dst)
    with graph.compile(machine) as program:
        program.replay()
    assert dst.tolist() == [(2, None), (1, "one")]
