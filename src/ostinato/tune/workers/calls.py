"""Callables, measured by the warm worker of a device."""

from __future__ import annotations

import json
import math
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.errors import TuningError
from ostinato.tune.outcome import MOST_PRINTED, OpOutcome, Outcome, Status, death
from ostinato.tune.trial import Task
from ostinato.tune.workers.loop import MOST_STALLS, ROOM, STALL_SECONDS, Loop, Watch, output_pipe
from ostinato.tune.workers.protocol import json_object
from ostinato.tune.workers.reaper import Exited, Lost, NotStarted, Reaper, Started, Stuck, Swept

Ended = Exited | NotStarted | Stuck | Lost
Message = dict[str, Any]

# By its path: with -m, a file of the package's name in the current folder would be run in its place.
_ENTRY = os.fspath(Path(__file__).parents[1] / "worker" / "__main__.py")
_REQUESTS, _REPORTS = 3, 4
_TAIL = 4096
_encode = json.JSONEncoder(separators=(",", ":")).encode
_PIECE = 1 << 16
_MOST_PIECES = 16  # that a pipe holds
_MOST_LINES = 1000  # of one task, which has two


@dataclass(eq=False)
class WarmWorker:
    """A worker process under a reaper, which runs nothing else as long as this object lives.

    `heard` is called with each message of the worker. `flooded` is called whenever more is written, once the present
    task has written more than it may: `MOST_PRINTED` bytes to all its descriptors, or 1000 lines to that of its worker.
    `ended` is called once, when the worker and everything it started are gone; every message was heard before.
    """

    loop: Loop
    reaper: Reaper
    environment: Mapping[str, str]
    memory: int | None
    heard: Callable[[Message], None]
    flooded: Callable[[], None]
    ended: Callable[[Ended], None]

    def __post_init__(self) -> None:
        self._waiting = bytearray()
        self._blocked = False
        self._due = False
        self._partial = bytearray()
        self._written = 0
        self._lines = 0
        self.printed = b""
        """The end of what was written to stdout and stderr."""
        self.swept = True
        """Whether nothing is left that was there at the last `sweep`."""
        requests, self._requests = os.pipe()
        self._reports, reports = os.pipe()
        self._output, output = output_pipe()
        for fd in (self._requests, self._reports, self._output):
            os.set_blocking(fd, False)
        try:
            self.reaper.spawn(
                [sys.executable, _ENTRY],
                env={**self.environment, "OSTINATO_REPORT_FD": str(_REPORTS)},
                fds={1: output, 2: output, _REQUESTS: requests, _REPORTS: reports},
                memory=self.memory,
            )
        except BaseException:
            for fd in (self._requests, self._reports, self._output):
                os.close(fd)
            raise
        finally:
            for fd in (requests, reports, output):
                os.close(fd)
        self.loop.watch(self.reaper.fileno(), self._told)
        # One piece a turn: a worker that writes without end must not keep the loop from the others.
        self.loop.watch(self._reports, self._take_reports)
        self.loop.watch(self._output, self._read_output)
        self._watched = {self._reports, self._output}
        self._watch = Watch(self.loop, self.reaper)
        self.send(_encode({"type": "hello", "path": sys.path}))

    def send(self, request: str) -> None:
        """Send a request, a line of JSON; what the pipe has no room for waits here."""
        self._waiting += request.encode()
        self._waiting += b"\n"
        if not self._blocked and not self._due:
            self._due = True
            self.loop.before_waiting(self._write)  # what is sent in one go is written in one go

    def kill(self) -> None:
        """Kill the worker and everything it started; `ended` is called when they are gone."""
        self.reaper.kill()
        self._watch.expect(0)

    def sweep(self) -> None:
        """Kill everything that the worker started; `swept` becomes true when it is gone."""
        self.swept = False
        self.reaper.sweep()

    def hear(self) -> None:
        """Read what has arrived, now."""
        for _ in range(_MOST_PIECES):  # a candidate may write faster than this reads
            if not self._take_reports():
                return

    def begin(self) -> None:
        """Count what is written from now on as that of a task which has begun."""
        self._written = self._lines = 0

    def _write(self) -> None:
        self._due = False
        while self._waiting and self._requests >= 0:
            try:
                del self._waiting[: os.write(self._requests, self._waiting)]
            except BlockingIOError:
                if not self._blocked:
                    self._blocked = True
                    self.loop.watch(self._requests, self._write, write=True)
                return
            except BrokenPipeError:  # it is ending, and the reaper will say how
                self._waiting.clear()
        if self._blocked:
            self._blocked = False
            self.loop.forget(self._requests)

    def _take_reports(self) -> bool:
        """Read one piece; return whether there may be more."""
        if self._reports not in self._watched:
            return False
        try:
            data = os.read(self._reports, _PIECE)
        except BlockingIOError:
            return False
        if not data:
            self._unwatch(self._reports)
            return False
        self._count(len(data))
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole, self._partial = bytes(self._partial + line), bytearray()
            self._lines += 1
            # A candidate may have found the descriptor and written to it; what it wrote counts for nothing.
            message = json_object(whole)
            if message is not None:
                self.heard(message)
        self._partial += rest
        if self._written > MOST_PRINTED:
            self._partial.clear()
        return len(data) == _PIECE

    def _count(self, size: int) -> None:
        self._written += size
        if self._written > MOST_PRINTED or self._lines > _MOST_LINES:
            self.flooded()

    def _read_output(self) -> None:
        if self._output not in self._watched:
            return
        try:
            data = os.read(self._output, ROOM)
        except BlockingIOError:
            return
        if not data:
            self._unwatch(self._output)
        self.printed = (self.printed + data)[-_TAIL:]
        self._count(len(data))

    def _told(self) -> None:
        for event in self.reaper.read():
            if isinstance(event, Swept):
                self.swept = True
            elif not isinstance(event, Started):
                self.hear()
                self._read_output()
                self.close()
                self.ended(event)
                return

    def _unwatch(self, fd: int) -> None:
        self._watched.discard(fd)
        self.loop.forget(fd)

    def close(self) -> None:
        """Close everything without waiting: the reaper sees to the process."""
        requests, self._requests = self._requests, -1  # first: nothing is closed twice, whenever an interrupt comes
        if requests < 0:
            return
        self._watch.close()
        for fd in list(self._watched):
            self._unwatch(fd)
        if self._blocked:
            self.loop.forget(requests)
        self.loop.forget(self.reaper.fileno())
        for fd in (requests, self._reports, self._output):
            os.close(fd)


_MOST_SAMPLES = 100_000
_LONGEST_MESSAGE = 10_000


def outcome_of(task: Task, message: Message) -> Outcome:
    """Return what a worker's result says; `bad_output` if it makes no sense."""
    try:
        status = Status(message["status"])
        samples = tuple(map(float, message.get("ns", ())))[:_MOST_SAMPLES]
        timed = task.what not in ("build", "check") and status in (Status.OK, Status.RACED)
        if (timed or samples) and not (0 < sum(samples) < math.inf and min(samples) > 0):
            raise ValueError("its times are not positive and finite")
        overhead = float(message.get("overhead_ns", 0.0))
        if not math.isfinite(overhead):
            raise ValueError("its overhead is not finite")
        op = OpOutcome(
            op=task.op,
            status=status,
            samples=samples,
            workspace=_count(message, "workspace"),
            message=_text(message.get("message", "")),
            contended=_count(message, "contended"),
            overhead_ns=overhead,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return Outcome(Status.BAD_OUTPUT, (), f"the worker's report makes no sense: {_text(str(error))}")
    return Outcome(op.status, (op,), op.message)


def _count(message: Message, name: str) -> int:
    value = message.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError(f"its {name} is no number that a file can hold")
    return value


def _text(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError("its message is no text")
    # Lone surrogates, which JSON can spell, have no place in what is stored.
    return text[:_LONGEST_MESSAGE].encode("utf-8", "replace").decode("utf-8")


_START_SECONDS = 120.0
_STARTS = 3
_SWEEP_SECONDS = 1.0
# Quick candidates are sent ahead, so that a worker need not wait for the loop: 32 of those that take less than 1 ms.
_WINDOWS = ((0.001, 32), (0.005, 4), (0.1, 2))


@dataclass(eq=False)
class Calls:
    """Runs tasks in one warm worker, which is started when needed, and again after a crash.

    `finished` is called with a task, its outcome, and when it began; `returned` with tasks that never began, and
    whether the first of them may be why the worker ended; `lost` when the reaper cannot go on.
    """

    loop: Loop
    reaper: Reaper
    environment: Mapping[str, str]
    memory: int | None
    finished: Callable[[Task, Outcome, float], None]
    returned: Callable[[list[Task], bool], None]
    lost: Callable[[Stuck | Lost], None]

    def __post_init__(self) -> None:
        self._worker: WarmWorker | None = None
        self._ready = False
        self._failed_starts = 0
        self._tasks: deque[Task] = deque()
        self._began = False
        self._served = 0  # tasks that the worker has answered
        self._moment = 0.0
        self._stalls = 0  # of this process while the first task ran
        self._pace = 1.0  # seconds a task, lately
        self._window = 1  # tasks that may wait here, at this pace
        self._killing = ""
        self._check: str | None = None  # of what `verify` names, the worker was asked whether it can be used
        self._asking = False  # it has not answered yet
        self._loaded: dict[str, str] = {}
        # Of the last task: mostly the same object, and then nothing changed.
        self._modules: Mapping[str, str] | None = None

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    def begin(self) -> None:
        """Begin another search, of which nobody knows how quick its candidates are."""
        self._pace, self._window = 1.0, 1

    def room(self, most: int) -> bool:
        """Whether it takes another task, if it has fewer than `most`; ahead only if tasks were quick lately."""
        waiting = len(self._tasks)
        if not waiting:
            return True
        if self._killing or not self._ready:
            return False
        return waiting < self._window and waiting < most

    def start(self, task: Task) -> None:
        """Run `task`, after those that were started before."""
        self._tasks.append(task)
        if len(self._tasks) == 1:
            self._next()
        if task.trial.modules is not self._modules and self._is_stale(task.trial.modules):
            return
        if self._worker is None:
            self._start_worker()
        assert self._worker is not None
        if task.verify is not None and task.verify != self._check:
            self._check, self._asking = task.verify, True
            self._worker.send(json.dumps({"type": "verify", "verify": task.verify}))
        self._worker.send(task.request)

    def deadline(self) -> float:
        """When `expire` must be called; infinity if nothing runs."""
        if not self._tasks or self._killing:
            return float("inf")
        starting = not self._ready or self._asking
        return self._moment + (_START_SECONDS if starting else self._tasks[0].seconds)

    def expire(self) -> None:
        """Kill the task that has reached its limit of time.

        If this process comes too late for that by far, it was stopped, and most likely so was the worker: with the
        machine, or with all processes of a job. Then the task has its time once more.
        """
        if self._worker is None:
            return
        self._worker.hear()  # what ended in time did, even if nobody looked before
        late = self.loop.now() - self.deadline()
        if late > STALL_SECONDS and self._stalls < MOST_STALLS:
            self._stalls += 1
            self._moment = self.loop.now()
        elif late >= 0:
            self._kill("time")

    def cancel(self) -> None:
        """Kill what runs; its tasks are returned, the one that had begun as cancelled."""
        if self._tasks and not self._killing:
            self._kill("cancel")

    def forget(self) -> None:
        """Drop the callables that the worker keeps."""
        if self._worker is not None:
            self._worker.send('{"type":"forget"}')

    def sweep(self) -> bool:
        """Kill everything that the worker started; return whether it is all gone soon."""
        if self._worker is not None:
            self._worker.sweep()
        end = self.loop.now() + _SWEEP_SECONDS
        while self._worker is not None and not self._worker.swept and self.loop.now() < end:
            self.loop.turn(_SWEEP_SECONDS)
        return self._worker is None or self._worker.swept

    def close(self) -> None:
        """Forget the worker; closing the reaper ends it."""
        if self._worker is not None:
            self._worker.close()  # without waiting
            self._worker = None
        self._tasks.clear()

    def _is_stale(self, modules: Mapping[str, str]) -> bool:
        """Whether the worker has imported one of the modules as it was before a change; if so, it is ended."""
        stale = self._worker is not None and any(self._loaded.get(name, text) != text for name, text in modules.items())
        if stale:
            self._kill("stale")
        else:
            self._modules = modules
            self._loaded.update(modules)
        return stale

    def _kill(self, reason: str) -> None:
        assert self._worker is not None
        self._killing = reason
        self._worker.kill()

    def _start_worker(self) -> None:
        self._ready = False
        self._served = 0
        self._next()
        self._worker = WarmWorker(
            self.loop, self.reaper, self.environment, self.memory, self._heard, self._flooded, self._ended
        )

    def _next(self) -> None:
        self._moment = self.loop.now()
        self._stalls = 0
        self._began = False

    def _heard(self, message: Message) -> None:
        # A candidate may have written it: it must not cost others anything, nor move a limit of time.
        if self._killing:  # what the worker is killed for is laid at the door of the first task, which must stay that
            return
        kind = message.get("type")
        if kind == "bye":  # nobody who waits is to blame
            self._kill("leaves")
        elif kind == "hello":
            if not self._ready:
                self._ready = True
                self._failed_starts = 0
                self._moment = self.loop.now()
        elif kind == "verify":
            if self._asking:
                self._asking = False
                self._moment = self.loop.now()
                self._checked(message.get("message"))
        elif self._tasks and message.get("id") == self._tasks[0].number:
            if kind == "start":
                if not self._began and self._worker is not None:
                    self._worker.begin()
                self._began = True
            elif kind == "result":
                began = self._moment
                task = self._tasks.popleft()
                self._served += 1
                self._next()
                self._pace = 0.5 * (self._pace + self._moment - began)
                self._window = next((ahead for limit, ahead in _WINDOWS if self._pace < limit), 1)
                self.finished(task, outcome_of(task, message), began)

    def _checked(self, problem: object) -> None:
        """Take what the worker says of what `verify` names."""
        if not problem:
            return
        if not self._served:
            raise TuningError(f"what verify names cannot be used as a check: {problem}")
        self._kill("stale")  # what ran there before may be why: a new worker tells

    def _flooded(self) -> None:
        if self._began and not self._killing:
            self._kill("output")

    def _ended(self, event: Ended) -> None:
        worker, self._worker = self._worker, None
        assert worker is not None
        ready, self._ready = self._ready, False
        killing, self._killing = self._killing, ""
        asking, self._asking, self._check = self._asking, False, None
        self._loaded.clear()
        self._modules = None
        printed = worker.printed.decode(errors="replace").strip()
        tasks = list(self._tasks)
        self._tasks.clear()
        if isinstance(event, Stuck | Lost):
            self.lost(event)
        elif not ready and killing in ("", "time"):
            self._failed_starts += 1
            if self._failed_starts == _STARTS or isinstance(event, NotStarted):
                how = f"nothing was heard of it for {_START_SECONDS:g} s" if killing else _how(event)
                raise TuningError(f"a worker process cannot be started: {how}\n{printed}".rstrip())
        elif asking and killing == "time" and not self._served:
            raise TuningError(
                f"what verify names cannot be used as a check: it was still being imported after {_START_SECONDS:g} s"
            )
        known = self._began or bool(killing)
        if tasks and self._began and killing != "stale" and not self._excused(tasks[0], event, killing):
            task = tasks.pop(0)
            self.finished(task, self._verdict(task, event, killing, printed), self._moment)
        if tasks:
            self.returned(tasks, not known)

    def _excused(self, task: Task, event: Ended, killing: str) -> bool:
        """Whether the worker may have died of what others left in it: memory, or damage. Then a fresh one tells."""
        died = isinstance(event, Exited) and not killing and (event.cause == "memory" or event.status < 0)
        if not died or not self._served:
            return False
        if task.what == "measure" and task.trial.tries < 2:  # one that kills every worker must not go round for ever
            task.trial.tries += 1
            return True
        return task.what == "final"  # whose turn it is then, at once

    def _verdict(self, task: Task, event: Ended, killing: str, printed: str) -> Outcome:
        """What became of the task that the worker died of."""
        if isinstance(event, Stuck | Lost):
            return Outcome(Status.DEVICE_LOST, (), _how(event))
        if isinstance(event, Exited) and event.cause == "memory":
            return Outcome(Status.OOM, (), f"took more than {self.memory} bytes, and was killed")
        if killing == "time":
            return Outcome(Status.HANG_KILLED, (), f"still running after {task.seconds:g} s, and was killed")
        if killing == "output":
            return Outcome(Status.BAD_OUTPUT, (), f"printed more than {MOST_PRINTED >> 20} MiB, and was killed")
        if killing == "cancel":
            return Outcome(Status.CANCELLED, (), "interrupted")
        last = printed.splitlines()[-1] if printed else ""
        return Outcome(Status.CRASH, (), f"{_how(event)}{': ' if last else ''}{last}")


def _how(event: Ended) -> str:
    if isinstance(event, Exited):
        return death(event.status)
    if isinstance(event, NotStarted):
        return f"{event.stage}: {os.strerror(event.errno)}"
    return str(event) if isinstance(event, Stuck) else "its reaper died"
