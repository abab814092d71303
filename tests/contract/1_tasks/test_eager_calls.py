"""Calls of tasks and kernels outside captures: the same as calls of their functions, with little in between."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

import ostinato as ost


@ost.task
def look(a: ost.Read, b: ost.ReadWrite, k=3, *rest: ost.Read, more: ost.Read = None, **options):
    return a, b, k, rest, more, options


@pytest.fixture(scope="module")
def kernel():
    pytest.importorskip("numba")

    @ost.kernel
    def scale(src: ost.Read, dst: ost.Write, factor, start: int = 0):
        for i in range(start, src.size):
            dst[i] = src[i] * factor

    return scale


def python_calls(function, *args, **kwargs):
    """The Python functions that a call calls."""
    found = []
    sys.setprofile(lambda frame, event, _: event == "call" and found.append(frame.f_code.co_name))
    try:
        function(*args, **kwargs)
    finally:
        sys.setprofile(None)
    return found


def test_nothing_is_called_but_the_function():
    a, b = np.zeros(3), np.zeros(3)
    assert python_calls(look, a, b) == ["look"]
    assert python_calls(look, a, b, 4.5) == ["look"]
    assert python_calls(look, b=b, a=a, more=a) == ["look"]


def test_a_kernel_calls_no_python(kernel):
    a, b = np.ones(3), np.zeros(3)
    kernel(a, b, 2.0, 0)  # compiles it
    assert python_calls(kernel, a, b, 3.0, 1) == []
    assert b.tolist() == [2, 3, 3]
    assert python_calls(kernel, a, b, np.float64(4.0), 2) == []
    assert b.tolist() == [2, 3, 4]


def test_what_is_only_read_is_read_only():
    a, b = np.arange(3.0), np.arange(3.0)
    for call in (lambda: look(a, b, 1, a, more=a), lambda: look(b=b, k=1, a=a)):
        got = call()
        assert not got[0].flags.writeable
        assert got[0] is not a
        assert got[0].base is a
        assert got[1] is b
        for each in (*got[3], got[4]):
            assert each is None or (not each.flags.writeable and np.shares_memory(each, a))
    assert a.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        look(a, b)[0][0] = 1


def test_arguments_and_results_are_those_of_the_function():
    a, b = np.zeros(1), np.zeros(1)
    assert look(a, b)[2:] == (3, (), None, {})
    assert look(a, b, "text", note=7)[2:] == ("text", (), None, {"note": 7})
    assert look(a, b, [1], option=None)[2:] == ([1], (), None, {"option": None})
    for wrong in (lambda: look(a), lambda: look(a, b, a=a), lambda: look()):
        with pytest.raises(TypeError, match="look"):
            wrong()

    @ost.task
    def many(*arrays: ost.Read, **named: ost.Read):
        return len(arrays) + len(named)

    assert many(*[a] * 40, **{f"x{place}": b for place in range(40)}) == 80


def test_exceptions_are_those_of_the_function():
    @ost.task
    def fail(a: ost.Read):
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        fail(np.zeros(1))


def test_methods_and_calls_by_tasks():
    class Solver:
        @ost.task
        def step(self, x: ost.ReadWrite):
            add(x)
            return self

    @ost.task
    def add(x: ost.ReadWrite):
        x += 1

    x, solver = np.zeros(1), Solver()
    assert solver.step(x) is solver
    assert x == [1]


def test_calls_are_recorded_in_captures(kernel):
    a, b = np.ones(3), np.zeros(3)
    with ost.capture() as graph:
        op = look(a, b)
        kernel(a, b, 2.0)
    assert len(graph) == 2
    assert "test_eager_calls.py" in str(op.call_site)
    assert b.tolist() == [0, 0, 0]


def test_nothing_is_kept():
    a, b = np.zeros(3), np.zeros(3)
    gc.collect()
    before = sys.getrefcount(a), sys.getrefcount(b), sys.getrefcount(None)
    for _ in range(1000):
        look(a, b, more=a)
        look(a, b, {})
    after = sys.getrefcount(a), sys.getrefcount(b), sys.getrefcount(None)
    assert all(abs(x - y) < 100 for x, y in zip(before, after, strict=True))


ARRAYS = {
    "contiguous": lambda: np.arange(6.0),
    "strided": lambda: np.arange(12.0)[::2],
    "backwards": lambda: np.arange(6.0)[::-1],
    "empty": lambda: np.zeros(0),
    "one": lambda: np.arange(1.0),
    "misaligned": lambda: np.arange(60, dtype=np.uint8)[1:49].view(np.float64),
    "int": lambda: np.arange(6),
    "float32": lambda: np.arange(6, dtype="f4"),
    "times": lambda: np.arange(6).astype("m8[s]"),
}


@pytest.mark.parametrize("make", ARRAYS.values(), ids=ARRAYS)
def test_kernels_of_every_layout_give_what_the_function_gives(make, kernel):
    pytest.importorskip("numba")
    for source, target in ((make(), make()), (make(), make().copy()), (make().copy(), make())):
        wanted = target.copy()
        for i in range(source.size):
            wanted[i] = source[i] * 2
        for _ in range(3):  # the first call compiles
            target[...] = 0
            kernel(source, target, 2)
            assert target.tobytes() == wanted.tobytes()


def test_kernels_refuse_what_they_did(kernel):
    a, b = np.ones(3), np.zeros(3)
    kernel(a, b, 2.0)
    kernel(a, b, 2)
    b.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kernel(a, b, 2.0)
    with pytest.raises(OverflowError):
        kernel(a, a.copy(), 2**70)
    with pytest.raises(TypeError, match="must be an int"):
        kernel(a, a.copy(), 2.0, 1.5)
    with pytest.raises(TypeError):
        kernel(a, a.copy(), "text")
    with pytest.raises(TypeError, match="byte order"):
        kernel(a.astype(">f8"), a.copy(), 2.0)
    with pytest.raises(TypeError, match="missing"):
        kernel(a)
    kernel(src=a, dst=(c := np.zeros(3)), factor=4)
    assert c.tolist() == [4, 4, 4]


def test_a_kernel_that_raises():
    pytest.importorskip("numba")

    @ost.kernel
    def fail(x: ost.Read, limit):
        if x[0] > limit:
            raise ValueError

    for _ in range(3):
        fail(np.zeros(1), 1.0)
        with pytest.raises(ost.TaskError, match="'fail' failed"):
            fail(np.ones(1), 0.0)
