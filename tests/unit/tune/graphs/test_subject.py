"""What is timed of an op, and what it is compared by."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.graph.variant import variants_of
from ostinato.runtime.memory import extent_of
from ostinato.tune.graphs.benchmark import Benchmark, Failure
from ostinato.tune.graphs.workload import Unmeasurable, Workload

Record = Callable[[], object]


@pytest.fixture
def machine() -> Iterator[ost.Machine]:
    with ost.Machine(cpus=1) as machine:
        yield machine


def op_of(record: Record) -> ost.Op:
    with ost.capture() as graph:
        record()
    return graph.ops[0]


def benchmark_of(record: Record, machine: ost.Machine, place: int = 0) -> tuple[Workload, Benchmark]:
    op = op_of(record)
    workload = Workload(op)
    return workload, Benchmark(workload, variants_of(op.body)[place], machine)


def once(record: Record, machine: ost.Machine) -> list[Any]:
    workload, benchmark = benchmark_of(record, machine)
    benchmark.once()
    return workload.outputs()


@ost.task
def scale(src: ost.Read, dst: ost.Write, factor: object = 2.0) -> None:
    np.multiply(src, factor, out=dst)  # type: ignore[call-overload]


@ost.task
def grow(x: ost.ReadWrite) -> None:
    x += 1


@ost.task
def append(log: ost.ReadWrite, value: int = 1) -> None:
    log.append(value)


@ost.task
def slow(x: ost.Read) -> None:
    time.sleep(2e-4)


@ost.task
def flip(src: ost.Read, dst: ost.ReadWrite) -> None:
    dst[:] = src[::-1]


def test_an_op_is_called_on_copies(machine: ost.Machine) -> None:
    a, b = np.arange(4.0), np.zeros(4)
    (found,) = once(lambda: scale(a, b), machine)
    assert found.tolist() == [0, 2, 4, 6]
    assert (a.tolist(), b.tolist()) == ([0, 1, 2, 3], [0, 0, 0, 0])


def test_quick_calls_are_many_in_a_sample_and_slow_ones_one(machine: ost.Machine) -> None:
    a, b = np.zeros(4), np.zeros(4)
    _, quick = benchmark_of(lambda: scale(a, b), machine)
    assert quick() is quick
    assert quick.calls_per_sample >= 16
    _, slower = benchmark_of(lambda: slow(a), machine)
    assert slower() is slower
    assert slower.calls_per_sample == 1
    assert (quick.before_sample, slower.before_sample) == (None, None)


def test_it_is_called_as_often_as_it_says(machine: ost.Machine) -> None:
    calls = []

    @ost.task
    def count(x: ost.Read) -> None:
        calls.append(1)

    _, benchmark = benchmark_of(lambda: count(np.zeros(1)), machine)
    benchmark()
    calls.clear()
    benchmark()
    assert len(calls) == benchmark.calls_per_sample


def test_what_calls_change_is_put_back(machine: ost.Machine) -> None:
    x = np.arange(3.0)
    workload, benchmark = benchmark_of(lambda: grow(x), machine)
    for _ in range(2):
        benchmark()
        assert workload.outputs()[0].tolist() == (x + benchmark.calls_per_sample).tolist()
        assert callable(benchmark.before_sample)
        benchmark.before_sample()
        assert workload.outputs()[0].tolist() == [0, 1, 2]
    assert x.tolist() == [0, 1, 2]


def test_tokens_are_copied_anew(machine: ost.Machine) -> None:
    log = [0]
    workload, benchmark = benchmark_of(lambda: append(log), machine)
    benchmark()
    assert callable(benchmark.before_sample)
    benchmark.before_sample()
    assert workload.outputs() == [[0]]
    benchmark()
    assert workload.outputs() == [[0] + [1] * benchmark.calls_per_sample]
    benchmark.once()
    assert workload.outputs() == [[0, 1]]
    assert log == [0]


def test_two_subjects_take_turns(machine: ost.Machine) -> None:
    x, log = np.zeros(2), [0]
    for record in (lambda: grow(x), lambda: append(log)):
        op = op_of(record)
        workload = Workload(op)
        one, other = (Benchmark(workload, variants_of(op.body)[0], machine) for _ in range(2))
        for benchmark in (one, other, one):
            benchmark()
        one.once()
        before = repr(workload.outputs())
        other()
        one.once()
        assert repr(workload.outputs()) == before


def test_the_step_is_0_where_results_count(machine: ost.Machine) -> None:
    a = np.ones(1)
    workload, benchmark = benchmark_of(lambda: scale(a, np.zeros(1), ost.step), machine)
    for _ in range(2):
        benchmark()
        benchmark.once()
        assert workload.outputs()[0].tolist() == [0]


def test_parameters_have_their_defaults(machine: ost.Machine) -> None:
    a, b = np.ones(1), np.zeros(1)
    (found,) = once(lambda: scale(a, b, ost.param("factor", 3.0)), machine)
    assert found.tolist() == [3]
    with pytest.raises(Unmeasurable, match="'factor' has no default to measure with"):
        benchmark_of(lambda: scale(a, b, ost.param("factor")), machine)


@pytest.mark.parametrize(("offset", "expected"), [(0, 0), (1, 1), (-1, 2)])
def test_of_a_ring_it_is_the_element_of_step_0(machine: ost.Machine, offset: int, expected: int) -> None:
    ring = ost.ring(*(np.full(2, float(number)) for number in range(3)))
    workload, benchmark = benchmark_of(lambda: scale(ring[offset], ring[offset + 1], 1.0), machine)
    benchmark()
    benchmark.once()
    assert workload.outputs()[0].tolist() == [expected, expected]


def test_views_overlap_as_they_do(machine: ost.Machine) -> None:
    x = np.arange(6.0)
    wanted = x.copy()
    flip.function(wanted[:4], wanted[2:])  # NumPy sees the overlap here and there
    assert once(lambda: flip(x[:4], x[2:]), machine)[0].tolist() == wanted[2:].tolist()
    both = np.arange(4.0)
    assert once(lambda: scale(both, both), machine)[0].tolist() == [0, 2, 4, 6]


def test_only_what_is_accessed_is_copied() -> None:
    large = np.zeros((1000, 1000))
    workload = Workload(op_of(lambda: grow(large[:4, :4])))
    assert sum(block.nbytes for block in workload.replacements.memory.plain) < 5 * 8000


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3)),
        np.zeros(()),
        np.zeros((4, 4))[::2, ::-1],
        np.zeros((4, 4)).T,
        np.zeros(3, [("a", "f8"), ("b", "i1", 2)]),
        np.frombuffer(bytearray(25), np.uint8)[1:].view(float),
        np.zeros(3, ">i4"),
        np.zeros(3, "M8[s]"),
        np.zeros(3, "U4"),
    ],
    ids=lambda array: f"{array.shape} {array.dtype} {array.strides}",
)
def test_arrays_of_every_kind(machine: ost.Machine, array: np.ndarray) -> None:
    @ost.task
    def copy(src: ost.Read, dst: ost.Write) -> None:
        assert src.strides == dst.strides == array.strides
        assert src.flags.aligned == array.flags.aligned
        dst[...] = src

    source = array.copy()
    workload, benchmark = benchmark_of(lambda: copy(array, _like(array)), machine)
    benchmark()
    benchmark.once()
    assert workload.difference([source], 0.0) == ""


def _like(array: np.ndarray) -> np.ndarray:
    """Another array of the same layout."""
    low, high = extent_of(array)
    room = np.zeros(high - low, np.uint8)
    return np.ndarray(array.shape, array.dtype, room.data, array.ctypes.data - low, array.strides)


def test_arrays_of_objects(machine: ost.Machine) -> None:
    @ost.task
    def extend(x: ost.ReadWrite) -> None:
        x[0].append(1)

    x = np.array([[0], None], object)
    workload, benchmark = benchmark_of(lambda: extend(x), machine)
    benchmark()
    benchmark.once()
    assert workload.outputs()[0].tolist() == [[0, 1], None]
    assert x.tolist() == [[0], None]


class Foreign:
    """An array of a library that knows DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __deepcopy__(self, memo: object) -> Foreign:
        return Foreign(self.array.copy())


def test_arrays_of_other_libraries(machine: ost.Machine) -> None:
    @ost.task
    def fill(dst: ost.Write, view: ost.ReadWrite) -> None:
        assert isinstance(dst, Foreign)
        assert isinstance(view, memoryview)
        dst.array[:] = 3
        view[0] += 1

    foreign, memory = Foreign(np.zeros(2)), bytearray(2)
    workload, benchmark = benchmark_of(lambda: fill(foreign, memoryview(memory)), machine)
    benchmark()
    benchmark.once()
    assert [np.asarray(found).tolist() for found in workload.outputs()] == [[3, 3], [1, 0]]
    assert foreign.array.tolist() == [0, 0]
    assert memory == bytearray(2)


def test_what_a_task_raises_comes_out(machine: ost.Machine) -> None:
    @ost.task
    def fails(x: ost.Read) -> None:
        raise ValueError("boom")

    _, benchmark = benchmark_of(lambda: fails(np.zeros(1)), machine)
    for call in (benchmark, benchmark, benchmark.once):
        with pytest.raises(Failure, match="ValueError: boom"):
            call()


def test_what_cannot_be_called_twice_is_called_once_a_sample(machine: ost.Machine) -> None:
    @ost.task
    def take(queue: ost.ReadWrite, out: ost.Write) -> None:
        out[0] = queue.pop()

    queue = [7, 8]
    workload, benchmark = benchmark_of(lambda: take(queue, np.zeros(1)), machine)
    for _ in range(3):
        benchmark()
        assert benchmark.calls_per_sample == 1
        assert callable(benchmark.before_sample)
        benchmark.before_sample()
    benchmark.once()
    assert workload.outputs()[0] == [7]
    assert queue == [7, 8]


def test_kernels_and_their_variants(machine: ost.Machine) -> None:
    pytest.importorskip("numba")

    @ost.kernel
    def add(src: ost.Read, dst: ost.ReadWrite, n: int) -> None:
        for i in range(src.size):
            dst[i] += src[i] * n

    @add.variant
    def numpy_add(src: ost.Read, dst: ost.ReadWrite, n: int) -> None:
        dst += src * n

    a, b = np.ones(3), np.ones(3)
    for place in (0, 1):
        workload, benchmark = benchmark_of(lambda: add(a, b, ost.param("n", 4)), machine, place)
        benchmark()
        benchmark.once()
        assert workload.outputs()[0].tolist() == [5, 5, 5]


def test_what_cannot_be_copied_is_not_touched(machine: ost.Machine) -> None:
    @ost.task
    def write(path: ost.Write) -> None:
        raise AssertionError

    with pytest.raises(Unmeasurable, match="'write' changes an argument, a str, that cannot be copied"):
        benchmark_of(lambda: write(ost.token("a path")), machine)


# Comparing


def difference(wrong: Callable[..., None], *arrays: Any, machine: ost.Machine) -> str:
    """Return in what a call differs from one of a task with the same accesses that doubles into the last array."""
    op = op_of(lambda: ost.task(wrong)(*arrays))
    workload = Workload(op)
    Benchmark(workload, variants_of(op.body)[0], machine).once()
    return workload.difference([np.asarray(arrays[0]) * 2], 0.0)


def test_unwritten_elements_are_found(machine: ost.Machine) -> None:
    def half(src: ost.Read, dst: ost.Write) -> None:
        dst[::2] = src[::2] * 2

    for array in (np.arange(4.0), np.arange(4), np.full(4, np.nan)):
        found = difference(half, array, np.zeros_like(array), machine=machine)
        assert found.startswith("argument 2 'dst' (shape (4,), ")
        assert "at index (1,) it gives" in found


def test_changed_inputs_are_found(machine: ost.Machine) -> None:
    def spoils(src: ost.Read, dst: ost.Write) -> None:
        np.multiply(src, 2, out=dst)
        np.lib.stride_tricks.as_strided(dst, (2,), (8,))[1] = 7

    base = np.arange(8.0)
    found = difference(spoils, base[1::2], base[::2], machine=machine)
    assert found == "it writes to what it should only read, or beside its arguments in their memory"


def test_writes_beyond_the_ends_are_found(machine: ost.Machine) -> None:
    def beyond(src: ost.Read, dst: ost.Write) -> None:
        np.multiply(src, 2, out=dst)
        np.lib.stride_tricks.as_strided(dst, (5,), dst.strides)[4] = 1

    assert (
        difference(beyond, np.arange(4.0), np.zeros(4), machine=machine) == "it writes beyond the ends of its arguments"
    )
