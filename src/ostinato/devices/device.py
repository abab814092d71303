"""What a device is to the rest of the package, which ones there are, and what they tell of failures."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from ostinato import _core
from ostinato.errors import DeviceError

if TYPE_CHECKING:
    from ostinato.devices.array import Allocation, DeviceArray


class Stream:
    """The stream of a device: the annotation of a parameter that receives one, and what it then receives.

    A task with a parameter annotated so starts its work on that stream, in stream order, and returns without waiting
    for it. Calls leave the parameter out: which stream it is, is the program's business. On CUDA, streams have
    ``__cuda_stream__``, so that libraries take them as they are; on OpenCL, they have the command queue as ``queue``.
    Type checkers, too, let calls leave it out where it comes first.

    Attributes
    ----------
    handle
        The device's own name for the stream: a ``CUstream``, a ``cl_command_queue``.

    Examples
    --------
    >>> import ostinato as ost
    >>> @ost.task
    ... def scale(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor=2.0):
    ...     from mykernels import scale_kernel
    ...     scale_kernel[src.size, stream](src, dst, factor)
    >>> scale.__name__
    'scale'
    """

    __slots__ = ("handle",)

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.handle:#x}>"


class Device(Protocol):
    """A device, one object for each and process.

    Attributes
    ----------
    name
        As processors are called: ``"opencl:0"``.
    kind
        ``"cuda"``, ``"opencl"``.
    identity
        What names the device for all processes of this host: a UUID, or platform and device.
    model
        What devices that are equally fast have in common: what was measured on one counts for the others.
    driver
        Its version: what was measured with another may no longer be true.
    core
        What the core asks of it.
    arrays
        The class of the arrays in its memory.
    """

    name: str
    kind: str
    identity: str
    model: str
    driver: str

    @property
    def core(self) -> _core.devices.Device: ...

    @property
    def arrays(self) -> type[DeviceArray]: ...

    def allocate(self, nbytes: int) -> Allocation:
        """Return new memory. `DeviceError`: there is not so much."""
        ...

    def adopt(self, obj: object) -> DeviceArray | None:
        """Return the array in its memory that an object of another library is, without a copy; None where it is none.

        Objects that share memory get arrays of one allocation.
        """
        ...

    def stream(self, handle: int) -> Stream:
        """Return what a task's `Stream` parameter receives."""
        ...

    def in_turn(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what calls a function that puts work on a stream; where libraries need it, one call at a time."""
        ...

    def pin(self, low: int, high: int) -> object | None:
        """Page-lock the host memory between two addresses for as long as what is returned lives; None: cannot."""
        ...

    def finish(self) -> None:
        """Wait for all work of the device, without the GIL."""
        ...


# Where each kind is found, and the package that it needs; in the order in which machines list them. Each module has
# `devices() -> Sequence[Device]`, empty where there is no driver; it raises where there is one that does not work.
KINDS = {"cuda": ("ostinato.devices.cuda", "ostinato"), "opencl": ("ostinato.devices.opencl", "pyopencl")}
# What helps who has no driver of a kind.
_ADVICE = {"opencl": "there is no driver (one that runs on the CPU: pip install pocl-binary-distribution)"}
_FORKED = "this process was forked after the devices were first used"

_lock = threading.Lock()
_found: dict[str, tuple[Device, ...]] = {}
_why_not: dict[str, str] = {}
_found_by = os.getpid()
_of_the_parent: list[Device] = []
_lost: WeakSet[Device] = WeakSet()
_given: tuple[Device, ...] | None = None


def usable(kind: str | None = None) -> tuple[Device, ...]:
    """Return the devices of a kind that this process can use, or those of all kinds, CUDA's first.

    They are looked for once. A kind whose driver is broken is left out, and told of by a warning.

    Examples
    --------
    >>> usable("abacus")
    ()
    """
    if _given is not None:
        return tuple(device for device in _given if kind in (None, device.kind))
    kinds = KINDS if kind is None else [kind] if kind in KINDS else []
    with _lock:
        _forget_those_of_the_parent()
        for name in kinds:
            if name not in _found:
                _found[name] = _find(name)
        return tuple(device for name in kinds for device in _found[name])


def reasons() -> dict[str, str]:
    """Return why there are no devices of a kind, where there is more to say than that."""
    return dict(_why_not) if _given is None else {}


def format_reasons() -> str:
    """Return them as what may end a message that misses a device."""
    return "".join(f"; {kind}: {why}" for kind, why in reasons().items())


def check_here(device: Device) -> None:
    """Raise `DeviceError` for a device that was found before this process was forked: it would never answer."""
    if _is_of_the_parent(device):
        raise _unusable(device, f"{device.name} cannot be used here: {_FORKED}")


def check_usable(device: Device) -> None:
    """Raise `DeviceError` for a device that does no more work in this process."""
    check_here(device)
    if device in _lost:
        raise _unusable(device, f"{device.name} failed before, and cannot be used any more in this process")


def is_usable(device: Device) -> bool:
    """Whether a device that was found still works in this process, as far as it has told."""
    return device not in _lost and not _is_of_the_parent(device)


def lose(device: Device) -> None:
    """Note that a device has told an error after which it does no more work in this process."""
    _lost.add(device)


@contextmanager
def using(devices: Sequence[Device]) -> Iterator[None]:
    """Within this, the devices given are all there are."""
    global _given
    before, _given = _given, tuple(devices)
    try:
        yield
    finally:
        _given = before


def _is_of_the_parent(device: Device) -> bool:
    return any(device is other for other in _of_the_parent)


def _unusable(device: Device, why: str) -> DeviceError:
    error = DeviceError(why)
    error.device, error.usable = device.name, False
    return error


def _find(kind: str) -> tuple[Device, ...]:
    module, needed = KINDS[kind]
    if find_spec(needed) is None:
        _why_not[kind] = f"{needed} is not installed (pip install 'ostinato[{kind}]')"
        return ()
    try:
        found = import_module(module).devices()
    except Exception as error:  # a driver may raise anything
        _why_not[kind] = f"{type(error).__name__}: {error}"
        warnings.warn(f"{kind} devices are left out: {_why_not[kind]}", RuntimeWarning, stacklevel=4)
        return ()
    if not found and kind in _ADVICE:
        _why_not[kind] = _ADVICE[kind]
    return tuple(found)


def _forget_those_of_the_parent() -> None:
    """In a forked child, drivers that the parent has used do not work: their threads are the parent's."""
    global _found_by
    if _found_by == os.getpid():
        return
    for kind, devices in _found.items():
        if devices:
            _found[kind] = ()
            _why_not[kind] = _FORKED
    _found_by = os.getpid()


def _begin_in_a_child() -> None:
    global _lock
    _lock = threading.Lock()
    _of_the_parent.extend(device for devices in _found.values() for device in devices)


os.register_at_fork(after_in_child=_begin_in_a_child)


def failure(device: Device, message: str, usable: bool) -> DeviceError:
    """Return the error that tells of a failure; note a device that cannot be used afterwards.

    Parameters
    ----------
    device
        The device that failed.
    message, usable
        As its driver tells: ``device.core.diagnose(code)``.
    """
    error = DeviceError(f"{device.name}: {message}")
    error.device, error.usable = device.name, usable
    if not usable:
        lose(device)
    return error


@contextmanager
def translate_failures(device: Device, doing: str = "") -> Iterator[None]:
    """Within this, failures that the driver reports at once are raised as `DeviceError`.

    Parameters
    ----------
    device
        The device that is called.
    doing
        What the message begins with.
    """
    try:
        yield
    except _core.devices.Failure as told:
        raise failure(device, f"{doing}{told}", told.usable) from told
