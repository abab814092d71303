"""Arrays of the host as tasks take them, and accesses to them."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato.devices.device import reasons
from ostinato.devices.registry import address_of, adopt, allocation_at, any_allocations
from ostinato.errors import DeviceError, GraphError

if TYPE_CHECKING:
    from ostinato.graph.ring import RingElement

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

HOST = "host"
"""The name of the memory that CPUs work in."""

_FACES = ("__dlpack__", "__cuda_array_interface__")
_DLPACK_HOST = frozenset({1, 3, 11, 13})  # CPU, and memory that CUDA and ROCm share with it


def as_ndarray(obj: object) -> Array | None:
    """Return the memory of an array as an ndarray, without a copy; None for an object that is no array.

    Arrays are ndarrays, arrays of devices, and what exports a buffer or DLPack. The result is writable if the memory
    is. That of an array of a device is its proxy: it lies where nothing may be read or written, but its shape, its
    dtype and its addresses are those of the array.

    Raises `DeviceError` for the memory of a device that cannot be used, and `TypeError` for elements without a NumPy
    dtype.
    """
    if type(obj) is np.ndarray:
        return obj
    if isinstance(obj, np.ma.MaskedArray):
        raise TypeError("a masked array is two arrays; pass its .data, and its .mask where the task needs it")
    if isinstance(obj, np.ndarray):
        return obj.view(np.ndarray)
    if isinstance(obj, np.generic | str | int | float | complex | type | None):
        return None  # immutable values, although NumPy's scalars export a buffer
    if hasattr(type(obj), "is_ostinato_distributed_array"):
        return obj.memory  # type: ignore[attr-defined,no-any-return]
    on_device = adopt(obj)
    if on_device is not None:
        return on_device.proxy
    if hasattr(obj, "__cuda_array_interface__"):
        raise _device_error(obj)
    try:
        memory = memoryview(obj)  # type: ignore[arg-type]
    except TypeError:
        return _from_dlpack(obj) if hasattr(obj, "__dlpack__") else None
    try:
        return np.asarray(memory)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the elements of this {type(obj).__name__} have no NumPy dtype: {error}") from error


def is_array(obj: object) -> bool:
    """Whether an object is plainly meant as an array, to warn of a missing annotation."""
    return isinstance(obj, np.ndarray) or any(hasattr(obj, name) for name in _FACES) or adopt(obj) is not None


def memory_of(array: Array) -> str:
    """Return the name of the memory that an array lies in: `HOST`, or that of the device whose proxy it is."""
    allocation = allocation_at(address_of(array)) if any_allocations() else None
    return HOST if allocation is None else allocation.device.name


def root_of(array: Array) -> Array:
    """Return the array that an array is a view of; an array that is no view itself."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _from_dlpack(obj: Any) -> Array:
    if obj.__dlpack_device__()[0] not in _DLPACK_HOST:
        raise _device_error(obj)
    try:
        array: Array = np.from_dlpack(obj)
    except (BufferError, RuntimeError, TypeError) as error:
        raise TypeError(f"this {type(obj).__name__} cannot be used as an array: {error}") from error
    if array.flags.writeable or not _leaves_writing_open(obj):
        return array
    return np.asarray(_Writable(array))


def _device_error(obj: object) -> DeviceError:
    why = "; ".join(f"{kind}: {reason}" for kind, reason in reasons().items())
    return DeviceError(
        f"this {type(obj).__name__} lies in the memory of a device that cannot be used here{f' ({why})' if why else ''}"
        "; pass a copy in host memory"
    )


def _leaves_writing_open(obj: Any) -> bool:
    """Whether the producer speaks the first DLPack, which cannot say "read-only", so that NumPy assumes it."""
    try:
        capsule = obj.__dlpack__(max_version=(1, 0))
    except TypeError:
        return True
    return bool(_is_capsule(capsule, b"dltensor"))


_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = (ctypes.py_object, ctypes.c_char_p)
_is_capsule.restype = ctypes.c_int


class _Writable:
    """The memory of a read-only array, offered as writable."""

    def __init__(self, array: Array) -> None:
        self._array = array  # keeps the memory alive
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


_LONG = np.dtype(np.longdouble).itemsize
_EXTENDED = 10  # bytes of a number of 80 bits; the others are padding


def used_bytes(dtype: np.dtype[Any]) -> npt.NDArray[np.bool_]:
    """Return which bytes of an element hold its value, and are not padding.

    Examples
    --------
    >>> import numpy as np
    >>> used_bytes(np.dtype([("flag", "?"), ("count", "u2")], align=True)).tolist()
    [True, False, True, True]
    """
    used = np.zeros(dtype.itemsize, np.bool_)
    if dtype.subdtype is not None:
        item, shape = dtype.subdtype
        return np.tile(used_bytes(item), int(np.prod(shape)))
    if dtype.fields is not None:
        for item, offset, *_ in dtype.fields.values():
            used[offset : offset + item.itemsize] |= used_bytes(item)
        return used
    used[:] = True
    if dtype.char in "gG" and np.finfo(dtype).nmant == 63:
        used.reshape(-1, _LONG)[:, _EXTENDED:] = False
    return used


READ, WRITE, READ_WRITE = 1, 2, 3  # bit 1: reads, bit 2: writes


class Operand:
    """An array or token that an op accesses, and how: `mode` is `READ`, `WRITE` or `READ_WRITE`.

    `value` is what the user passed; `array` its memory as an ndarray, that of an array of a device as its proxy; `ring`
    the ring element, where one was passed. An operand with neither is a token: the identity of `value` counts.
    """

    __slots__ = ("array", "mode", "ring", "value")

    def __init__(self, value: object, array: np.ndarray[Any, Any] | None, ring: RingElement | None, mode: int) -> None:
        self.value = value
        self.array = array
        self.ring = ring
        self.mode = mode

    def __repr__(self) -> str:
        what = "array" if self.array is not None else "ring element" if self.ring is not None else "token"
        return f"<{('', 'Read', 'Write', 'ReadWrite')[self.mode]} {what}>"

    @property
    def memory(self) -> str:
        """The name of the memory that it lies in: ``"host"``, for tokens too, or that of a device."""
        arrays = self.arrays
        return memory_of(arrays[0]) if arrays else HOST

    @property
    def arrays(self) -> tuple[np.ndarray[Any, Any], ...]:
        """The arrays that take turns: none for a token, one for an array."""
        if self.array is not None:
            return (self.array,)
        return self.ring.views if self.ring is not None else ()


def fill_value(value: Any, array: Array) -> Array:
    """Return a value as an array that can be spread over `array`, having checked that it can."""
    if array.dtype.hasobject:  # what of a nested list is an element follows from the shape of the array
        whole = np.empty(array.shape, array.dtype)
        whole[...] = value
        return whole
    return drop_leading(np.array(value, array.dtype), array.shape)


def drop_leading(value: Array, shape: tuple[int, ...]) -> Array:
    """Drop leading axes of length 1 beyond those of `shape`, as assignment does, and check that the rest broadcasts."""
    extra = max(value.ndim - len(shape), 0)
    fits = value.shape[:extra] == (1,) * extra and all(
        length in (1, wanted) for length, wanted in zip(reversed(value.shape[extra:]), reversed(shape), strict=False)
    )
    if not fits:
        raise GraphError(f"fill() cannot spread a value of shape {value.shape} over an array of shape {shape}")
    return value.reshape(value.shape[extra:])
