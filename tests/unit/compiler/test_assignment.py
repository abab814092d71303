"""Where ops run."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from compiler.memories import DEVICES, bounds
from ostinato.compiler.assign_devices import find_devices
from ostinato.compiler.ir import HOST
from ostinato.compiler.memories import Homes
from ostinato.compiler.variants import replace_variants
from ostinato.devices.device import Stream
from ostinato.errors import GraphError
from ostinato.graph.access import Read, ReadWrite, Write
from ostinato.graph.graph import Graph
from ostinato.graph.native import native
from ostinato.graph.op import Op
from ostinato.graph.ring import ring
from ostinato.graph.task import task
from ostinato.graph.variant import Variant

C_TASK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(lambda _: 0)


@task
def plain(a: ReadWrite) -> None: ...


@task
def streamed(a: ReadWrite, stream: Stream) -> None: ...


@task
def two(a: Read, b: Write, stream: Stream) -> None: ...


@task
def other(a: ReadWrite) -> None: ...


def where(graph: Graph, *homes: tuple[np.ndarray[Any, Any], int], devices: Any = DEVICES, cpus: int = 2) -> list[int]:
    return assign(graph.ops, *homes, devices=devices, cpus=cpus)


def assign(ops: Any, *homes: tuple[np.ndarray[Any, Any], int], devices: Any = DEVICES, cpus: int = 2) -> list[int]:
    ranges = [(*bounds(array), DEVICES[device].name) for array, device in homes]

    def name_of(array: np.ndarray[Any, Any]) -> str:
        low = bounds(array)[0]
        return next((name for begin, end, name in ranges if begin <= low < end), "host")

    found: list[int] = find_devices(ops, devices, cpus, Homes(devices, name_of)).tolist()
    return found


def test_tasks_run_on_the_host() -> None:
    graph, a = Graph(), np.zeros(4)
    graph.task(plain, a)
    graph.task(native(C_TASK, (Read,)), a)
    graph.until(np.zeros(1, np.int32))
    assert where(graph, (a, 0)) == [HOST, HOST, HOST]


def test_tasks_with_a_stream_run_on_a_device() -> None:
    graph, a = Graph(), np.zeros(4)
    graph.task(streamed, a)
    graph.task(native(C_TASK, (Read, Stream)), a)
    assert where(graph) == [0, 0]


def test_tasks_with_a_stream_go_where_most_of_their_bytes_are() -> None:
    graph, a, b = Graph(), np.zeros(4), np.zeros(8)
    graph.task(two, a, b)
    graph.task(two, a, a)
    assert where(graph, (a, 1), (b, 2)) == [2, 1]


@pytest.mark.parametrize(
    ("on", "device"), [("fake:1", 1), ("fake", 0), (DEVICES[2], 2), ("cpu", HOST), ("cpu:1", HOST)]
)
def test_on(on: Any, device: int) -> None:
    graph, a = Graph(), np.zeros(4)
    graph.task(streamed, a, on=on)
    graph.task(plain, a, on=on)
    graph.fill(a, 0, on=on)
    graph.copy(a, np.zeros(4), on=on)
    assert where(graph) == [device] * 4


def test_a_kind_is_the_device_of_it_that_has_most_of_the_bytes() -> None:
    graph, a = Graph(), np.zeros(4)
    graph.task(plain, a, on="fake")
    assert where(graph, (a, 2)) == [2]


@pytest.mark.parametrize("devices", [DEVICES, ()])
def test_there_is_no_such_device(devices: Any) -> None:
    graph, a = Graph(), np.zeros(4)
    graph.task(streamed, a, on="cuda:7", name="blur")
    there = "cpu:0, cpu:1" + "".join(f", {device.name}" for device in devices)
    with pytest.raises(
        GraphError, match=rf"'blur' at .* is bound to 'cuda:7', but this machine has only {there}(;.*)?$"
    ):
        where(graph, devices=devices)


def test_there_is_no_device() -> None:
    graph, a = Graph(), np.zeros(4)
    graph.task(streamed, a, name="blur")
    with pytest.raises(GraphError, match=r"'blur' at .* takes a stream, but this machine has only cpu:0(;.*)?$"):
        where(graph, devices=(), cpus=1)


def test_native_tasks_without_a_stream_are_for_the_host() -> None:
    graph, a = Graph(), np.zeros(4)
    graph.task(native(C_TASK, (Read,)), a, on="fake")
    with pytest.raises(GraphError, match=r"is bound to 'fake', but is native and takes no stream"):
        where(graph)


def test_objects_have_no_place_on_a_device() -> None:
    graph = Graph()
    graph.task(streamed, np.zeros(4, object))
    with pytest.raises(GraphError, match="Python objects, which have no place in the memory of a device"):
        where(graph)


def test_arrays_of_other_libraries_take_python_tasks_along() -> None:
    graph, a, b = Graph(), np.zeros(4), np.zeros(4)
    graph.task(plain, _operand(a))
    graph.task(body, _operand(a), b, access=(Read, Write))
    graph.task(plain, a)
    assert where(graph, (a, 1)) == [1, HOST, HOST]


def body(*_: object) -> None:
    """What some of the ops call."""


def _operand(array: np.ndarray[Any, Any]) -> Any:
    """The memory of an array as something that is no ndarray."""
    return memoryview(array)  # type: ignore[arg-type]


def test_copies_run_where_one_side_is() -> None:
    graph, a, b, c = Graph(), np.zeros(4), np.zeros(4), np.zeros(4)
    graph.copy(a, b)
    graph.copy(b, a)
    graph.copy(b, c)
    graph.copy(a, c)
    graph.copy(ring(a, a[:])[0], ring(b, b[:])[1])
    assert where(graph, (b, 0), (c, 1)) == [0, 0, 1, 1, 0]


def test_copies_that_are_more_than_that_run_on_the_host() -> None:
    graph, a, b = Graph(), np.zeros(4), np.zeros(4, np.float32)
    graph.copy(a, b, reduce="+")
    graph.copy(b, a)  # casts
    graph.copy(a, a[::-1], indices=np.arange(4))
    graph.copy(a, a[::-1], scatter=np.arange(4))
    assert where(graph, (a, 0), (b, 0)) == [HOST] * 4
    graph.copy(b, a, on="fake:0", name="cast")
    with pytest.raises(GraphError, match=r"'cast' at .* is bound to 'fake:0', but is no plain copy or fill"):
        where(graph, (a, 0), (b, 0))


def test_fills_run_where_their_array_is() -> None:
    a, wide = np.zeros(4), np.zeros(4, "V24")
    graph = Graph()
    graph.fill(a, 1.5)
    graph.fill(np.zeros(4), 1.5)
    graph.fill(a, graph.param("value", 1.0))
    graph.fill(wide, np.void(bytes(24)))
    graph.fill(wide, np.void(bytes(range(24))))
    assert where(graph, (a, 0), (wide, 0)) == [0, HOST, HOST, 0, HOST]


def test_variants_run_where_they_are_for() -> None:
    graph, a = Graph(), np.zeros(4)
    graph.task(plain, a)
    ops: tuple[Op, ...] = replace_variants(graph.ops, {0: Variant(streamed, "on a device", "fake")})
    assert assign(ops) == [0]
    ops = replace_variants(graph.ops, {0: Variant(other, "other", "fake")})
    assert assign(ops) == [0]
    ops = replace_variants(graph.ops, {0: Variant(other, "other")})
    assert assign(ops) == [HOST]
