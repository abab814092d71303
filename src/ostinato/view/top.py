"""The live view of ``ostinato top``: what the threads, runs and devices of a script do, while it runs.

The script gets the number of a pipe in the environment (`environment.ACTIVITY_PIPE`). `view.activity` writes a
`Sample` to it once a second, as a line of JSON.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Protocol, TypedDict

from ostinato.environment import ACTIVITY_PIPE
from ostinato.text import counted, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


class MachineActivity(TypedDict):
    """Counters of a machine, from when it was made."""

    ns: int
    """The age of the machine, in ns."""
    busy: list[int]
    """How long each thread has had something to do, in ns."""
    steps: int
    runs: int
    """In flight, spawned tasks included."""


class Sample(TypedDict):
    """A line of the pipe. Counters only grow; a machine that is closed is left out after it was told a last time."""

    machines: dict[str, MachineActivity]
    devices: dict[str, list[int]]
    """Tasks and fills, copies, and bytes copied, of each device."""


@dataclass
class Rates:
    """Steps, runs and shares of time between two samples, or since the first one."""

    seconds: float
    steps: int
    runs: int
    threads: list[tuple[str, float]]
    """Name, and the share of time in which it had something to do."""
    devices: list[tuple[str, float, float, float]]
    """Name, tasks, copies and bytes a second."""

    @property
    def steps_per_second(self) -> float:
        """How fast programs ran."""
        return self.steps / self.seconds if self.seconds > 0 else 0.0


@dataclass
class History:
    """All samples so far, taken together."""

    begun: float = field(default_factory=time.monotonic)
    machines: dict[str, MachineActivity] = field(default_factory=dict)
    devices: dict[str, list[int]] = field(default_factory=dict)
    steps: int = 0

    def add(self, sample: Sample, seconds: float) -> Rates:
        """Return what has happened in the seconds since the sample before."""
        threads, steps = [], 0
        for number, after in sample["machines"].items():
            before = self.machines.get(number, MachineActivity(ns=0, busy=[0] * len(after["busy"]), steps=0, runs=0))
            spent = max(after["ns"] - before["ns"], 1)
            steps += max(after["steps"] - before["steps"], 0)
            for thread, (busy, had) in enumerate(zip(after["busy"], before["busy"], strict=True)):
                threads.append((_thread_name(number, thread), min(max((busy - had) / spent, 0.0), 1.0)))
            after["steps"] = max(after["steps"], before["steps"])
        devices = []
        for name, counts in sample["devices"].items():
            changes = (now - then for now, then in zip(counts, self.devices.get(name, [0, 0, 0]), strict=True))
            calls, copies, copied = (max(each, 0) / seconds for each in changes)
            devices.append((name, calls, copies, copied))
        self.machines |= sample["machines"]
        self.devices |= sample["devices"]
        self.steps += steps
        runs = sum(each["runs"] for each in sample["machines"].values())
        return Rates(seconds, steps, runs, threads, devices)

    def whole(self) -> str:
        """Return a line about all the time that the script ran."""
        seconds = time.monotonic() - self.begun
        shares = [
            (_thread_name(number, thread), max(busy, 0) / max(each["ns"], 1))
            for number, each in self.machines.items()
            for thread, busy in enumerate(each["busy"])
        ]
        rate = number_of(self.steps / seconds)
        steps = f"{number_of(self.steps)} step{'s' * (self.steps != 1)}"
        return f"{seconds:.1f} s in all: {steps}, {rate} steps/s; work: {format_shares(shares)}"


def _thread_name(machine: str, thread: int) -> str:
    return f"cpu:{thread}" if machine == "1" else f"machine {machine} cpu:{thread}"


def number_of(number: float) -> str:
    """Return a number with at least three digits, and commas between thousands.

    >>> number_of(1234567.8), number_of(12.345), number_of(0)
    ('1,234,568', '12.3', '0')
    """
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"


_FEW = 8  # threads that a line names
_SHORT = 0.3  # seconds: rates over less say little; the end of a script adds such a sample


def format_shares(shares: Sequence[tuple[str, float]]) -> str:
    """Return the shares of threads for one line.

    >>> format_shares([("cpu:0", 0.914), ("cpu:1", 0.5)])
    'cpu:0 91 %, cpu:1 50 %'
    >>> format_shares([(f"cpu:{i}", i / 10) for i in range(10)])
    '10 threads, 0 to 90 %, 45 % on average'
    """
    if len(shares) <= _FEW:
        return ", ".join(f"{name} {share:.0%}".replace("%", " %") for name, share in shares) or "no threads"
    values = [share for _, share in shares]
    mean = sum(values) / len(values)
    least, most = 100 * min(values), 100 * max(values)
    return f"{counted(len(shares), 'thread')}, {least:.0f} to {most:.0f} %, {100 * mean:.0f} % on average"


class _Screen(Protocol):
    def show(self, rates: Rates, history: History) -> None: ...
    def say(self, text: str) -> None: ...


class _Lines:
    """A line a second on standard error: where that is no terminal."""

    def show(self, rates: Rates, history: History) -> None:
        seconds = time.monotonic() - history.begun
        words = [f"{seconds:.0f} s", f"{number_of(rates.steps_per_second)} steps/s"]
        words += [f"{counted(rates.runs, 'run')} in flight", f"work: {format_shares(rates.threads)}"]
        words += [f"{name} {number_of(calls)} tasks/s" for name, calls, *_ in rates.devices]
        print("; ".join(words), file=sys.stderr, flush=True)

    def say(self, text: str) -> None:  # the script writes where we do
        pass


class _Terminal:
    """A table at the bottom of the terminal; what the script prints goes above."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._title = title
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def __enter__(self) -> _Terminal:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, rates: Rates, history: History) -> None:
        self._live.update(self._draw(rates, history), refresh=True)

    def say(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text.from_ansi(text))

    def _draw(self, rates: Rates, history: History) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        seconds = time.monotonic() - history.begun
        head = f"{self._title}  {seconds:.0f} s  {counted(rates.runs, 'run')} in flight"
        steps = f"{number_of(rates.steps_per_second)} steps/s  ({number_of(history.steps)} so far)"
        threads = Table("thread", "work", "waiting", box=None, pad_edge=False, header_style="dim")
        most = max(self._console.height - 8 - len(rates.devices), 2)
        width = min(max(self._console.width - 40, 8), 40)
        for name, share in rates.threads[:most]:
            threads.add_row(name, _bar(share, width), f"{100 * (1 - share):3.0f} %")
        parts: list[RenderableType] = [Text(head, style="bold"), Text(steps), threads]
        if rest := rates.threads[most:]:
            mean = sum(share for _, share in rest) / len(rest)
            parts.append(Text(f"{counted(len(rest), 'more thread')}: {100 * mean:.0f} % work on average", style="dim"))
        if rates.devices:
            devices = Table("device", "tasks/s", "copies/s", "MB/s", box=None, pad_edge=False, header_style="dim")
            for name, calls, copies, copied in rates.devices:
                devices.add_row(name, number_of(calls), number_of(copies), number_of(copied / 1e6))
            parts.append(devices)
        return Group(*parts)


def _bar(share: float, width: int) -> Text:
    from rich.text import Text

    full = round(share * width)
    return Text.assemble(("█" * full, "green"), ("░" * (width - full), "dim"), f" {100 * share:3.0f} %")


def watch(command: Sequence[str], title: str) -> tuple[int, History]:
    """Run a Python script and show what it does. Return what a shell would say of its end, and what was seen.

    On a terminal, what the script prints is shown above the table, line by line. Else it goes where it always does.
    """
    title = one_line(title)
    if not sys.stderr.isatty():
        with _ignored_interrupts():
            return _follow(command, _Lines(), [])
    # What of the script's output would go to the terminal.
    shown = [stream for stream in ("stdout", "stderr") if getattr(sys, stream).isatty()]
    with _ignored_interrupts(), _Terminal(title) as screen:
        return _follow(command, screen, shown)


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Leave Ctrl-C to the script, which gets it as well. A handler of ours, unlike SIG_IGN, is not inherited."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _follow(command: Sequence[str], screen: _Screen, shown: Sequence[str]) -> tuple[int, History]:
    history = History()
    reads, writes = os.pipe()
    environment = os.environ | {ACTIVITY_PIPE: str(writes)} | ({"PYTHONUNBUFFERED": "1"} if shown else {})
    streams = dict.fromkeys(shown, subprocess.PIPE)
    try:
        process = subprocess.Popen([sys.executable, *command], env=environment, pass_fds=(writes,), **streams)  # type: ignore[call-overload]
    finally:
        os.close(writes)
    outputs: dict[int, IO[bytes]] = {getattr(process, name).fileno(): getattr(process, name) for name in shown}
    pending = dict.fromkeys((reads, *outputs), b"")
    ended = os.pidfd_open(process.pid)
    poll = select.poll()
    for descriptor in (*pending, ended):
        poll.register(descriptor, select.POLLIN)
    last = history.begun
    over = False
    while pending:
        # Once the script has ended, what is left in the pipes; a process that it leaves behind may keep them open.
        ready = [descriptor for descriptor, _ in poll.poll(0 if over else None)]
        if over and not ready:
            break
        for descriptor in ready:
            if descriptor == ended:
                over = True
                poll.unregister(ended)
                continue
            found = os.read(descriptor, 1 << 16)
            *lines, pending[descriptor] = (pending[descriptor] + found).split(b"\n")
            if not found:
                if pending[descriptor]:
                    lines.append(pending[descriptor])
                del pending[descriptor]
                poll.unregister(descriptor)
            if descriptor != reads:
                for line in lines:
                    screen.say(line.decode(errors="replace"))
                continue
            for line in lines:
                now = time.monotonic()
                rates = history.add(json.loads(line), max(now - last, 1e-9))
                if last == history.begun or rates.seconds > _SHORT:
                    screen.show(rates, history)
                last = now
    for stream in outputs.values():
        stream.close()
    os.close(reads)
    os.close(ended)
    status = process.wait()
    return status if status >= 0 else 128 - status, history
