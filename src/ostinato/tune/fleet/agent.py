"""The agent of a host: it has the leases, the workers and the builds there, and does what the caller tells it."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from ostinato.errors import TuningError
from ostinato.tune.candidate import Call, Candidate, Command
from ostinato.tune.fleet.messages import (
    CLOSED,
    Begin,
    Data,
    DeviceLost,
    End,
    Ended,
    Event,
    Failed,
    Finished,
    Inbox,
    Leased,
    Numbered,
    Outbox,
    Start,
    Unfit,
)
from ostinato.tune.fleet.messages import (
    Command as Message,
)
from ostinato.tune.leases.device import Device
from ostinato.tune.leases.devices import all_of
from ostinato.tune.leases.devices import devices as devices_named
from ostinato.tune.outcome import OF_BUILDS, Outcome, Status
from ostinato.tune.store.key import Sources
from ostinato.tune.trial import Task, Trial
from ostinato.tune.workers.loop import Loop
from ostinato.tune.workers.scratch import NoRoomError, Scratch, says_full
from ostinato.tune.workers.slot import LeasedWorker, Slot
from ostinato.tune.workers.tasks import Tasks

ALONE = 8.0
"""Seconds of a search without a word of the caller after which an agent ends all that runs, and itself.

What runs has ended 10 s after the caller died: killing takes a while.
"""

_LEASE_SECONDS = 0.05  # between two tries to lease a device that somebody else has
GATHER_SECONDS = 1.0
"""How long an exchange waits for more events: each exchange costs the caller about a millisecond."""

SHORT_GATHER_SECONDS = 0.1
"""How long it waits where a device will soon have nothing to do."""

_RESERVE_SECONDS = 0.25  # of work that each device has ahead while an exchange waits: new work takes as long to arrive
_LOOK_SECONDS = 0.1  # between two looks at the code of the same functions
_TRIES = 3  # of a candidate whose worker went away before it began


class Settings(NamedTuple):
    """What an agent is made with: as of `Tuner`, and where the caller finds its modules."""

    names: tuple[str, ...]
    memory: int | None
    allow: tuple[str, ...] | None
    path: tuple[str, ...]
    directory: str


class Found(NamedTuple):
    """A device of a host."""

    device: Device
    cores: int
    """How many candidates its host builds at the same time for each device."""


class _Job:
    """A task on its way through a host."""

    __slots__ = ("outcome", "start", "trial", "tries")

    def __init__(self, start: Start, trial: Trial) -> None:
        self.start, self.trial = start, trial
        self.tries = 0
        self.outcome: Outcome | None = None  # while it is checked


class _Device:
    """A device with the jobs that wait for it."""

    def __init__(self, worker: LeasedWorker) -> None:
        self.worker = worker
        self.jobs: deque[_Job] = deque()
        self.measuring = 0  # jobs that the worker has
        self.pace = 0.0  # seconds that a candidate takes, about
        self.wanted = False  # the caller wants the lease
        self.holder: str | None = None  # what it was told of that
        self.lost = ""

    @property
    def idle(self) -> bool:
        """Whether it has nothing to do."""
        return not (self.jobs or self.measuring)


class Agent:
    """Measures on the devices of one host, in a thread of its own, until it is closed or nobody speaks to it.

    Raises what `Tuner` raises for names of devices.
    """

    def __init__(self, settings: Settings, node: str = "") -> None:
        with suppress(OSError):
            os.chdir(settings.directory)
        sys.path += [each for each in settings.path if each not in sys.path and os.path.isdir(each)]
        self._memory = settings.memory
        self._loop = Loop()
        found = [
            _apart(device, node) for device in devices_named([name for kind in settings.names for name in all_of(kind)])
        ]
        self._devices = {
            device.name: _Device(LeasedWorker(self._loop, device, memory=settings.memory, allow=settings.allow))
            for device in found
        }
        self._builders = [
            Slot(self._loop, f"build:{number}", environment={}, memory=None, allow=settings.allow)
            for number in range(len(os.sched_getaffinity(0)))
        ]
        self.found = [Found(device, math.ceil(len(self._builders) / len(found))) for device in found]
        self._running: dict[tuple[int, str], _Job] = {}  # by trial's identity and what is done
        self._to_build: deque[Trial] = deque()
        self._to_check: deque[_Job] = deque()
        self._trials: dict[str, Trial] = {}  # of candidates with a directory, by id
        self._built: set[str] = set()
        self._scratch = Scratch()
        self._tasks: Tasks | None = None
        self._sources = Sources(None)
        self._code: tuple[object, float, str, Mapping[str, str]] = (None, 0.0, "", {})
        self._verify: str | None = None
        self._inbox, self._outbox = Inbox(), Outbox()
        self._commands: deque[Message] = deque()
        self._news = threading.Condition()
        self._pressing = False  # the caller should hear at once: of an event that is no outcome, or of a final
        self._heard = time.monotonic()
        self.closed = False
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._thread = threading.Thread(target=self._serve, name="ostinato agent", daemon=True)
        self._thread.start()

    def exchange(self, acknowledged: int, commands: Sequence[Numbered], seconds: float) -> tuple[int, list[Numbered]]:
        """Take commands; return which ones are known, and events once there are any, or after so many seconds."""
        with self._news:
            if self.closed:
                return CLOSED, []
            self._heard = time.monotonic()
            self._outbox.acknowledge(acknowledged)
            if commands:
                self._commands += self._inbox.take(commands)
                self._wake()
            if seconds:
                self._news.wait_for(lambda: self._outbox.waiting or self.closed, seconds)
                self._news.wait_for(lambda: self.is_urgent(0.0), SHORT_GATHER_SECONDS)
                self._news.wait_for(lambda: self.is_urgent(SHORT_GATHER_SECONDS), GATHER_SECONDS)
                self.answered()  # an exchange that does not wait may be one whose answer nobody reads
            return self._inbox.last, list(self._outbox.waiting)

    def is_urgent(self, gathered: float) -> bool:
        """Whether the caller should hear of events now; `gathered`: the seconds that the first event has waited.

        If no device has anything to do, it should hear at once. If one has little to do, it should after a short time.
        """
        if self.closed or self._pressing:
            return True
        devices = [device for device in self._devices.values() if device.worker.leased and not device.lost]
        if gathered < SHORT_GATHER_SECONDS:
            return all(device.idle for device in devices)
        return any(len(device.jobs) * device.pace < _RESERVE_SECONDS for device in devices)

    @property
    def answer(self) -> tuple[int, list[Numbered]]:
        """The answer to an exchange without commands. To read it is no sign of life of the caller."""
        with self._news:
            return (CLOSED, []) if self.closed else (self._inbox.last, list(self._outbox.waiting))

    def answered(self) -> None:
        """Note that the caller gets an answer with all events."""
        self._pressing = False

    def close(self) -> None:
        """End all that runs, and give the devices back."""
        with self._news:
            self.closed = True
            self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _wake(self) -> None:
        with suppress(BlockingIOError, OSError):
            os.write(self._writer, b"w")

    def _tell(self, *events: Event, pressing: bool = True) -> None:
        with self._news:
            first = not self._outbox.waiting
            for event in events:
                self._outbox.put(event)
            self._pressing |= pressing
            if first or self.is_urgent(SHORT_GATHER_SECONDS):  # else an exchange would wait on
                self._news.notify_all()

    def _serve(self) -> None:
        self._loop.watch(self._reader, lambda: os.read(self._reader, 4096))
        try:
            while not self.closed and (self._tasks is None or time.monotonic() < self._heard + ALONE):
                try:
                    self._turn()
                except NoRoomError as error:
                    self._tell(Unfit(str(error)))
                    self._reset()
                except (TuningError, OSError) as error:
                    self._tell(Failed(str(error)))
                    self._reset()
        except BaseException:
            logging.getLogger("ostinato").exception("the agent of a host has failed")
            raise
        finally:
            with self._news:
                self.closed = True
                os.close(self._writer)
                self._writer = -1  # nobody is to write to what gets the number next
                self._news.notify_all()
            self._reset()
            self._loop.close()
            os.close(self._reader)

    def _turn(self) -> None:
        with self._news:
            commands = list(self._commands)
            self._commands.clear()
        for command in commands:
            self._do(command)
        self._lease()
        self._advance()
        slots = [slot for slot in self._slots() if slot.busy]
        due = min((slot.deadline() for slot in slots), default=math.inf)
        now = self._loop.now()
        moment = min(due, now + 1.0)
        if self._tasks is not None:
            moment = min(moment, self._heard + ALONE)
        if any(device.wanted and not device.worker.leased and not device.lost for device in self._devices.values()):
            moment = min(moment, now + _LEASE_SECONDS)
        self._loop.turn(max(0.0, moment - now))
        now = self._loop.now()
        for slot in slots if due <= now else ():
            if slot.deadline() <= now:
                slot.expire()

    def _slots(self) -> list[Slot]:
        return [*(device.worker for device in self._devices.values()), *self._builders]

    def _do(self, command: Message) -> None:
        if isinstance(command, Begin):
            self._begin(command)
        elif isinstance(command, End):
            self._end()
            self._tasks = None
            self._tell(Ended())
        elif isinstance(command, Start):
            self._add(command)
        else:
            self._obey(self._devices[command.device], command.what)

    def _begin(self, search: Begin) -> None:
        self._end()
        path = None
        if search.data is not None:
            path = self._write(search.data)
        self._verify, self._sources = search.verify, Sources(search.verify)
        self._code = None, 0.0, "", {}
        self._tasks = Tasks(
            *(search.op, search.key, search.verify, search.policy, search.turn),
            seconds=search.seconds,
            memory=self._memory,
            data=path,
        )
        for slot in self._slots():
            slot.serve(self._finished, self._returned, self._stop)
        for device in self._devices.values():
            device.lost = ""

    def _write(self, data: Data) -> str:
        top = os.path.join(self._scratch.directory("data"), data.name)
        try:
            for below, content in data.files:
                path = os.path.join(top, below) if below else top
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(content)
        except OSError as error:
            raise NoRoomError(f"the data of the search cannot be written to {top}: {error}") from error
        return top

    def _end(self) -> None:
        for device in self._devices.values():
            device.jobs.clear()
            device.measuring = 0
        self._running.clear()
        self._to_build.clear()
        self._to_check.clear()
        self._trials.clear()
        self._built.clear()
        self._scratch.remove()

    def _reset(self) -> None:
        for slot in self._slots():
            slot.close()
        for device in self._devices.values():
            device.wanted = False
        self._loop.clear()
        self._loop.watch(self._reader, lambda: os.read(self._reader, 4096))
        self._end()

    def _obey(self, device: _Device, what: str) -> None:
        if what == "lease":
            device.wanted, device.holder = True, None
        elif what == "release":
            device.wanted = False
            device.worker.release()
        elif what == "forget":
            device.worker.forget()
        elif what == "close":
            device.wanted = False
            self._drop(device)
            device.worker.close()
        else:
            for job in self._drop(device):
                self._report(job, Outcome(Status.CANCELLED, (), "interrupted"), 0.0)
            device.worker.cancel()

    def _drop(self, device: _Device) -> list[_Job]:
        """Return the jobs of a device that have not begun, which it forgets."""
        jobs = list(device.jobs)
        device.jobs.clear()
        checks = [job for job in self._to_check if self._devices[job.start.device] is device]
        for job in checks:
            self._to_check.remove(job)
        return jobs + checks

    def _add(self, start: Start) -> None:
        candidate = start.candidate
        problem = self._problem(start)
        trial = self._trials.get(candidate.id) or Trial(candidate)
        if problem:
            self._tell_outcome(start, Outcome(Status.INVALID, (), problem), 0.0)
            return
        if _needs_directory(candidate) and trial.scratch is None:
            trial.scratch = self._scratch.directory(candidate.id)
            self._trials[candidate.id] = trial
            if _needs_build(candidate):
                self._to_build.append(trial)
        self._devices[start.device].jobs.append(_Job(start, trial))

    def _problem(self, start: Start) -> str:
        """Return why the code of a candidate is not the caller's; empty if it is."""
        candidate = start.candidate
        try:
            digest, _ = self._look(candidate)
        except OSError as error:  # a file that it stands for cannot be read
            return f"{error}; on this host it must be what it is on the caller's"
        if digest == start.source:
            return ""
        what = candidate.words[0] if isinstance(candidate, Command) else getattr(candidate, "factory", "")
        there = "; ".join(self._sources.places(candidate))
        return (
            f"the code of {what} differs from the caller's: host {os.uname().nodename} has {there}; "
            "install the same version on each host"
        )

    def _look(self, candidate: Candidate) -> tuple[str, Mapping[str, str]]:
        """Return the digests of a candidate's code; files of the same functions are looked at again after a moment."""
        if not isinstance(candidate, Call):
            return self._sources.of(candidate), self._sources.imported(candidate)
        functions = candidate.factory, candidate.prepare, candidate.setup, candidate.source
        known, moment, digest, modules = self._code
        if known != functions or time.monotonic() > moment + _LOOK_SECONDS:
            digest, modules = self._sources.of(candidate), self._sources.imported(candidate)
            self._code = functions, time.monotonic(), digest, modules
        return digest, modules

    def _lease(self) -> None:
        told = []
        for device in self._devices.values():
            if not device.wanted or device.worker.leased or device.lost:
                continue
            holder = device.worker.take_lease()
            if holder != device.holder:
                device.holder = holder
                told.append(Leased(device.worker.name, holder))
        if told:  # all together: each exchange costs the caller time
            self._tell(*told)

    def _advance(self) -> None:
        """Start what can be: checks, builds, measurements."""
        for builder in self._builders:
            if builder.busy or builder.lost:
                continue
            assert self._tasks is not None or not (self._to_check or self._to_build)
            if self._to_check:
                job = self._to_check.popleft()
                assert self._tasks is not None
                assert job.outcome is not None
                self._running[id(job.trial), "check"] = job
                builder.start(self._tasks.check(job.trial, job.outcome.stdout))
            elif self._to_build:
                trial = self._to_build.popleft()
                assert self._tasks is not None
                self._running[id(trial), "build"] = _Job(Start("", 0, "build", trial.candidate, None, ""), trial)
                builder.start(self._tasks.build(trial))
        for device in self._devices.values():
            worker = device.worker
            if worker.lost and not device.lost:
                device.lost = worker.lost
                device.jobs.clear()
                self._tell(DeviceLost(worker.name, worker.lost))
            while (ready := self._next(device)) is not None:
                device.jobs.remove(ready)
                device.measuring += 1
                self._measure(worker, ready)

    def _next(self, device: _Device) -> _Job | None:
        """Return the first job of a device that is built, if the device has room for it."""
        for job in device.jobs:
            candidate = job.trial.candidate
            if not _needs_build(candidate) or candidate.id in self._built:
                return job if device.worker.room(isinstance(candidate, Call), len(device.jobs)) else None
        return None

    def _measure(self, worker: LeasedWorker, job: _Job) -> None:
        assert self._tasks is not None
        trial, start = job.trial, job.start
        if trial.scratch is None:  # the same call may be measured twice at once: as the reference, too
            job.trial = trial = Trial(trial.candidate)
        _, trial.modules = self._look(trial.candidate)
        task = self._tasks.measure(trial, worker, start.bound, start.what)
        self._running[id(task), ""] = job
        worker.start(task)

    def _finished(self, slot: Slot, task: Task, outcome: Outcome, began: float, ended: float) -> None:
        seconds = ended - began
        trial = task.trial
        if task.what == "build":
            self._running.pop((id(trial), "build"), None)
            self._has_built(trial, outcome)
        elif task.what == "check":
            job = self._running.pop((id(trial), "check"), None)
            if job is not None and job.outcome is not None:
                checked = job.outcome if outcome.status is Status.OK else job.outcome.refuted(outcome)
                self._report(job, checked, seconds)
        else:
            job = self._running.pop((id(task), ""), None)
            if job is None:
                return
            self._devices[job.start.device].measuring -= 1
            checks = self._verify is not None and isinstance(trial.candidate, Command) and task.what == "measure"
            if checks and outcome.status is Status.OK:
                job.outcome = outcome
                self._to_check.append(job)
            else:
                self._report(job, outcome, seconds)

    def _has_built(self, trial: Trial, outcome: Outcome) -> None:
        if outcome.status is Status.OK:
            trial.built()
            self._built.add(trial.candidate.id)
            return
        failed = Outcome(OF_BUILDS.get(outcome.status, outcome.status), (), outcome.message)
        for device in self._devices.values():
            for job in [job for job in device.jobs if job.trial is trial]:
                device.jobs.remove(job)
                self._report(job, failed, 0.0)

    def _report(self, job: _Job, outcome: Outcome, seconds: float) -> None:
        failed = outcome.status not in (Status.OK, Status.RACED)
        if failed and outcome.whole and (says_full(outcome.message) or self._scratch.full):  # perhaps another's doing
            outcome = dataclasses.replace(outcome, whole=False)
        device = self._devices[job.start.device]
        device.pace = 0.5 * (device.pace + seconds)
        self._tell_outcome(job.start, outcome, seconds)
        trial = job.trial
        if trial.scratch is not None and outcome.status is not Status.OK:
            self._scratch.empty(trial.scratch)
            self._trials.pop(trial.candidate.id, None)
            self._built.discard(trial.candidate.id)

    def _tell_outcome(self, start: Start, outcome: Outcome, seconds: float) -> None:
        event = Finished(start.device, start.number, outcome, seconds, self._loop.now())
        self._tell(event, pressing=start.what == "final")

    def _returned(self, slot: Slot, tasks: list[Task], blamed: bool) -> None:
        for task in reversed(tasks):
            if task.what == "build":
                self._running.pop((id(task.trial), "build"), None)
                self._to_build.appendleft(task.trial)
                continue
            key = (id(task.trial), "check") if task.what == "check" else (id(task), "")
            job = self._running.pop(key, None)
            if job is None:
                continue
            job.tries += blamed and task is tasks[0]
            if task.what == "check":
                self._to_check.appendleft(job)
                continue
            self._devices[job.start.device].measuring -= 1
            if job.tries > _TRIES:
                died = "its worker died before it could begin, again and again"
                self._report(job, Outcome(Status.CRASH, (), died), 0.0)
            else:
                self._devices[job.start.device].jobs.appendleft(job)

    def _stop(self, why: str, status: Status) -> None:
        self._tell(Failed(why))


def _needs_build(candidate: Candidate) -> bool:
    return (isinstance(candidate, Call) and candidate.prepare is not None) or (
        isinstance(candidate, Command) and candidate.build is not None
    )


def _needs_directory(candidate: Candidate) -> bool:
    return isinstance(candidate, Command) or _needs_build(candidate)


def _apart(device: Device, node: str) -> Device:
    """Return the device; a simulated one of a node that shares its host with others is this node's own."""
    if device.simulation is None or not node:
        return device
    return dataclasses.replace(device, identities=tuple(f"{each}@{node}" for each in device.identities))
