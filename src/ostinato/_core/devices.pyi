"""What the core asks of devices."""

from collections.abc import Callable, Sequence as _Sequence

from typing_extensions import CapsuleType


class Failure(RuntimeError):
    """
    What a device has told, in its driver's words; `usable`: whether it can be used afterwards.
    """

    usable: bool = True

def end() -> None:
    """
    Before the interpreter ends: waits until devices have called all functions that they were given.
    """

class Transfer:
    """A copy, planned once: addresses (base, offset, on_device) and blocks."""

    def __init__(self, source: tuple[int, int, bool], target: tuple[int, int, bool], blocks: _Sequence[_Sequence[int]]) -> None: ...

    @property
    def bytes(self) -> int:
        """The bytes that move."""

class Pattern:
    """A fill, planned once."""

    def __init__(self, target: tuple[int, int, bool], blocks: _Sequence[_Sequence[int]], pattern: bytes) -> None: ...

class DeviceEvent:
    """What was enqueued on a stream when it was recorded."""

    def __init__(self) -> None: ...

class Sequence:
    """Work that was captured once, and is enqueued as one."""

class Device:
    """What the core asks of a device. Methods raise Failure."""

    def open(self) -> int:
        """Open a stream."""

    def close(self, stream: int) -> None:
        """Close a stream."""

    def copy(self, stream: int, transfer: Transfer) -> None: ...

    def fill(self, stream: int, pattern: Pattern) -> None: ...

    def record(self, stream: int, event: DeviceEvent) -> None: ...

    def wait(self, stream: int, event: DeviceEvent) -> None: ...

    def finish_stream(self, stream: int) -> None:
        """Wait for all that was enqueued on a stream."""

    def notify(self, event: DeviceEvent, done: Callable) -> None:
        """Call done(code) when the event's work has ended."""

    def capture(self, stream: int, enqueue: Callable, after: _Sequence[_Sequence[int]] = []) -> Sequence:
        """
        Capture what enqueue(recording) enqueues; None: cannot. With `after`, in parts, by enqueue(recording, part): which earlier parts each comes after.
        """

    def launch(self, stream: int, sequence: Sequence) -> None: ...

    def diagnose(self, code: int) -> tuple[str, bool]:
        """What a code means, and whether the device can be used afterwards."""

class Stream:
    """
    A stream, open while something refers to it. `name` says whose it is; `processor` is the device's number in records, after those of the slots.
    """

    def __init__(self, device: Device, name: str, processor: int) -> None: ...

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """
        What was enqueued: tasks and fills, copies, and the bytes of these; how often several as one.
        """

    @property
    def handle(self) -> int:
        """The driver's handle."""

class OpenCLDevice(Device):
    """A device of OpenCL, in a context."""

    def __init__(self, library: str, context: int, device: int) -> None:
        """
        From the path of a loaded library that is linked with OpenCL's loader, and two of OpenCL's handles.
        """

    def finish(self) -> None:
        """Wait for all that was enqueued on its streams."""

class CudaMemory:
    """Memory of a CUDA device; freed when nothing refers to it."""

    @property
    def address(self) -> int:
        """Where it is: a CUdeviceptr."""

class CudaPinned:
    """Page-locked host memory, while it lives."""

class CudaDevice(Device):
    """A CUDA device, by its primary context."""

    @property
    def ordinal(self) -> int:
        """CUDA's number of it."""

    @property
    def model(self) -> str:
        """What it is."""

    @property
    def identity(self) -> str:
        """
        Its UUID, as nvidia-smi -L lists it; empty where the driver tells none.
        """

    @property
    def driver(self) -> int:
        """The version of CUDA that the driver is for: 12040 is 12.4."""

    def allocate(self, bytes: int) -> CudaMemory:
        """Allocate memory."""

    def memory(self) -> tuple[int, int]:
        """The free and all bytes of its memory."""

    def pin(self, low: int, high: int) -> CudaPinned | None:
        """
        Page-lock host memory from one address to before another; None: cannot be.
        """

    def locate(self, address: int) -> tuple[int, int, int]:
        """
        The number of the device that an address is of, and the begin and the size of the allocation around it.
        """

    def finish(self) -> None:
        """Wait for all of its work."""

def cuda_devices(library: str) -> tuple[list[CudaDevice], str]:
    """
    The devices of a CUDA driver, and what is wrong with it: empty where there is none.
    """

def dlpack(address: int, shape: _Sequence[int], strides: _Sequence[int], code: int, bits: int, ordinal: int, owner: object) -> object:
    """Something with __dlpack__, of CUDA memory."""

def described(capsule: CapsuleType) -> tuple[int, list[int], list[int], int, int, int, int, bool]:
    """What a capsule of DLPack says, which is used up."""
