"""Arrays by the addresses that stand for them."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from bisect import bisect_left, bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.devices.device import usable

if TYPE_CHECKING:
    from ostinato.devices.array import Allocation, DeviceArray


class Reserved:
    """Addresses of this process that nobody else gets while it lives. Writing there ends the process; zeros are read
    there, since debuggers and what shows tracebacks print the arrays that they come across.

    Parameters
    ----------
    nbytes
        How many. The address behind the last is reserved, too, so that empty views at the end belong to it.
    """

    __slots__ = ("_mapping", "address")

    def __init__(self, nbytes: int) -> None:
        self._mapping = mmap.mmap(-1, nbytes + 1, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
        # Its address, without touching it; the view would keep the mapping from being closed, which nobody does.
        self.address = int(np.frombuffer(self._mapping, np.uint8).__array_interface__["data"][0])


class Memory:
    """Memory at an address, as NumPy takes it, which keeps its owner alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, nbytes: int, owner: object, readonly: bool) -> None:
        self.__array_interface__ = {"version": 3, "data": (address, readonly), "shape": (nbytes,), "typestr": "|u1"}
        self.owner = owner


def bytes_at(address: int, nbytes: int, owner: object, readonly: bool = False) -> npt.NDArray[np.uint8]:
    """Return the bytes at an address as an array, without touching them; it keeps `owner` alive."""
    return np.asarray(Memory(address, nbytes, owner, readonly))


def view_of(
    raw: npt.NDArray[np.uint8],
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    strides: tuple[int, ...] | None = None,
) -> np.ndarray[Any, Any]:
    """Return an array whose first element is at `offset` of the bytes, without touching them."""
    if 0 in shape:  # NumPy checks no more than that; `offset` may be the end
        return np.ndarray(shape, dtype, raw, min(offset, raw.size), strides)
    return np.ndarray(shape, dtype, raw, offset, strides)


DLPACK_CUDA = frozenset({2, 13})  # its memory, and memory that it shares with the host


class _Ranges:
    """Allocations by the addresses that stand for them. They go when nobody else holds them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._starts: list[int] = []  # sorted; as often as there are allocations
        self._at: dict[int, list[weakref.ref[Allocation]]] = {}
        self._of: dict[tuple[str, int], weakref.ref[Allocation]] = {}
        self._kept: dict[weakref.ref[Allocation], tuple[int, tuple[str, int], object]] = {}
        # What died: any thread may find so at any moment, the lock held or not.
        self._dead: deque[weakref.ref[Allocation]] = deque()
        self._longest = 0

    def add(self, allocation: Allocation, reserved: object) -> None:
        """Make an allocation known; `reserved` is kept as long as it lives, and its address may still be found."""
        key = (allocation.device.name, allocation.base)
        with self.lock:
            self._purge()
            reference = weakref.ref(allocation, self._dead.append)
            insort(self._starts, allocation.address)
            self._at.setdefault(allocation.address, []).append(reference)
            self._of[key] = reference
            self._kept[reference] = (allocation.address, key, reserved)
            self._longest = max(self._longest, allocation.nbytes)

    def __bool__(self) -> bool:
        return bool(self._starts)  # those that died since may count

    def at(self, address: int) -> Allocation | None:
        """Return the allocation that an address stands for; None where it is memory of the host."""
        if not self._starts:
            return None
        with self.lock:
            if self._dead:
                self._purge()
            index = bisect_right(self._starts, address)
            while index > 0:
                index = bisect_left(self._starts, self._starts[index - 1])
                start = self._starts[index]
                if start + self._longest < address:
                    break
                for reference in reversed(self._at[start]):
                    allocation = reference()
                    if allocation is not None and address <= start + allocation.nbytes:
                        return allocation
        return None

    def of(self, name: str, base: int) -> Allocation | None:
        """Return the allocation of the device called `name` that it knows by `base`, if it is in use."""
        with self.lock:
            reference = self._of.get((name, base))
        return None if reference is None else reference()

    def _purge(self) -> None:
        while self._dead:
            reference = self._dead.popleft()
            start, key, _ = self._kept.pop(reference)  # what was reserved may be given away from here on
            self._at[start].remove(reference)
            if not self._at[start]:
                del self._at[start]
            del self._starts[bisect_left(self._starts, start)]
            if self._of.get(key) is reference:
                del self._of[key]


_ranges = _Ranges()
add, allocation_at, allocation_of = _ranges.add, _ranges.at, _ranges.of
os.register_at_fork(
    before=_ranges.lock.acquire, after_in_parent=_ranges.lock.release, after_in_child=_ranges.lock.release
)


def any_allocations() -> bool:
    """Whether memory of any device is in use in this process."""
    return bool(_ranges)


def allocation_under(array: np.ndarray[Any, Any]) -> Allocation | None:
    """Return the allocation that an array lies in; None where that is memory of the host."""
    if array.size == 0:  # where nothing is, NumPy lets views point behind the end
        base: Any = array
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, Memory):
            return base.owner  # type: ignore[return-value]
    return allocation_at(address_of(array))


def device_array(proxy: np.ndarray[Any, Any]) -> DeviceArray:
    """Return the array of a device that a proxy stands for.

    Raises
    ------
    ValueError
        It is memory of the host.
    """
    allocation = allocation_under(proxy)
    if allocation is None:
        raise ValueError("this array lies in memory of the host")
    return allocation.view(proxy)


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Return where an array's first element is."""
    return _core.passes.address(array)


def adopt(obj: object) -> DeviceArray | None:
    """Return the array of a device that `obj` is, whichever library made it; None for everything else."""
    kind = _kind_of(obj)
    if kind is None:
        return None
    if kind == "ours":
        return obj  # type: ignore[return-value]
    for device in usable(kind):
        array = device.adopt(obj)
        if array is not None:
            return array
    return None


def _kind_of(obj: Any) -> str | None:
    of = type(obj)
    if of is np.ndarray or of in _PLAIN:
        return None
    if hasattr(of, "is_ostinato_device_array"):
        return "ours"
    module = of.__module__.partition(".")[0]
    if module == "pyopencl":
        return "opencl"
    if (kind := getattr(of, "ostinato_device_kind", None)) is not None:
        return str(kind)  # of a kind of device that is not one of ours
    if module == "numpy":
        return None
    if hasattr(of, "__cuda_array_interface__"):
        # PyTorch's tensors have the attribute wherever they lie.
        return "cuda" if hasattr(obj, "__cuda_array_interface__") else None
    if hasattr(of, "__dlpack_device__"):
        return "cuda" if int(obj.__dlpack_device__()[0]) in DLPACK_CUDA else None
    return None


_PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None), list, tuple, dict, set})
