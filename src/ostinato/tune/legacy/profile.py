"""Commands and their results, as the runner of AITemplate has them."""

from __future__ import annotations

import logging
import math
import os
import shlex
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from statistics import median
from typing import Any, NamedTuple

from ostinato.errors import DeviceError
from ostinato.text import one_line
from ostinato.tune.leases import cuda, hip
from ostinato.tune.leases.device import Device
from ostinato.tune.leases.gpu import Gpu, resolve
from ostinato.tune.leases.lock_file import Holder
from ostinato.tune.legacy.command_queue import CommandQueue, Job
from ostinato.tune.outcome import OpOutcome, Status
from ostinato.tune.workers.protocol import BadLine, OldLine, OldLines, Reading, nameless, read_lines

_logger = logging.getLogger("ostinato.profiler_runner")
_MOST_LINES = 200_000  # so that who prints them without end takes no memory without end


class ProfileResult(NamedTuple):
    """What a profiler said of one op. Results order by duration: the least is the fastest; without one, the last.

    Attributes
    ----------
    op_config
        The op's name; empty if it has none.
    duration
        Milliseconds, as they were printed: of all the runs that the profiler makes, where it prints their sum. 0 if the
        profiler reports a workspace only.
    workspace
        Bytes.

    Examples
    --------
    >>> min(ProfileResult("tile_16", 0.5, 0), ProfileResult("tile_32", 0.25, 64)).op_config
    'tile_32'
    """

    op_config: str
    duration: float
    workspace: int

    def __lt__(self, other: tuple[object, ...]) -> bool:
        return _rank(self) < _rank(other) if isinstance(other, ProfileResult) else NotImplemented

    def __le__(self, other: tuple[object, ...]) -> bool:
        return _rank(self) <= _rank(other) if isinstance(other, ProfileResult) else NotImplemented

    def __gt__(self, other: tuple[object, ...]) -> bool:
        return _rank(self) > _rank(other) if isinstance(other, ProfileResult) else NotImplemented

    def __ge__(self, other: tuple[object, ...]) -> bool:
        return _rank(self) >= _rank(other) if isinstance(other, ProfileResult) else NotImplemented


Found = ProfileResult | list[ProfileResult] | None


def extract_profile_result(stdout: object, return_ops: Sequence[str] | None = None) -> tuple[Found, bool]:
    """Read what a profiler printed.

    A record ``OP:name,TIME:ms,WS:bytes`` counts, wherever it stands, if its time is positive and finite. Where nothing
    begins so, the least ``TIME:ms`` counts, wherever it is, with an empty name. A time of zero counts beside a
    workspace that is not zero: only the workspace is known.

    Parameters
    ----------
    stdout
        All that it printed; what is no `str` says nothing.
    return_ops
        Names of ops.

    Returns
    -------
    result
        The fastest; with `return_ops` every result of these ops, in the order of the output; None if there is none. A
        result without a name stands for the op, if `return_ops` is only one.
    failed
        Whether there is none.

    Examples
    --------
    >>> stdout = "OP:a,TIME:0.5,WS:16\\nOP:b,TIME:2.5e-1,WS:0\\nOP:c,TIME:nan,WS:0\\n"
    >>> extract_profile_result(stdout)
    (ProfileResult(op_config='b', duration=0.25, workspace=0), False)
    >>> extract_profile_result(stdout, return_ops=["a"])
    ([ProfileResult(op_config='a', duration=0.5, workspace=16)], False)
    >>> extract_profile_result(stdout, return_ops=["c"])
    (None, True)
    >>> extract_profile_result("TIME:0\\nWS:4096\\n")
    (ProfileResult(op_config='', duration=0.0, workspace=4096), False)
    """
    if not isinstance(stdout, str):
        return None, True
    good, bad = read_lines(stdout)
    result = choose(_results(good, bad, nameless(stdout)), return_ops)
    cut = [_said(line) for line in bad if not line.op]  # whose they were, nobody can see by what is missing
    if result is not None and cut:
        _logger.warning("%s", left_out(cut))
    return result, result is None


class Profile:
    """Reads what a command reports: by descriptor, or else as old lines."""

    def __init__(self) -> None:
        self.bad: list[str] = []
        """What made no sense, or failed."""
        self._reading = Reading()
        self._old_lines = OldLines()
        self._lines: list[OldLine | BadLine] = []
        self.results: list[ProfileResult] = []

    @property
    def problem(self) -> str:
        return self._reading.problem or next(iter(self.bad), "")

    def reported(self, data: bytes) -> None:
        self._reading.reported(data)

    def printed(self, data: bytes) -> None:
        if len(self._lines) < _MOST_LINES:
            self._lines += self._old_lines.feed(data)

    def finish(self, died: tuple[Status, str] | None = None) -> tuple[OpOutcome, ...]:
        """Return what became of each op; of a command that died, nothing."""
        if died is not None:
            return ()
        ops = self._reading.finish()
        if ops:
            well = [op for op in ops if op.status is Status.OK]
            self.results = [ProfileResult(op.op, median(op.samples) * 1e-6, op.workspace) for op in well]
            self.bad = [f"{op.op}: {op.status}: {op.message}" for op in ops if op.status is not Status.OK]
            return ops
        self._lines += self._old_lines.rest()
        good = [line for line in self._lines if isinstance(line, OldLine)]
        bad = [line for line in self._lines if isinstance(line, BadLine)]
        self.results = _results(good, bad, self._old_lines.nameless())
        self.bad = list(map(_said, bad))
        return tuple(
            OpOutcome(op, Status.OK, (ms * 1e6,) if ms else (), workspace) for op, ms, workspace in self.results
        )


def _results(good: Iterable[OldLine], bad: Sequence[BadLine], alone: OldLine | None) -> list[ProfileResult]:
    results = [ProfileResult(*line) for line in good]
    return [ProfileResult(*alone)] if not results and not bad and alone is not None else results


def left_out(bad: Sequence[str]) -> str:
    """Say what was no result, in a line."""
    more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"left out: {one_line(bad[0])}{more}"


def _said(line: BadLine) -> str:
    return f"{line.op or line.text[:100]}: {line.reason}"


def choose(results: Sequence[ProfileResult], return_ops: Sequence[str] | None) -> Found:
    """Return the fastest of some results; or those of `return_ops`, which one without a name may stand for."""
    if return_ops is None:
        return min(results, default=None)
    names = {return_ops} if isinstance(return_ops, str) else set(return_ops)
    if len(names) == 1 and [result.op_config for result in results] == [""]:
        return list(results)
    return [result for result in results if result.op_config in names] or None


def _rank(result: ProfileResult) -> tuple[float, int, str]:
    return result.duration or math.inf, result.workspace, result.op_config


def mask(ids: Sequence[int | str] | None = None) -> tuple[Device, ...]:
    """Return a device for each id; each selects its GPU in a child's environment by the id as it stands.

    Ids are indices or UUIDs; where there are none, they are those of this process's mask, or ``"0"`` if it has none. A
    GPU that is not known here, because there is no driver or none of that id, is leased by the id.
    """
    if isinstance(ids, str):
        raise TypeError(f"ids must be a list, got {ids!r}")
    kind, variable, allowed, gpus = _parent()
    names = [_id(value) for value in ids or ()]
    if not names:
        names = ["0"] if allowed is None else allowed
        if not names:
            raise DeviceError(f"{variable} hides every GPU from this process")
    devices: dict[str, Device] = {}
    for name in names:
        gpu = resolve(name, gpus)
        known = allowed is None or name in allowed or (gpu and gpu in [resolve(entry, gpus) for entry in allowed])
        if allowed is not None and not known:
            raise DeviceError(f"{name!r} is not in {variable}={','.join(allowed)}, the GPUs of this process")
        device = _device(kind, variable, name, gpu)
        other = devices.setdefault(device.identities[0], device)
        if other is not device:
            raise ValueError(f"a GPU must not be named twice, got {name!r} and {other.environment[variable]!r}")
    return tuple(devices.values())


def _parent() -> tuple[str, str, list[str] | None, list[Gpu]]:
    """Return the kind of GPU, the variable of its mask, the ids that this process may use, and all GPUs."""
    gpus = cuda.host_gpus()
    # Where no driver answers, the mask that is set says whose it is.
    masked_for_hip = hip.MASK in os.environ and cuda.MASK not in os.environ
    if not gpus and (hip.host_gpus() or masked_for_hip):
        amd = hip.runtime_gpus()
        text = hip.runtime_mask()
        if text is None and hip.RUNTIME_MASK in os.environ:
            text = ",".join(str(gpu.number) for gpu in amd)
        return "hip", hip.MASK, _entries(text), amd
    return "cuda", cuda.MASK, _entries(os.environ.get(cuda.MASK)), gpus


def _entries(text: str | None) -> list[str] | None:
    """Return the entries of a mask, up to one that hides what follows, such as ``-1``; None: there is no mask."""
    if text is None:
        return None
    return list(takewhile(lambda entry: entry and not entry.startswith("-"), map(str.strip, text.split(","))))


def _device(kind: str, variable: str, name: str, gpu: Gpu | None) -> Device:
    environment = {variable: name}
    if kind == "cuda" and cuda.ORDER not in os.environ:
        environment[cuda.ORDER] = "PCI_BUS_ID"  # else CUDA counts by speed, and the id means another GPU than here
    if gpu is None or not gpu.uuid:
        unknown = f"{kind}:{name}"
        return Device(name=unknown, kind=kind, identities=(unknown,), model="unknown", environment=environment)
    described = cuda.described if kind == "cuda" else hip.described
    return described(f"{kind}:{name}", gpu, environment)


def _id(value: int | str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"a GPU's id must be an index or a UUID, got {value!r}")
    text = str(value)
    if not text or text != text.strip() or not text.isprintable() or "," in text or text.startswith("-"):
        raise ValueError(f"a GPU's id must be an index or a UUID, got {value!r}")
    return text


Command = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_LONGEST_COMMAND = 1000
_SECONDS_UNTIL_TOLD = 5.0
_SECONDS_OF_KILLING = 10.0


class _Entry(NamedTuple):
    what: Any
    return_ops: Sequence[str] | None
    profile: Profile
    job: Job

    @property
    def command(self) -> str:
        text = one_line(shlex.join(self.job.words))
        return text if len(text) <= _LONGEST_COMMAND else f"{text[:_LONGEST_COMMAND]}..."


class Backlog:
    """Commands that run on GPUs, for `timeout` seconds at most, and are waited for; killed when this is garbage."""

    def __init__(self, devices: Sequence[str | int] | None, timeout: float) -> None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise TypeError(f"timeout must be a number of seconds, got {timeout!r}")
        if not 0 < timeout < math.inf:
            raise ValueError(f"timeout must be positive and finite, got {timeout!r}")
        self._timeout = float(timeout)
        self._queue = CommandQueue(mask(None if devices is None else list(devices)))
        self._entries: deque[_Entry] = deque()
        self._environment: dict[str, str] = {}
        self._lock = threading.Lock()
        self._joined_by: int | None = None
        weakref.finalize(self, self._queue.abandon)

    def push(self, command: Command, what: Any, return_ops: Sequence[str] | None = None) -> None:
        argv = words(command)
        if self._environment != os.environ:  # mostly the same for thousands of commands
            self._environment = dict(os.environ)
        here = None
        with suppress(FileNotFoundError):  # removed: then the command is in it like we are
            here = os.getcwd()
        profile = Profile()
        job = Job(argv, profile, self._environment, here, self._timeout)
        entry = _Entry(what, return_ops, profile, job)
        self._entries.append(entry)
        try:
            self._queue.push(job)
        except BaseException:
            self._entries.remove(entry)
            raise

    @contextmanager
    def joined(self) -> Iterator[None]:
        """For one thread at a time, and once."""
        self._queue.check_process()
        if self._joined_by == threading.get_ident():
            raise RuntimeError("join was called from a callback, which it waits for")
        with self._lock:
            self._joined_by = threading.get_ident()
            try:
                yield
            finally:
                self._joined_by = None

    def ended(self) -> Iterator[tuple[Any, str, Found, str]]:
        """Wait for each command in the order of the pushes; what it was pushed with, its words, result, and reason."""
        while self._entries:
            entry = self._entries[0]
            self._wait(entry.job)
            self._entries.popleft()
            yield entry.what, entry.command, *_judged(entry)

    def stop(self) -> int:
        """Kill what runs and cancel what does not; return for how many `ended` waits no longer."""
        self._queue.cancel()
        entries = list(self._entries)
        for entry in entries:
            entry.job.wait(_SECONDS_OF_KILLING)
        return len(entries)

    def _wait(self, job: Job) -> None:
        told: set[Holder] = set()
        while job.wait(_SECONDS_UNTIL_TOLD) is None:
            for holder in set(self._queue.holders()) - told:
                _logger.warning("waiting for %s, held by %s", holder.identity, holder)
                told.add(holder)


def _judged(entry: _Entry) -> tuple[Found, str]:
    """Return the result of a command that has ended, or None and why there is none."""
    outcome = entry.job.outcome
    assert outcome is not None
    if outcome.status is not Status.OK:
        return None, f"{'timeout: ' if outcome.status is Status.HANG_KILLED else ''}{outcome.message}"
    result = choose(entry.profile.results, entry.return_ops)
    if result is None:
        reported = ", ".join(each.op_config for each in entry.profile.results)
        return None, f"reported {reported}, and nothing of {entry.return_ops!r}"
    if entry.profile.bad:
        _logger.warning("%s: %s", entry.command, left_out(entry.profile.bad))
    return result, ""


def words(command: Command) -> list[str]:
    """Return a command as a list of words, or raise."""
    if isinstance(command, str | os.PathLike):
        command = [command]
    if not isinstance(command, Sequence):
        raise TypeError(f"a command must be the path of a program, or a list of it and its arguments, got {command!r}")
    words = []
    for word in command:
        if not isinstance(word, str | os.PathLike):
            raise TypeError(f"the words of a command must be str, got {word!r} in {command!r}")
        words.append(os.fspath(word))
    if not words or not words[0]:
        raise ValueError(f"a command must begin with a program, got {command!r}")
    if any("\0" in word for word in words):
        raise ValueError(f"a command must not hold null characters, got {command!r}")
    return words
