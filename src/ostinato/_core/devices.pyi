"""What the core asks of devices."""

from collections.abc import Callable, Sequence as _Sequence


class Transfer:
    """A copy, planned once: places (base, offset, on_device) and blocks."""

    def __init__(self, source: tuple[int, int, bool], target: tuple[int, int, bool], blocks: _Sequence[_Sequence[int]]) -> None: ...

    @property
    def bytes(self) -> int:
        """The bytes that move."""

class Pattern:
    """A fill, planned once."""

    def __init__(self, target: tuple[int, int, bool], blocks: _Sequence[_Sequence[int]], pattern: bytes) -> None: ...

class Token:
    """What was enqueued on a stream when it was recorded."""

    def __init__(self) -> None: ...

class Sequence:
    """Work that was captured once, and is enqueued as one."""

class Device:
    """
    What the core asks of a device. Methods raise RuntimeError with its words.
    """

    def open(self) -> int:
        """Open a stream."""

    def close(self, stream: int) -> None:
        """Close a stream."""

    def copy(self, stream: int, transfer: Transfer) -> None: ...

    def fill(self, stream: int, pattern: Pattern) -> None: ...

    def record(self, stream: int, token: Token) -> None: ...

    def wait(self, stream: int, token: Token) -> None: ...

    def notify(self, token: Token, done: Callable) -> None:
        """Call done(code) when the token's work has ended."""

    def capture(self, stream: int, enqueue: Callable) -> "std::unique_ptr<ostinato::Sequence, std::default_delete<ostinato::Sequence> >":
        """Capture what enqueue(recording) enqueues; None: cannot."""

    def launch(self, stream: int, sequence: Sequence) -> None: ...

    def diagnose(self, code: int) -> tuple[str, bool]:
        """What a code means, and whether the device can be used afterwards."""
