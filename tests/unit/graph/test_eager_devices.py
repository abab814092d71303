"""Calls outside captures of tasks with streams, and of plain ones with arrays of devices."""

import ctypes
import threading

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.array import DeviceArray, empty
from ostinato.devices.registry import allocation_of
from ostinato.errors import DeviceError, TaskError
from support import fake_device as fake


@pytest.fixture
def device():
    with fake.install() as (found,):
        yield found


def array_of(device, values):
    values = np.asarray(values)
    array = empty(device, values.shape, values.dtype)
    array.set(values)
    return array


def multiply(src, dst, factor):
    np.multiply(src, factor, out=dst)


@ost.task
def scale(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor=2.0):
    assert isinstance(stream, ost.Stream)
    assert isinstance(src, DeviceArray)
    assert isinstance(dst, DeviceArray)
    fake.launch(stream, multiply, src, dst, factor, delay=0.001)
    return "started"


@ost.task
def increase(dst: ost.ReadWrite, *, stream: ost.Stream):
    fake.launch(stream, lambda x: np.add(x, 1, out=x), dst)


def test_it_runs_on_the_device_of_its_arrays(device):
    a, b = array_of(device, [1.0, 2.0, 3.0]), empty(device, 3)
    assert scale(a, b) == "started"
    assert b.get().tolist() == [2, 4, 6]
    scale(dst=a, src=b, factor=0.25)
    assert a.get().tolist() == [0.5, 1, 1.5]
    increase(a[1:])
    assert a.get().tolist() == [0.5, 2, 2.5]


def test_arrays_of_the_host_are_copied_there_and_back(device):
    a, b = np.arange(6.0).reshape(2, 3), np.zeros((3, 2))
    scale(a.T, b)
    assert (b == 2 * a.T).all()
    scale(a[::-1, ::2], b[:2])
    assert b[:2].tolist() == [[6, 10], [0, 4]]
    assert b[2].tolist() == [4, 10]
    increase(a)
    assert a.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_both_kinds_of_arrays(device):
    a, b = np.arange(3.0), empty(device, 3)
    scale(a, b)
    assert b.get().tolist() == [0, 2, 4]
    scale(b, a, 3.0)
    assert a.tolist() == [0, 6, 12]


def test_arrays_that_overlap_do_so_on_the_device(device):
    @ost.task
    def running_sum(stream: ost.Stream, src: ost.Read, dst: ost.ReadWrite):
        def add(src, dst):
            for index in range(len(dst)):
                dst[index] += src[index]

        fake.launch(stream, add, src, dst)

    a = np.ones(5)
    running_sum(a[:-1], a[1:])
    assert a.tolist() == [1, 2, 3, 4, 5]


def test_only_what_is_written_comes_back(device):
    @ost.task
    def write_all(stream: ost.Stream, src: ost.Read, dst: ost.Write):
        fake.launch(stream, lambda x, y: (x.fill(7), y.fill(8)), device.contents(src), dst)

    a, b = np.zeros(6), np.zeros((4, 2))
    write_all(a[::2], b[:, 0])
    assert a.tolist() == [0] * 6
    assert b.tolist() == [[8, 0]] * 4


def test_arrays_of_another_library_are_passed_as_they_are(device):
    found = []

    @ost.task
    def look(stream: ost.Stream, src: ost.Read, token: ost.ReadWrite, plain):
        found.extend([src, token, plain])

    foreign, token, plain = fake.ForeignArray(empty(device, 3)), object(), np.zeros(2)
    look(foreign, token, plain)
    assert found[0] is foreign
    assert found[1] is token
    assert found[2] is plain


def test_what_fails_on_the_device_is_told(device):
    @ost.task
    def fail(stream: ost.Stream, dst: ost.Write):
        fake.launch(stream, lambda x: 1 / 0, dst)

    a = np.ones(3)
    with pytest.raises(DeviceError, match="fake:0"):
        fail(a)
    assert a.tolist() == [1, 1, 1]
    scale(a, a[:])  # the device is usable
    assert a.tolist() == [2, 2, 2]


def test_exceptions_pass_through_once_the_device_is_done(device):
    done = []

    @ost.task
    def fail(stream: ost.Stream, dst: ost.Write):
        fake.launch(stream, lambda x: done.append(True), dst, delay=0.01)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail(np.ones(3))
    assert done == [True]


def test_what_is_read_only_is_not_written(device):
    a = np.ones(3)
    a.flags.writeable = False
    with pytest.raises(ValueError, match="'dst' of scale\\(\\) is written, but the array passed is read-only"):
        scale(np.ones(3), a)
    scale(a, b := np.zeros(3))
    assert b.tolist() == [2, 2, 2]


def test_without_devices():
    with fake.install(0), pytest.raises(DeviceError, match="there is no device that this process can use"):
        scale(np.ones(3), np.zeros(3))


def test_placeholders_have_no_value(device):
    with pytest.raises(TypeError, match="runs at once here"):
        scale(ost.ring(np.ones(3))[0], np.ones(3))
    with pytest.raises(TypeError, match="runs at once here"):
        scale(np.ones(3), np.ones(3), ost.step)


def test_other_threads_go_on_while_it_waits(device):
    gate = threading.Event()

    @ost.task
    def wait(stream: ost.Stream, dst: ost.Write):
        fake.launch(stream, lambda x: gate.wait(60), dst)

    other = threading.Thread(target=gate.set)
    other.start()
    wait(np.zeros(1))
    other.join()


def test_streams_are_used_again(device):
    handles = set()

    @ost.task
    def look(stream: ost.Stream, src: ost.Read):
        handles.add(stream.handle)

    for _ in range(3):
        look(np.zeros(3))
    assert len(handles) == 1


def test_plain_tasks_get_copies_of_arrays_of_devices(device):
    @ost.task
    def double(src: ost.Read, dst: ost.Write, *, log: ost.ReadWrite):
        assert type(src) is type(dst) is np.ndarray
        assert not src.flags.writeable
        np.multiply(src, 2, out=dst)
        log += 1
        return src.shape

    a, b, log = array_of(device, np.arange(8.0)), empty(device, (4,)), np.zeros(1)
    assert double(a[::2], b, log=log) == (4,)
    assert b.get().tolist() == [0, 4, 8, 12]
    assert log[0] == 1
    assert double(a[:4], a[4:], log=log) == (4,)
    assert a.get().tolist() == [0, 1, 2, 3, 0, 2, 4, 6]


def test_kernels_get_copies_too(device):
    pytest.importorskip("numba")

    @ost.kernel
    def double(src: ost.Read, dst: ost.ReadWrite):
        for i in range(src.size):
            dst[i] += 2 * src[i]

    a, b = array_of(device, np.arange(4.0)), np.ones(4)
    double(a, b)
    assert b.tolist() == [1, 3, 5, 7]
    double(b, a)
    assert a.get().tolist() == [2, 7, 12, 17]


def test_as_operands_of_nothing_at_all(device):
    a = empty(device, (0, 3))
    scale(a, np.zeros((0, 3)))
    scale(np.zeros(0), empty(device, 0))


def test_native_tasks_start_their_work_on_the_stream(device):
    class Call(ctypes.Structure):
        _fields_ = (("arrays", ctypes.c_void_p), ("scalars", ctypes.POINTER(ctypes.c_int64)))

    class Array(ctypes.Structure):
        _fields_ = tuple((name, ctypes.c_void_p) for name in ("data", "ndim", "shape", "strides"))

    found = []

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(Call))
    def start(call):
        scalars, arrays = call[0].scalars, (Array * 2).from_address(call[0].arrays)
        found[:] = scalars[0], arrays[0].data, arrays[1].data
        src, dst = (allocation_of("fake:0", array.data).array(3) for array in arrays)
        fake.launch(device.stream(scalars[1]), multiply, src, dst, float(scalars[0]))
        return scalars[2]

    task = ost.native(start, (ost.Read, int, ost.Stream, int, ost.Write), name="start")
    a, b = array_of(device, [1.0, 2.0, 3.0]), np.zeros(3)
    task(a, 5, 0, b)
    assert b.tolist() == [5, 10, 15]
    assert found[1] == a.pointer == a.handle
    with pytest.raises(ValueError, match="has no offset"):
        task(empty(device, 4)[1:], 5, 0, b)
    with pytest.raises(TaskError, match="returned 3"):
        task(a, 7, 3, b)
    assert b.tolist() == [5, 10, 15]
    with pytest.raises(TypeError, match="is the stream of the device"):
        task(a, 7, ost.Stream(3), 0, b)
    with pytest.raises(ValueError, match="read-only"):
        task(a, 7, 0, np.broadcast_to(b[:1], 3))


def test_native_tasks_without_a_stream_get_copies(device):
    class Call(ctypes.Structure):
        _fields_ = (("arrays", ctypes.POINTER(ctypes.POINTER(ctypes.c_double))),)

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(Call))
    def start(call):
        call[0].arrays[0][1] += 2
        return 0

    a = array_of(device, [1.0, 2.0, 3.0])
    ost.native(start, (ost.ReadWrite,), name="start")(a)
    assert a.get().tolist() == [1, 4, 3]


def test_spawned_tasks_run_on_devices(device):
    a, b = np.arange(3.0), np.zeros(3)
    with ost.Machine(cpus=2) as machine:
        assert machine.spawn(scale, a, b, 3.0).result(60) == "started"
        assert b.tolist() == [0, 3, 6]
        with pytest.raises(TypeError, match="'dst'"):
            machine.spawn(scale, a)


def test_many_threads_at_once(device):
    arrays = [array_of(device, np.full(4, float(index))) for index in range(8)]

    def work(array):
        for _ in range(10):
            increase(array)

    threads = [threading.Thread(target=work, args=(array,)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [array.get()[0] for array in arrays] == [index + 10 for index in range(8)]


_INDICES = (
    (slice(0, 3),),
    (slice(2, 5),),
    (slice(None), slice(1, 3)),
    (slice(None, None, 2), slice(None, None, -1)),
    (slice(4, 1, -1), 2),
    (slice(1, 1),),
    (3, 2),
    (),
)


@pytest.mark.parametrize("base_on_device", [False, True])
def test_any_views_of_one_array(device, base_on_device):
    """Each pair of views, read and written, on the device and on the host."""

    def move(src, dst):
        values = src.copy()  # as if it had been copied first
        dst[...] = values.sum() + np.arange(dst.size, dtype=float).reshape(dst.shape)

    @ost.task
    def on_device(stream: ost.Stream, src: ost.Read, dst: ost.ReadWrite):
        fake.launch(stream, move, src, dst)

    @ost.task
    def on_host(src: ost.Read, dst: ost.ReadWrite):
        move(src, dst)

    start = np.arange(25.0).reshape(5, 5)
    for one in _INDICES:
        for other in _INDICES:
            wanted = start.copy()
            move(wanted[(*one, Ellipsis)], wanted[(*other, Ellipsis)])
            for task in (on_device, on_host):
                got = array_of(device, start) if base_on_device else start.copy()
                task(got[(*one, Ellipsis)], got[(*other, Ellipsis)])
                assert (got.get() if base_on_device else got).tolist() == wanted.tolist(), (one, other)
