"""Captured graphs have the order of their parts, and no more."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import ostinato as ost
from devices.cuda.driver import kernels
from devices.cuda.faked import Controls, fake_devices, library
from ostinato.devices import device as discovery
from ostinato.devices.array import empty
from ostinato.devices.cuda import CudaArray, CudaDevice
from ostinato.devices.transfers import plan_fill, wait_for

MOST = 16  # streams of one capture


def implied(after: Sequence[set[int] | list[int]]) -> list[set[int]]:
    """All that each comes after, directly or through others."""
    found: list[set[int]] = []
    for each in after:
        found.append(set(each).union(*(found[before] for before in each)))
    return found


class Recorded:
    """A capture of parts that launch so many kernels each."""

    def __init__(self, after: Sequence[Sequence[int]], launches: Sequence[int] | None = None) -> None:
        device = fake_devices()[0]
        self._cuda = kernels(library(), device)
        self._launches = [1] * len(after) if launches is None else launches
        self.streams: list[int] = []
        stream = device.core.open()
        self.sequence = device.core.capture(stream, self._enqueue, [list(each) for each in after])
        device.core.close(stream)
        self.after = implied([before for _, before in Controls().graph()])

    def _enqueue(self, recording: int, part: int) -> None:
        assert part == len(self.streams)
        self.streams.append(recording)
        for _ in range(self._launches[part]):
            self._cuda.launch("nothing", recording)


@st.composite
def orders(draw: st.DrawFn, most: int = 14) -> list[list[int]]:
    """By part, the earlier ones that it comes after."""
    n = draw(st.integers(1, most))
    return [draw(st.lists(st.integers(0, part - 1), max_size=3)) if part else [] for part in range(n)]


@settings(max_examples=60, deadline=None)
@given(orders())
def test_the_graph_has_the_order_of_its_parts_and_no_more(after: list[list[int]]) -> None:
    recorded = Recorded(after)
    wanted = implied(after)
    assert recorded.after == wanted
    for part, stream in enumerate(recorded.streams):
        sharing = {other for other in range(part) if recorded.streams[other] == stream}
        assert sharing <= wanted[part], "what libraries keep by stream is used by two at once"


@settings(max_examples=40, deadline=None)
@given(orders(), st.lists(st.integers(0, 2), min_size=14, max_size=14))
def test_parts_may_enqueue_nothing_or_several(after: list[list[int]], launches: list[int]) -> None:
    launches = launches[: len(after)]
    nodes = [set(range(sum(launches[:part]), sum(launches[: part + 1]))) for part in range(len(after))]
    found = Recorded(after, launches).after
    for part, before in enumerate(implied(after)):
        wanted = set().union(*(nodes[each] for each in before))
        for place, node in enumerate(sorted(nodes[part])):
            assert found[node] == wanted | set(sorted(nodes[part])[:place])


def test_a_chain_takes_one_stream_and_no_events(controls: Controls) -> None:
    before = [controls.calls(name) for name in ("cuEventCreate", "cuStreamWaitEvent")]
    recorded = Recorded([[part - 1] if part else [] for part in range(20)])
    assert len(set(recorded.streams)) == 1
    assert [controls.calls(name) for name in ("cuEventCreate", "cuStreamWaitEvent")] == before


def test_there_are_only_so_many_streams(controls: Controls) -> None:
    """What would need one more comes after others: more than the order asks for, never less."""
    width = 2 * MOST + 3
    after = [[] if part < width else [part - width, (part + 1) % width] for part in range(3 * width)]
    recorded = Recorded(after)
    assert len(set(recorded.streams)) == MOST
    assert all(wanted <= found for wanted, found in zip(implied(after), recorded.after, strict=True))
    created = controls.calls("cuStreamCreate")
    Recorded(after)
    assert controls.calls("cuStreamCreate") == created + 1, "but for the one of this test, they are used again"


def test_what_streams_run_side_by_side_is_captured_on_others(device: CudaDevice, controls: Controls) -> None:
    streams = [device.core.open() for _ in range(2)]

    def used(stream: int) -> list[int]:
        found: list[int] = []
        device.core.capture(stream, lambda recording, part: found.append(recording), [[], [], [0]])
        return found

    first, second = (used(stream) for stream in streams)
    assert not set(first) & set(second)
    assert used(streams[0]) == first
    created = controls.calls("cuStreamCreate")
    for stream in streams:
        device.core.close(stream)
    third = device.core.open()
    assert set(used(third)) <= {*first, *second}, "those of streams that are closed are used again"
    assert controls.calls("cuStreamCreate") == created + 1
    device.core.close(third)


def test_a_part_may_use_other_streams(controls: Controls) -> None:
    device = fake_devices()[0]
    cuda = kernels(library(), device)
    other, stream = device.core.open(), device.core.open()
    event = ctypes.c_void_p()
    cuda.enter()
    cuda.driver.cuEventCreate(ctypes.byref(event), 2)

    def forks(recording: int) -> None:
        cuda.driver.cuEventRecord(event, ctypes.c_void_p(recording))
        cuda.driver.cuStreamWaitEvent(ctypes.c_void_p(other), event, 0)
        cuda.launch("nothing", recording)
        cuda.launch("nothing", other)
        cuda.driver.cuEventRecord(event, ctypes.c_void_p(other))
        cuda.driver.cuStreamWaitEvent(ctypes.c_void_p(recording), event, 0)

    def enqueue(recording: int, part: int) -> None:
        forks(recording) if part == 1 else cuda.launch("nothing", recording)

    assert device.core.capture(stream, enqueue, [[], [], [0, 1], [1]]) is not None
    # 1 and 2 are the second part's.
    assert implied([after for _, after in controls.graph()]) == [set(), set(), set(), {0, 1, 2}, {1, 2}]
    for each in (other, stream):
        device.core.close(each)


def test_a_part_that_fails_ends_the_capture(device: CudaDevice, stream: int, controls: Controls) -> None:
    x, y = empty(device, 4), empty(device, 4)

    def enqueue(recording: int, part: int) -> None:
        if part == 2:
            raise LookupError("mine")
        device.core.fill(recording, plan_fill((x, y)[part], 1.0 + part))

    with pytest.raises(LookupError, match="mine"):
        device.core.capture(stream, enqueue, [[], [], [0]])
    controls.fail("cuStreamWaitEvent@2=901")
    with pytest.raises(RuntimeError, match="CAPTURE_INVALIDATED"):
        device.core.capture(stream, enqueue, [[], []])
    sequence = device.core.capture(stream, enqueue, [[], []])
    assert sequence is not None
    device.core.launch(stream, sequence)
    wait_for(device, stream)
    assert (x.get()[0], y.get()[0]) == (1.0, 2.0)


def test_parts_come_after_earlier_ones(device: CudaDevice, stream: int, controls: Controls) -> None:
    with pytest.raises(ValueError, match="earlier"):
        device.core.capture(stream, lambda recording, part: None, [[], [1]])


class Programs:
    """Tasks on the fake driver's first device, whose bodies are captured."""

    def __init__(self, machine: ost.Machine) -> None:
        self.machine = machine
        cuda = kernels(library(), fake_devices()[0])

        @ost.task(launch_only=True)
        def axpb(stream: ost.Stream, x: ost.ReadWrite, a: Any, b: Any) -> None:
            cuda.axpb(stream.handle, x, a, b)

        @ost.task(launch_only=True)
        def add(stream: ost.Stream, total: ost.Write, a: ost.Read, b: ost.Read) -> None:
            cuda.add(stream.handle, total, a, b)

        self.axpb, self.add = axpb, add

    def array(self, values: np.ndarray) -> CudaArray:
        array: CudaArray = empty(fake_devices()[0], values.shape)
        array.set(values)
        return array


@pytest.fixture
def programs() -> Iterator[Programs]:
    with discovery.using(fake_devices()), ost.Machine(cpus=1) as machine:
        yield Programs(machine)


Steps = Callable[[Any, Any, Any, Any], object]


@pytest.mark.parametrize(
    ("step", "after"),
    [
        (lambda on, x, y, z: (on.axpb(x, 2.0, 0.0), on.axpb(y, 2.0, 0.0)), [set(), set()]),
        (lambda on, x, y, z: (on.axpb(x, 2.0, 0.0), on.add(z, x, y), on.axpb(y, 2.0, 0.0)), [set(), {0}, {1}]),
        (lambda on, x, y, z: (on.add(z, x, y), on.add(z, y, y)), [set(), {0}]),
        (lambda on, x, y, z: (on.axpb(x, 2.0, 0.0), on.axpb(y, 2.0, 0.0), on.add(z, x, y)), [set(), set(), {0, 1}]),
        (lambda on, x, y, z: (on.axpb(x[:2], 2.0, 0.0), on.axpb(x[2:], 2.0, 0.0)), [set(), set()]),
        (lambda on, x, y, z: (on.axpb(x[:3], 2.0, 0.0), on.axpb(x[2:], 2.0, 0.0)), [set(), {0}]),
        (lambda on, x, y, z: (on.add(y, x, x), on.add(z, x, x)), [set(), set()]),
    ],
    ids=["independent", "read, then written", "written twice", "joined", "apart", "overlapping", "both read"],
)
def test_kernels_that_need_nothing_of_each_other_have_no_edge(
    programs: Programs, controls: Controls, step: Steps, after: list[set[int]]
) -> None:
    arrays = [programs.array(np.ones(4)) for _ in range(3)]
    with ost.capture() as graph:
        step(programs, *arrays)
    with graph.compile(programs.machine) as program:
        program.replay(3)
    assert [found for _, found in controls.graph()] == after


def test_patching_keeps_the_branches(programs: Programs, controls: Controls) -> None:
    x, y, total = (programs.array(np.zeros(4)) for _ in range(3))
    with ost.capture() as graph:
        by = ost.param("by", default=1.0)
        programs.axpb(x, 1.0, by)
        programs.axpb(y, 1.0, by)
        programs.add(total, x, y)
    with graph.compile(programs.machine) as program:
        program.replay(2)
        updates, made = controls.calls("cuGraphExecUpdate_v2"), controls.calls("cuGraphInstantiateWithFlags")
        for value in (10.0, 100.0):
            program.replay(2, by=value)
        assert controls.calls("cuGraphExecUpdate_v2") == updates + 2
        assert controls.calls("cuGraphInstantiateWithFlags") == made
    assert [after for _, after in controls.graph()] == [set(), set(), {0, 1}]
    assert (total.get() == 444.0).all()


EXAMPLES = int(os.environ.get("OSTINATO_TEST_EXAMPLES", "40"))
SIZE, RING = 6, 3
PARTS = [slice(None), slice(0, 3), slice(3, None), slice(1, 5)]


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """Operations on parts of two arrays and of one ring."""
    name = st.one_of(st.tuples(st.just("array"), st.integers(0, 1)), st.tuples(st.just("ring"), st.integers(-1, 1)))
    kinds = st.sampled_from(["axpb", "axpb", "add", "copy", "fill", "given"])
    op = st.tuples(kinds, name, name, name, st.sampled_from(PARTS), st.integers(1, 5))
    runs = st.tuples(st.integers(1, 5), st.integers(0, 3))
    return {"ops": draw(st.lists(op, min_size=2, max_size=9)), "runs": draw(st.lists(runs, min_size=2, max_size=4))}


@settings(max_examples=EXAMPLES, deadline=None)
@given(plans())
def test_random_programs_are_sequential_python(plan: dict[str, Any]) -> None:
    """On a driver that runs branches in any order."""
    with discovery.using(fake_devices()), ost.Machine(cpus=1) as machine:
        on = Programs(machine)
        values = [np.arange(SIZE) * (k + 1.0) + k for k in range(2 + RING)]
        arrays = [on.array(each) for each in values]
        ring = ost.ring(*arrays[2:])

        def at(name: tuple[str, int], part: slice) -> Any:
            return (arrays[name[1]] if name[0] == "array" else ring[name[1]])[part]

        def value(name: tuple[str, int], part: slice, step: int) -> np.ndarray:
            number = name[1] if name[0] == "array" else 2 + (step + name[1]) % RING
            return values[number][part]

        ops = [op for op in plan["ops"] if op[0] != "copy" or op[1] != op[2]]
        assume(ops)
        with ost.capture() as graph:
            by = ost.param("by", default=0.0)
            for kind, x, y, z, part, factor in ops:
                if kind == "axpb":
                    on.axpb(at(x, part), 0.5, float(factor))
                elif kind == "given":
                    on.axpb(at(x, part), 0.25, by)
                elif kind == "add":
                    on.add(at(x, part), at(y, part), at(z, part))
                elif kind == "copy":
                    graph.copy(at(x, part), at(y, part))
                else:
                    graph.fill(at(x, part), float(factor))
        step = 0
        with graph.compile(machine) as program:
            for steps, given_value in plan["runs"]:
                program.replay(steps, by=float(given_value))
                for now in range(step, step + steps):
                    for kind, x, y, z, part, factor in ops:
                        first, second, third = (value(each, part, now) for each in (x, y, z))
                        if kind == "axpb":
                            first[...] = first * 0.5 + factor
                        elif kind == "given":
                            first[...] = first * 0.25 + given_value
                        elif kind == "add":
                            first[...] = second + third
                        elif kind == "copy":
                            second[...] = first
                        else:
                            first[...] = factor
                step += steps
                for array, wanted in zip(arrays, values, strict=True):
                    np.testing.assert_array_equal(array.get(), wanted)
