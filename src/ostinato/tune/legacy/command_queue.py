"""Command lines that run in the background, one at a time on each of some devices."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from ostinato.errors import OstinatoError
from ostinato.tune.leases.device import Device
from ostinato.tune.leases.lease import Lease
from ostinato.tune.leases.lock_file import Holder
from ostinato.tune.outcome import Outcome, Status
from ostinato.tune.workers.command import PAUSES, SHORTAGES, CommandRun, Reading
from ostinato.tune.workers.loop import Loop, Timer
from ostinato.tune.workers.reaper import Exited, Lost, Reaper, Stuck

T = TypeVar("T")

_FIRST_POLL = 0.02
_LAST_POLL = 0.2


@dataclass(eq=False)
class Job:
    """A command line on its way through a queue."""

    words: Sequence[str]
    reading: Reading
    env: Mapping[str, str]
    cwd: str | None
    seconds: float
    outcome: Outcome | None = None
    """How it ended; None as long as it has not."""
    _over: threading.Event = field(default_factory=threading.Event)

    def end(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self._over.set()

    def wait(self, seconds: float | None = None) -> Outcome | None:
        """Wait until it has ended, at most so long, and return `outcome`."""
        self._over.wait(seconds)
        return self.outcome


class CommandQueue:
    """Runs jobs in the order in which they are pushed, each on the first device that is free.

    A thread of its own, which exists only while there is something to do, leases a device when there is a job for it
    and gives it back when there is none. It keeps nobody from exiting: when the process ends, what runs is killed.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self._leased = [_LeasedDevice(device) for device in devices]
        self._lock = threading.Lock()  # over what the thread shares: _waiting, _thread, _signal and _cancelled
        self._waiting: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._signal: _Signal | None = None
        self._cancelled = False
        self._abandoned = False
        self._pid = os.getpid()

    def push(self, job: Job) -> None:
        """Add a job; it starts as soon as a device is free."""
        self.check_process()
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="ostinato commands", daemon=True)
                thread.start()  # waits for the lock, and finds the job
                self._thread = thread
            self._waiting.append(job)
        self._wake()

    def cancel(self) -> None:
        """Kill what runs, and end what waits, as cancelled."""
        self.check_process()
        with self._lock:
            self._cancelled = self._thread is not None
        self._wake()

    def abandon(self) -> None:
        """Kill what runs, without waiting for it. A garbage collection may call this: it takes no lock."""
        if self._pid == os.getpid():
            self._abandoned = True
            self._wake()

    def holders(self) -> list[Holder]:
        """Return who holds the devices that are waited for."""
        return [leased.holder for leased in self._leased if leased.holder is not None]

    def check_process(self) -> None:
        """Raise `RuntimeError` in a process forked from the one that made the queue."""
        if self._pid != os.getpid():
            raise RuntimeError(
                f"the commands belong to process {self._pid}, from which this one was forked: make another runner here"
            )

    def _wake(self) -> None:
        # A thread that has no signal yet will look at everything before it waits. One that drops it at this moment has
        # nothing to do any more; the descriptor is open as long as this function knows it.
        if (signal := self._signal) is not None:
            signal.send()

    # The thread.

    def _serve(self) -> None:
        loop: Loop | None = None
        signal: _Signal | None = None
        try:
            loop = _patiently(Loop)
            signal = _patiently(_Signal)
            loop.watch(signal.fileno(), signal.clear)
            with self._lock:
                self._signal = signal
            while self._turn(loop):
                loop.turn()
        except BaseException as error:
            # No fault of the commands; but whoever waits for one must not wait for ever.
            reason = f"{type(error).__name__}: {error}"
            for leased in self._leased:
                leased.give_up(reason)
            with self._lock:
                self._end_waiting(Status.DEVICE_LOST, reason)
                self._thread = self._signal = None
            raise
        finally:
            if loop is not None:
                loop.close()
            signal = None  # whoever keeps the error's traceback keeps this frame, but not the descriptor

    def _turn(self, loop: Loop) -> bool:
        """Bring jobs and devices together; say whether there is anything to wait for."""
        with self._lock:
            cancelled, self._cancelled = self._cancelled or self._abandoned, False
            if cancelled:
                self._end_waiting(Status.CANCELLED, "cancelled before it began")
        for leased in self._leased:
            if cancelled:
                leased.cancel()
            while not leased.busy and self._waiting and leased.open(loop):
                leased.start(loop, self._waiting.popleft())
        with self._lock:
            if all(leased.lost for leased in self._leased):
                reasons = "; ".join(leased.lost for leased in self._leased)
                self._end_waiting(Status.DEVICE_LOST, f"no device is left: {reasons}")
        for leased in self._leased:
            if not leased.busy and not self._waiting:
                leased.close()
        with self._lock:
            if self._waiting or any(leased.busy or leased.stuck for leased in self._leased):
                return True
            self._thread = self._signal = None
            self._cancelled = False
            return False

    def _end_waiting(self, status: Status, message: str) -> None:
        while self._waiting:
            self._waiting.popleft().end(Outcome(status, (), message))


class _LeasedDevice:
    """A device, its lease while there are jobs, and the job that runs on it."""

    def __init__(self, device: Device) -> None:
        self.lost = ""
        """Why the device cannot be used."""
        self.holder: Holder | None = None
        """Who else holds the device."""
        self._device = device
        self._lease = Lease(device)
        self._reaper: Reaper | None = None
        self._rest: Timer | None = None
        self._poll = _FIRST_POLL
        self._failed = 0
        self._job: Job | None = None
        self._run: CommandRun | None = None

    @property
    def busy(self) -> bool:
        return self._job is not None

    @property
    def stuck(self) -> bool:
        """Whether something runs there that could not be killed."""
        return bool(self.lost) and self._reaper is not None

    def open(self, loop: Loop) -> bool:
        """Lease the device: whether it is ours. If not, this is to be called again after a turn of the loop."""
        if self._rest is not None or self.lost:
            return False
        if self._reaper is not None:
            return True
        try:
            self.holder = self._lease.try_acquire()
            if self.holder is not None:
                self._pause(loop, self._poll)
                self._poll = min(_LAST_POLL, 1.5 * self._poll)
                return False
            self._reaper = Reaper(leases=self._lease.files, cores=self._device.cores)
        except (OSError, OstinatoError) as error:
            self._lease.release()
            if _is_shortage(error) and self._failed < len(PAUSES):
                self._pause(loop, PAUSES[self._failed])
                self._failed += 1
            else:
                self.lost = str(error)
            return False
        self._poll = _FIRST_POLL
        self._failed = 0
        return True

    def start(self, loop: Loop, job: Job) -> None:
        assert self._reaper is not None
        self._loop = loop
        self._job = job
        self._run = CommandRun(
            loop,
            self._reaper,
            job.words,
            env={**job.env, **self._device.environment},
            cwd=job.cwd,
            seconds=job.seconds,
            memory=None,
            ended=self._ended,
            reading=job.reading,
        )

    def cancel(self) -> None:
        """Kill what runs."""
        if self._run is not None:
            self._run.kill(Status.CANCELLED, "cancelled while it ran")

    def close(self) -> None:
        """Give the device back, which is idle."""
        self.holder = None
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if self.stuck:
            return  # so nobody may have it
        self.lost = ""
        if self._reaper is not None:
            try:
                self._reaper.close()
            except TimeoutError as error:
                self.lost = str(error)  # and so nobody may have the device
                return
            self._reaper = None
        self._lease.release()

    def give_up(self, reason: str) -> None:
        """End the job as it is, and kill what runs."""
        job, self._job = self._job, None
        run, self._run = self._run, None
        if run is not None:
            run.close()
        self.close()
        if job is not None:
            job.end(Outcome(Status.DEVICE_LOST, (), reason))

    def _ended(self, outcome: Outcome) -> None:
        assert self._job is not None
        assert self._run is not None
        job, self._job = self._job, None
        run, self._run = self._run, None
        if isinstance(run.event, Stuck):
            assert self._reaper is not None
            self.lost = outcome.message
            self._loop.watch(self._reaper.fileno(), self._look)
        elif isinstance(run.event, Lost):
            self.close()  # the next job gets another reaper
        job.end(outcome)

    def _look(self) -> None:
        """Give the device back if what was stuck is gone."""
        assert self._reaper is not None
        if any(isinstance(event, Exited | Lost) for event in self._reaper.read()):
            self._loop.forget(self._reaper.fileno())
            self.lost = ""
            self.close()

    def _pause(self, loop: Loop, seconds: float) -> None:
        def over() -> None:
            self._rest = None

        self._rest = loop.at(loop.now() + seconds, over)


class _Signal:
    """Wakes a loop, from any thread and from finalizers."""

    def __init__(self) -> None:
        self._fd = -1
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        return self._fd

    def send(self) -> None:
        os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def _is_shortage(error: Exception) -> bool:
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in SHORTAGES


def _patiently(make: Callable[[], T]) -> T:
    """Make something that takes a descriptor, which may be short."""
    for pause in PAUSES:
        try:
            return make()
        except OSError as error:
            if not _is_shortage(error):
                raise
        time.sleep(pause)
    return make()
