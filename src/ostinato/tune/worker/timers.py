"""Timing single calls on the processor: what disturbs them, and what is subtracted."""

from __future__ import annotations

import os
import resource
import time
from _collections import deque  # type: ignore[import-not-found]  # the package around it takes 1 ms to import
from itertools import repeat, starmap

from ostinato.tune.worker.channel import moved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


_CPUS = "/sys/devices/system/cpu"
_MOST = 64 << 20  # a server's cache of hundreds of MiB takes longer to fill than most candidates run
_UNKNOWN = 32 << 20
_PIECE = 256 << 10  # memcpy of more than this may go past the caches: it would leave them as they are


def last_level_bytes(cpus: str = _CPUS) -> int:
    """Return the size of the largest cache of the first core that this process may use."""
    core = min(os.sched_getaffinity(0))
    directory = f"{cpus}/cpu{core}/cache"
    largest = 0
    try:
        for index in os.listdir(directory):
            if index.startswith("index"):
                with open(f"{directory}/{index}/size", encoding="ascii") as file:
                    text = file.read().strip()
                largest = max(largest, int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]])
    except (OSError, ValueError, KeyError, IndexError):
        pass
    return largest or _UNKNOWN


class Flusher:
    """Called, it writes a buffer as large as the last-level cache, up to 64 MiB."""

    __slots__ = ("_buffer", "_piece")

    def __init__(self) -> None:
        size = min(last_level_bytes(), _MOST)
        self._buffer = memoryview(bytearray(-(-size // _PIECE) * _PIECE))
        self._piece = memoryview(bytes(_PIECE))

    def __call__(self) -> None:
        buffer, piece = self._buffer, self._piece
        for begin in range(0, len(buffer), _PIECE):
            buffer[begin : begin + _PIECE] = piece


_SWITCH = 1_000_000  # ns that one involuntary switch is taken for where the kernel does not count them


class Preemption:
    """Counts the time for which the thread that made it waited for a core."""

    __slots__ = ("_close", "_descriptor", "_pread", "_usage")

    def __init__(self) -> None:
        self._pread, self._close, self._usage = os.pread, os.close, resource.getrusage
        self._descriptor = -1
        try:
            self._descriptor = moved(os.open("/proc/thread-self/schedstat", os.O_RDONLY))
            self.waited()
        except (OSError, ValueError, IndexError):
            self._descriptor = -1

    def waited(self) -> int:
        """Return the ns so far."""
        if self._descriptor >= 0:
            try:
                return int(self._pread(self._descriptor, 80, 0).split()[1])
            except OSError:  # a candidate closed it
                self._descriptor = -1
        return self._usage(resource.RUSAGE_THREAD).ru_nivcsw * _SWITCH

    def close(self) -> None:
        """Close what it reads from; a worker need not, which ends."""
        if self._descriptor >= 0:
            self._close(self._descriptor)
            self._descriptor = -1


def before_sample(call: object, flush: Callable[[], None] | None = None) -> Callable[[], None] | None:
    """Return what is called before each sample: the callable's own ``before_sample``, then `flush`; None: nothing."""
    own = getattr(call, "before_sample", None)
    if own is None:
        return flush
    if not callable(own):
        raise TypeError(f"before_sample must be a function, got {own!r}")
    if flush is None:
        return own  # type: ignore[no-any-return]

    def both() -> None:
        own()
        flush()

    return both


def calls_per_sample(call: object) -> int:
    """Return how many calls one call of a callable stands for; 1 unless it says otherwise."""
    said = getattr(call, "calls_per_sample", 1)
    if not hasattr(said, "__index__") or said < 1:
        raise TypeError(f"calls_per_sample must be a positive integer, got {said!r}")
    return int(said)


_now = time.perf_counter_ns  # candidates may replace what they find in the module
_TIMES_OVERHEAD = 20  # of a sample, at least, so that an error in the overhead is a twentieth of it
_TIMES_WARM = 10  # a first call may take so many times as long as the others, without compiling anything


def empty() -> None:
    """What the overhead is measured with."""


def middle(values: list[float]) -> float:
    """Return the median of an odd number of values."""
    values.sort()
    return values[len(values) // 2]


def _timed(call: Callable[[], Any]) -> int:
    begin = _now()
    call()
    return _now() - begin


def _timed_batch(call: Callable[[], Any], count: int) -> int:
    # The loop is the interpreter's C code: one in Python runs at a speed that depends on what it called before.
    arguments = repeat((), count)
    calls = starmap(call, arguments)
    begin = _now()
    deque(calls, 0)
    end = _now()
    if arguments.__length_hint__():
        raise RuntimeError("the callable raised StopIteration")  # which ends such a loop like any other
    return end - begin


class CpuTimer:
    """Times one callable after the other; made once per worker, as it measures what an empty call takes.

    `overhead` is the ns of an empty call, timed as the last sample was, which are taken off. A time below `resolution`
    (ns) says nothing of the candidate, since empty calls of different kinds (functions, methods, builtins) differ by as
    much: it is reported as this.
    """

    __slots__ = ("_call", "_count", "_fixed", "_per_call", "_single", "overhead", "resolution")

    def __init__(self) -> None:
        self._single = middle([_timed(empty) for _ in range(101)])
        one = middle([_timed_batch(empty, 1) for _ in range(51)])
        many = middle([_timed_batch(empty, 101) for _ in range(21)])
        self._per_call = max((many - one) / 100, 1.0)
        self._fixed = max(one - self._per_call, 0.0)
        self.resolution = max(self._single / 4, 1.0)
        self.begin(empty, True)

    def begin(self, call: Callable[[], Any], single: bool) -> None:
        """Set what is timed from here on: singly, or else in batches if one call is too short for that."""
        self._call = call
        self._count = 1 if single else 0  # 0: not known yet
        self.overhead = self._single

    def take(self) -> tuple[float, int]:
        """Return the ns of one call, and those that the sample took."""
        if self._count < 2:
            whole = _timed(self._call)
            shortest = _TIMES_OVERHEAD * self._single
            if self._count or whole >= _TIMES_WARM * shortest or not self._is_batched(shortest):
                self._count = 1
                return max(whole - self._single, self.resolution), whole
        whole = _timed_batch(self._call, self._count)
        return max(whole / self._count - self.overhead, self.resolution), whole

    def end(self) -> None:
        """Forget the callable: what it holds would be in memory beside the next one's."""
        self._call = empty

    def _is_batched(self, shortest: float) -> bool:
        once = min(_timed(self._call), _timed(self._call))  # by now its code is in the cache
        if once >= shortest:
            return False
        self._count = 1 + int(shortest / (max(once - self._single, 0.0) + self._per_call))
        self.overhead = self._per_call + self._fixed / self._count
        _timed_batch(self._call, self._count)  # the first is slow: the loop's code comes from memory
        return True
