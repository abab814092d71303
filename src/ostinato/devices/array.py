"""Arrays in the memory of devices."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.devices import registry
from ostinato.devices.device import check_here, failure
from ostinato.devices.registry import Reserved, bytes_at, view_of
from ostinato.devices.transfers import move, plan
from ostinato.devices.views import Taken, Viewed, view_index
from ostinato.errors import ContractError

if TYPE_CHECKING:
    from ostinato.devices.device import Device


class Allocation:
    """A piece of a device's memory, and the addresses of this process that stand for it.

    Parameters
    ----------
    device
        Whose memory it is.
    base
        What the device knows it by: a ``CUdeviceptr``, a ``cl_mem``.
    nbytes
        Its size.
    owner
        What keeps it alive, and gives it back when nobody holds it any more.
    address
        The first of the addresses that stand for it, where the device's own are unique in this process. None: some are
        reserved.
    readonly
        Whether arrays in it may only be read.

    Attributes
    ----------
    address
        The first of the addresses that stand for it. Nothing may be read or written there.
    """

    __slots__ = ("__weakref__", "address", "base", "device", "nbytes", "owner", "readonly")

    def __init__(
        self,
        device: Device,
        base: int,
        nbytes: int,
        owner: object,
        address: int | None = None,
        readonly: bool = False,
    ) -> None:
        reserved = Reserved(nbytes) if address is None else None
        self.device = device
        self.base = base
        self.nbytes = nbytes
        self.owner = owner
        self.readonly = readonly
        self.address = reserved.address if reserved is not None else operator.index(address)  # type: ignore[arg-type]
        registry.add(self, reserved)

    def array(
        self,
        shape: int | tuple[int, ...],
        dtype: npt.DTypeLike = float,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
    ) -> DeviceArray:
        """Return an array in this memory.

        Parameters
        ----------
        shape, dtype, strides
            As for `numpy.ndarray`.
        offset
            How many bytes before its first element.
        """
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            raise TypeError(f"an array of dtype {dtype} holds Python objects, which have no place on a device")
        shape = tuple(map(operator.index, shape)) if isinstance(shape, tuple | list) else (operator.index(shape),)
        raw = bytes_at(self.address, self.nbytes, self, self.readonly)
        return self.view(view_of(raw, offset, shape, dtype, strides))

    def view(self, proxy: np.ndarray[Any, Any]) -> DeviceArray:
        """Return the array that a proxy in this allocation stands for."""
        return self.device.arrays(proxy, self)

    def __repr__(self) -> str:
        return f"<Allocation of {self.nbytes} bytes on {self.device.name}>"


def empty(device: Device, shape: int | tuple[int, ...], dtype: npt.DTypeLike = float) -> DeviceArray:
    """Return a new array in the memory of a device, its contents undefined."""
    dtype = np.dtype(dtype)
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if any(operator.index(size) < 0 for size in sizes):
        raise ValueError("negative dimensions are not allowed")
    if dtype.hasobject:
        raise TypeError(f"an array of dtype {dtype} holds Python objects, which have no place on a device")
    nbytes = prod(map(operator.index, sizes)) * dtype.itemsize
    if nbytes > sys.maxsize:  # drivers would take the lower bits for it
        raise failure(device, f"{nbytes} bytes cannot be allocated: no memory has so many", usable=True)
    check_here(device)
    return device.allocate(nbytes).array(sizes, dtype)


class DeviceArray(Viewed):
    """An array in the memory of a device. Tasks take it like any other array; plain Python copies it with `get`.

    ``array[1:, ::-2]`` is a view, with integers, slices, ``...``, `numpy.newaxis` and names of fields; so are ``T``,
    `transpose`, `swapaxes`, `squeeze`, `view`, and a `reshape` that needs no copy. Nothing else of NumPy works on it:
    its bytes are not where Python could read them.

    Parameters
    ----------
    proxy
        An array of the same shape, dtype and strides, at the addresses that stand for the device's.
    allocation
        The memory that it lies in.
    """

    __slots__ = ("__weakref__", "allocation", "proxy")

    proxy: np.ndarray[tuple[int, ...], np.dtype[Any]]
    is_ostinato_device_array = True

    def __init__(self, proxy: np.ndarray[Any, Any], allocation: Allocation) -> None:
        self.proxy = proxy
        self.allocation = allocation

    @property
    def device(self) -> Device:
        """The device whose memory it lies in."""
        return self.allocation.device

    @property
    def handle(self) -> int:
        """What the device knows the memory by: on CUDA the address of the first element, on OpenCL the ``cl_mem``."""
        return self.allocation.base

    @property
    def pointer(self) -> int:
        """What C code gets for it: the address of the first element where the device has addresses, else the handle.

        Raises
        ------
        ValueError
            The device has none, and the array begins behind its memory's beginning.
        """
        allocation = self.allocation
        if allocation.base == allocation.address:
            return registry.address_of(self.proxy)
        if self.offset:
            raise ValueError(
                f"an array on {self.device.name} reaches C code by its handle, which has no offset: "
                "pass one that begins where its memory does"
            )
        return allocation.base

    @property
    def offset(self) -> int:
        """How many bytes of the allocation come before the first element."""
        offset = registry.address_of(self.proxy) - self.allocation.address
        return min(offset, self.allocation.nbytes)  # where nothing is, NumPy lets views point behind the end

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an ndarray."""
        return self.proxy.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """As of an ndarray."""
        return self.proxy.dtype

    @property
    def strides(self) -> tuple[int, ...]:
        """As of an ndarray: in bytes."""
        return self.proxy.strides

    @property
    def ndim(self) -> int:
        """As of an ndarray."""
        return self.proxy.ndim

    @property
    def size(self) -> int:
        """As of an ndarray: how many elements."""
        return self.proxy.size

    @property
    def itemsize(self) -> int:
        """As of an ndarray: bytes of an element."""
        return self.proxy.itemsize

    @property
    def nbytes(self) -> int:
        """As of an ndarray: bytes of all elements."""
        return self.proxy.nbytes

    def get(self) -> np.ndarray[Any, Any]:
        """Return a copy in the memory of the host. Waits for that copy, and for nothing else that the device does.

        Raises
        ------
        ContractError
            A task that takes a stream called this for an array of its program, on which streams are at work.
        """
        self._check_settled("get")
        copy = np.empty(self.shape, self.dtype)
        move(self.device, plan(self.proxy, copy), self, copy)
        return copy

    def set(self, values: npt.ArrayLike) -> None:
        """Copy values from the memory of the host, as ``array[...] = values`` would; waits like `get`.

        Parameters
        ----------
        values
            What NumPy can broadcast to this shape and cast to this dtype.

        Raises
        ------
        ContractError
            As of `get`.
        """
        self._check_settled("set")
        if not self.proxy.flags.writeable:
            raise ValueError("this array is read-only")
        source = np.empty(self.shape, self.dtype)
        source[...] = values
        move(self.device, plan(source, self.proxy), self, source)

    def _check_settled(self, method: str) -> None:
        """Refuse to look at what streams of the program are at work on: what is there depends on how fast they are."""
        allocation = self.allocation
        if _core.issues_for(allocation.address, allocation.address + allocation.nbytes):
            raise ContractError(
                f"array.{method}() inside a task that takes a stream: work on this array of the program may still be "
                f"under way on {self.device.name}. Use the array on the stream, or in a task without a stream"
            )

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.proxy[view_index(index)], self.allocation)

    def _taking(self, take: Callable[[Any], Any], taken: Taken) -> Self:
        return type(self)(take(self.proxy), self.allocation)

    def __len__(self) -> int:
        return len(self.proxy)

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self._lies_there()} for Python, which cannot see what it holds")

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        raise TypeError(f"{self._lies_there()} for NumPy")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"{self._lies_there()} to be sent, stored or copied")

    def _lies_there(self) -> str:
        return f"this array lies in the memory of {self.device.name}; array.get() is a copy of it"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.device.name}, shape {self.shape}, {self.dtype}>"
