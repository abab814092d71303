"""What counts as an array, and that its memory is shared."""

import array
import ctypes

import numpy as np
import pytest

from naming import stable_repr
from ostinato.errors import DeviceError
from ostinato.graph.arrays import as_ndarray


class Dlpack:
    """An array known by DLPack alone."""

    def __init__(self, values, device=None):
        self._values = values
        self._device = device

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._device or self._values.__dlpack_device__()


class OldDlpack(Dlpack):
    """As before the version that can say "read-only"."""

    def __dlpack__(self, stream=None):
        return self._values.__dlpack__()


def test_ndarrays_are_themselves():
    a = np.zeros(3)
    assert as_ndarray(a) is a


@pytest.mark.parametrize(
    "memory",
    [
        bytearray(8),
        array.array("d", [1.0]),
        memoryview(bytearray(8)),
        (ctypes.c_double * 1)(),
        np.zeros(1).view(np.matrix),
    ],
    ids=lambda memory: type(memory).__name__,
)
def test_buffers_are_shared(memory):
    view = as_ndarray(memory)
    assert type(view) is np.ndarray
    view.view(np.uint8)[...] = 7
    assert bytes(memory) == b"\7" * 8


@pytest.mark.parametrize("kind", [Dlpack, OldDlpack])
def test_dlpack_is_shared_and_writable(kind):
    values = np.zeros((3, 4))[:, ::2]
    view = as_ndarray(kind(values))
    view[1, 1] = 5
    assert values[1, 1] == 5
    assert view.strides == values.strides


def test_names_of_other_libraries_mean_nothing():
    """PyTorch's tensors have a method of this name."""

    class Tensor(Dlpack):
        def is_distributed(self):
            return False

    assert as_ndarray(Tensor(np.zeros(3))).shape == (3,)


def test_read_only_stays_read_only():
    values = np.zeros(3)
    values.flags.writeable = False
    assert not as_ndarray(bytes(3)).flags.writeable
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        assert not as_ndarray(Dlpack(values)).flags.writeable


@pytest.mark.parametrize(
    "token", [None, 1, 2.0, "text", [1, 2], {}, object(), np.float64(3), open, len], ids=stable_repr
)
def test_other_objects_are_no_arrays(token):
    assert as_ndarray(token) is None


def test_memory_of_devices_is_refused(monkeypatch):
    monkeypatch.setattr("ostinato.devices.registry.usable", lambda kind: ())  # wherever this test runs

    class Cupy:
        __cuda_array_interface__ = {"shape": (3,)}  # noqa: RUF012

    with pytest.raises(DeviceError, match="Cupy lies in the memory of a device"):
        as_ndarray(Cupy())
    with pytest.raises(DeviceError, match="device"):
        as_ndarray(Dlpack(np.zeros(3), device=(2, 0)))


def test_masked_arrays_are_refused():
    with pytest.raises(TypeError, match="mask"):
        as_ndarray(np.ma.zeros(3))


def test_failing_exporters_are_named():
    class Strange:
        def __dlpack__(self, **options):
            raise BufferError("no such dtype")

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(TypeError, match="Strange cannot be used as an array: no such dtype"):
        as_ndarray(Strange())
