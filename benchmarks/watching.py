"""How much longer replays take when `ostinato top` watches them."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from types import TracebackType

from benchmarks.context import Context
from benchmarks.measure import Contestant, Part, Row, measure

ALONE, WATCHED = "alone", "ostinato top"
_ROOT = Path(__file__).parent.parent
_WORKER = Path(__file__).with_name("watched_worker.py")
_SECONDS = 1.2  # of a sample: the view is drawn once a second
_PROCESSES = 4  # of each sort, used in turn: two processes with the same code differ by a percent


class _Process:
    """A process that times replays; stopped, with the view of it, while others are timed."""

    def __init__(self, watched: bool) -> None:
        # The view is drawn on a terminal; a thread reads what is written there, as a terminal window would.
        reads, terminal = pty.openpty()
        threading.Thread(target=_drop, args=(reads,), daemon=True).start()
        self._requests, answers = os.pipe(), os.pipe()
        before = [sys.executable, "-m", "ostinato", "top"] if watched else [sys.executable]
        environment = os.environ | {"PYTHONPATH": str(_ROOT), "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        self._process = subprocess.Popen(
            [*before, str(_WORKER)],
            env=environment,
            stdin=self._requests[0],
            stdout=answers[1],
            stderr=terminal,
            start_new_session=True,
        )
        os.close(answers[1])
        self._answers = os.fdopen(answers[0])
        self.cases = dict.fromkeys(self._answers.readline().strip().split(","), 0)
        os.killpg(self._process.pid, signal.SIGSTOP)

    def time(self, case: str, seconds: float) -> float:
        """Nanoseconds that a step takes."""
        os.killpg(self._process.pid, signal.SIGCONT)
        time.sleep(0.05)  # what was due meanwhile
        os.write(self._requests[1], f"{case} {seconds}\n".encode())
        answer = self._answers.readline()
        if not answer:
            raise RuntimeError(f"{self._process.args!r} ended with status {self._process.wait()}")
        os.killpg(self._process.pid, signal.SIGSTOP)
        return float(answer)

    def __enter__(self) -> _Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)
        for end in self._requests:
            os.close(end)
        self._process.wait()


def _drop(descriptor: int) -> None:
    try:
        while os.read(descriptor, 1 << 16):
            pass
    except OSError:  # the terminal is closed
        pass


def run(context: Context) -> None:
    """Time native and Python tasks on two lanes, and short replays, alone and watched."""
    seconds = 0.2 if context.quick else _SECONDS
    with ExitStack() as stack:
        alone, watched = (
            [stack.enter_context(_Process(is_watched)) for _ in range(_PROCESSES)] for is_watched in (False, True)
        )
        for case in filter(context.wants, alone[0].cases):
            contestants: list[Contestant] = [
                Part(name, partial(_time, cycle(processes), case, seconds), steps=1)
                for name, processes in ((ALONE, alone), (WATCHED, watched))
            ]
            measure(contestants, rounds=context.rounds, seconds=seconds)
            context.rows += [Row("top", case, each.name, "ns/step", tuple(each.samples), ALONE) for each in contestants]


def _time(processes: Iterator[_Process], case: str, seconds: float, steps: int) -> float:
    return next(processes).time(case, seconds) * steps
