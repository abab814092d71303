"""pyopencl's arrays, buffers and shared memory as operands, and in calls outside captures."""

import functools

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.array import empty
from ostinato.devices.device import usable

cl = pytest.importorskip("pyopencl")
cl_array = pytest.importorskip("pyopencl.array")

SOURCE = """
__kernel void scale(__global const double *src, __global double *dst, double factor) {
    dst[get_global_id(0)] = factor * src[get_global_id(0)];
}
"""


@functools.cache
def program(context):
    return cl.Program(context, SOURCE).build()


@ost.task
def scale(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor=2.0):
    kernel = cl.Kernel(program(stream.queue.context), "scale")
    kernel(stream.queue, (src.size,), None, src.data, dst.data, np.float64(factor))


@pytest.fixture(scope="module")
def device():
    found = usable("opencl")
    if not found:
        pytest.skip("no OpenCL device")
    return found[0]


@pytest.fixture(scope="module")
def queue(device):
    return cl.CommandQueue(device.context)


def pairs(graph):
    return {(a.index, b.index) for a, b, distance in graph.edges if distance == 0}


def test_arrays_are_operands_with_their_regions(device, queue):
    whole, other = cl_array.zeros(queue, 1024, np.float64), cl_array.zeros(queue, 512, np.float64)
    graph = ost.Graph()
    first = graph.task(scale, other, whole[:512])
    graph.task(scale, other, whole[512:])
    graph.task(scale, whole[256:768], other)
    assert [operand.memory for operand in first.operands] == [device.name] * 2
    assert first.operands[0].value is other
    assert pairs(graph) == {(0, 2), (1, 2)}


def test_a_buffer_and_an_array_in_it_are_one_memory(device, queue):
    array = cl_array.zeros(queue, 8, np.float64)
    graph = ost.Graph()
    op = graph.task(scale, np.zeros(8), array)
    graph.task(scale, array.base_data, np.zeros(64, np.uint8))
    region = array.base_data.get_sub_region(0, 32)
    graph.task(scale, region, np.zeros(32, np.uint8))
    assert pairs(graph) == {(0, 1), (0, 2)}
    assert op.operands[1].array.shape == (8,)


def test_rings_of_them(device, queue):
    u = ost.ring(*(cl_array.zeros(queue, 6, np.float32) for _ in range(2)), empty(device, 6, np.float32))
    with ost.capture() as graph:
        graph.copy(u[0][1:], u[1][1:])
    assert graph.ops[0].operands[0].memory == device.name


def test_shared_memory_is_the_devices(device):
    if not device.device.svm_capabilities:
        pytest.skip("no shared virtual memory")
    memory = cl.SVMAllocation(device.context, 64, 1, cl.svm_mem_flags.READ_WRITE)
    graph = ost.Graph()
    op = graph.fill(memory, 1)
    assert op.operands[0].memory == device.name
    assert op.operands[0].array.shape == (64,)


def test_calls_at_once(device, queue):
    a, b = np.arange(5.0), np.zeros(5)
    scale(a, b)
    assert b.tolist() == [0, 2, 4, 6, 8]
    source, target = cl_array.to_device(queue, a), cl_array.zeros(queue, 5, np.float64)
    scale(source, target, 3.0)
    assert target.get().tolist() == [0, 3, 6, 9, 12]
    ours = empty(device, 5)
    scale(target, ours, 2.0)
    scale(ours, b, 0.5)
    assert b.tolist() == [0, 3, 6, 9, 12]
    scale(a, target, -1.0)
    assert target.get().tolist() == [0, -1, -2, -3, -4]


def test_one_passed_without_an_access_is_refused(device, queue):
    @ost.task
    def plain(x):
        pass

    for array in (cl_array.zeros(queue, 3, np.int8), cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 3)):
        with pytest.raises(TypeError, match="does not say how it uses it"), ost.capture():
            plain(array)
    with ost.capture():
        plain(queue)
        plain(device.context)


def test_one_of_another_context_is_refused(device):
    other = cl.CommandQueue(cl.Context([device.device]))
    array = cl_array.zeros(other, 3, np.float64)
    with pytest.raises(ValueError, match="another OpenCL context"), ost.capture():
        scale(array, np.zeros(3))
    with pytest.raises(ValueError, match="another OpenCL context"):
        scale(array, np.zeros(3))
