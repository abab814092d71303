"""Arrays in the memory of devices as operands. Whoever reads or writes a proxy ends the process."""

import gc
import weakref

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.array import empty
from ostinato.errors import DeviceError
from ostinato.graph.arrays import as_ndarray, memory_of
from support import fake_device as fake


@ost.task
def combine(stream: ost.Stream, src: ost.Read, dst: ost.Write):
    pass


@ost.task
def on_the_cpu(src: ost.Read, dst: ost.ReadWrite):
    pass


@pytest.fixture
def devices():
    with fake.install(count=2) as found:
        yield found


@pytest.fixture
def device(devices):
    return devices[0]


def pairs(graph):
    return {(a.index, b.index, distance) for a, b, distance in graph.edges}


def test_an_operand_has_its_proxy(device):
    a, b = empty(device, (4, 5), np.float32), np.zeros((4, 5), np.float32)
    with ost.capture() as graph:
        op = combine(a, b)
    src, dst = op.operands
    assert src.value is a
    assert src.array is a.proxy
    assert (src.memory, dst.memory) == ("fake:0", "host")
    assert (src.array.shape, src.array.dtype) == ((4, 5), np.float32)
    assert op.body.args[1:] == (src, dst)
    assert len(graph) == 1


def test_tokens_lie_in_memory_of_the_host():
    with ost.capture():
        op = on_the_cpu(object(), [])
    assert [operand.memory for operand in op.operands] == ["host", "host"]


def test_an_array_of_another_library_is_adopted(device):
    a = empty(device, 6)
    foreign, other = fake.ForeignArray(a), fake.ForeignArray(a[2:])
    with ost.capture() as graph:
        first = combine(np.zeros(6), foreign)
        combine(other, np.zeros(4))
    assert first.operands[1].value is foreign
    assert first.operands[1].memory == "fake:0"
    assert (0, 1, 0) in pairs(graph)


def test_dependences_follow_from_regions(device):
    a, out = empty(device, (6, 4)), np.zeros((2, 4))
    with ost.capture() as graph:
        combine(out, a[0:2])
        combine(out, a[2:4])
        combine(a[1:3], out)
        on_the_cpu(a[4:], empty(device, (2, 4)))
    found = pairs(graph)
    assert {(0, 2, 0), (1, 2, 0)} <= found
    assert not any(3 in (a, b) for a, b, _ in found if a != b)


def test_arrays_of_two_devices_are_apart(devices):
    a, b = (empty(device, 4) for device in devices)
    with ost.capture() as graph:
        combine(np.zeros(4), a)
        combine(np.zeros(4), b)
    assert [op.operands[1].memory for op in graph.ops] == ["fake:0", "fake:1"]
    assert not {edge for edge in pairs(graph) if edge[0] != edge[1]}


def test_rings_of_arrays_of_devices(devices):
    u = ost.ring(*(empty(devices[0], (8, 3)) for _ in range(3)))
    with ost.capture() as graph:
        op = combine(u[0][2:5], u[1][2:5])
    assert op.operands[0].memory == "fake:0"
    assert u[0][2:5].shape == (3, 3)
    assert u[0].T.shape == (3, 8)
    assert (0, 0, 1) in pairs(graph)
    with pytest.raises(ValueError, match="one memory: array 0 in that of host, array 1 in that of fake:0"):
        ost.ring(np.zeros(3), empty(devices[0], 3))
    with pytest.raises(ValueError, match="fake:0, array 1 in that of fake:1"):
        ost.ring(*(empty(device, 3) for device in devices))
    with pytest.raises(ValueError, match="one shape"):
        ost.ring(empty(devices[0], 3), empty(devices[0], 4))


def test_ring_of_arrays_of_another_library(device):
    u = ost.ring(*(fake.ForeignArray(empty(device, 4)) for _ in range(2)))
    with ost.capture():
        op = combine(u[0][1:], u[1][1:])
    assert op.operands[1].memory == "fake:0"


def test_copies_and_fills_are_checked(device):
    a, host = empty(device, (2, 3)), np.ones((2, 3))
    graph = ost.Graph()
    graph.copy(host, a)
    graph.copy(a, host)
    graph.copy(a[0], a[1])
    graph.copy(a, host, reduce="+")
    graph.fill(a, 2.0)
    graph.fill(a, [1.0, 2.0, 3.0])
    graph.fill(a, graph.param("value", 0.0))
    spread = graph.fill(a, host[0])
    assert spread.operands[0].memory == "host"
    spread = graph.fill(host, a[0])
    assert spread.operands[0].memory == "fake:0"
    assert spread.operands[0].arrays[0].shape == (2, 3)
    spread = graph.fill(host, ost.ring(a[:1], a[1:])[1])
    assert spread.operands[0].memory == "fake:0"
    with pytest.raises(ost.GraphError, match="one shape"):
        graph.copy(host, a[0])
    with pytest.raises(TypeError, match=r"numpy\.copyto would refuse"):
        graph.copy(a, np.zeros((2, 3), np.int8))
    with pytest.raises(ost.GraphError, match="cannot spread"):
        graph.fill(a, np.zeros(4))
    with pytest.raises((ValueError, TypeError)):
        graph.fill(a, "text")


def test_gathering_takes_indices_of_any_memory(device):
    a, indices = empty(device, 4), empty(device, 2, np.int64)
    graph = ost.Graph()
    op = graph.copy(a, np.zeros(2), indices=indices)
    assert op.operands[2].memory == "fake:0"
    graph.copy(np.zeros(2), a, scatter=indices)
    with pytest.raises(ost.GraphError, match="array of integers"):
        graph.copy(a, np.zeros(4), indices=a)


def test_a_flag_may_lie_on_a_device(device):
    flag = empty(device, 1, np.int32)
    with ost.capture() as graph:
        op = ost.until(flag)
    assert graph.stop is op
    assert op.operands[0].memory == "fake:0"
    with pytest.raises(ost.GraphError, match="one element"), ost.capture():
        ost.until(empty(device, 2))


def test_captures_leave_them_alone(device):
    a, inner = empty(device, 3), ost.Graph()
    inner.task(combine, np.zeros(3), a)
    with ost.capture() as graph:
        combine(np.zeros(3), a)
        combine(a[:2], np.zeros(2))
        graph.subgraph(inner)
        assert a.proxy.flags.writeable
        a.set(np.arange(3.0))
        assert a.get().tolist() == [0, 1, 2]
    assert a.proxy.flags.writeable


def test_read_only_arrays_are_not_written(device):
    a = device.allocate(32)
    a.readonly = True
    array = a.array(4)
    graph = ost.Graph()
    graph.task(combine, array, np.zeros(4))
    with pytest.raises(ost.GraphError, match="read-only"):
        graph.task(combine, np.zeros(4), array)
    with pytest.raises(ost.GraphError, match="read-only"):
        graph.fill(array, 1.0)


def test_an_array_whose_use_is_not_said_is_refused(device):
    @ost.task
    def plain(x):
        pass

    for array in (empty(device, 3), fake.ForeignArray(empty(device, 3))):
        with pytest.raises(TypeError, match="does not say how it uses it"), ost.capture():
            plain(array)


def test_native_tasks_and_kernels_take_them(device):
    pytest.importorskip("numba")
    a = empty(device, 3)
    native = ost.native(0x1000, (ost.Read, ost.Write), name="native")

    @ost.kernel
    def double(src: ost.Read, dst: ost.Write):
        for i in range(src.size):
            dst[i] = 2 * src[i]

    with ost.capture() as graph:
        native(a, np.zeros(3))
        double(a, np.zeros(3))
    assert [op.operands[0].memory for op in graph.ops] == ["fake:0", "fake:0"]
    with pytest.raises(TypeError, match="pass its handle"):
        ost.native(0x1000, (), user=a)


def test_a_graph_keeps_their_memory(device):
    array = empty(device, 1000)
    alive = weakref.ref(array.allocation)
    graph = ost.Graph()
    graph.task(combine, array[10:20], np.zeros(10))
    ring = ost.ring(array[:5], array[5:10])
    del array
    gc.collect()
    assert alive() is not None
    del graph
    gc.collect()
    assert alive() is not None
    del ring
    gc.collect()
    assert alive() is None


def test_arrays_of_devices_that_nobody_knows():
    class Somewhere:
        __cuda_array_interface__ = {}  # noqa: RUF012

    with fake.install(0), pytest.raises(DeviceError, match="cannot be used here"):
        as_ndarray(Somewhere())


def test_memory_of_views(device):
    a = empty(device, (5, 4))
    for view in (a[1:], a[::-2, 1], a[4:, 4:], a[5:]):
        assert memory_of(view.proxy) == "fake:0"
    assert memory_of(np.zeros(0)) == "host"
