"""Hosts of a fleet whose devices only sleep, each in a process of its own: agents as they are, without any worker.

``fleet="sleeping://DIRECTORY"`` are the hosts that listen in a directory, once `offer` was called.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from ostinato.tune.fleet import agent as agents
from ostinato.tune.fleet import engines
from ostinato.tune.fleet.agent import Agent, Found, Settings
from ostinato.tune.fleet.joining import HostLostError
from ostinato.tune.outcome import OpOutcome, Outcome, Status
from ostinato.tune.trial import Task
from ostinato.tune.workers.slot import LeasedWorker


class SleepingWorker(LeasedWorker):
    """A device that sleeps for `seconds` in place of each candidate, and reports this time as its result."""

    seconds = 0.0

    def start(self, task: Task) -> None:
        """Have a candidate end later."""
        self._task = task
        self._loop.at(self._loop.now() + self.seconds, self._end)

    def room(self, call: bool, most: int = 1) -> bool:
        """Whether it can take a candidate: it sleeps for none at present."""
        return self.leased and not self.busy

    @property
    def busy(self) -> bool:
        """Whether it sleeps."""
        return getattr(self, "_task", None) is not None

    def _end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            op = OpOutcome(task.op, Status.OK, (1e9 * self.seconds,))
            self._told(task, Outcome(Status.OK, (op,)), self._loop.now() - self.seconds)

    def cancel(self) -> None:
        """End what sleeps."""
        self._end()

    def close(self) -> None:
        """Forget what sleeps, and give the lease back."""
        self._task = None
        super().close()


class SleepingHost:
    """The way to a host."""

    def __init__(self, path: Path) -> None:
        self.node = self.identity = path.stem
        self._path = path
        self._lock = threading.Lock()
        self._connections: list[Connection] = []  # for exchanges, and for what is only told

    def open(self, settings: Settings, node: str) -> Sequence[Found]:
        """Have an agent there, and return its devices."""
        self._connections = [Client(str(self._path)) for _ in range(2)]
        found: Sequence[Found] = self._ask(0, "open", settings, node)
        return found

    def exchange(self, *about: Any) -> Any:
        """Call `Agent.exchange`."""
        try:
            return self._ask(0, "exchange", *about)
        except (OSError, EOFError) as error:
            raise HostLostError(repr(error)) from error

    def tell(self, acknowledged: int, commands: Sequence[Any]) -> None:
        """The same without waiting for events."""
        with self._lock:
            self._ask(1, "exchange", acknowledged, commands, 0.0)

    def close(self) -> None:
        """End the agent."""
        if self._connections:
            self._ask(1, "close")
        for connection in self._connections:
            connection.close()
        self._connections = []

    def _ask(self, which: int, *question: Any) -> Any:
        self._connections[which].send(question)
        return self._connections[which].recv()


def offer() -> None:
    """Have ``fleet="sleeping://..."`` mean these hosts."""
    found: dict[Path, SleepingHost] = {}

    def connect(address: str) -> list[SleepingHost]:
        paths = sorted(Path(address.partition("://")[2]).glob("*.sock"))
        return [found.setdefault(path, SleepingHost(path)) for path in paths]

    engine = engines._engine
    engines._engine = lambda name, fleet: connect if name == "sleeping" else engine(name, fleet)


@contextmanager
def hosts(directory: Path, count: int, seconds: float) -> Iterator[str]:
    """Start `count` hosts, and yield the value of `fleet=` that names them."""
    command = [sys.executable, "-m", "benchmarks.sleeping_hosts", str(seconds)]
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([*command, str(directory / f"host{n}.sock")], stdin=pipe, stdout=pipe) for n in range(count)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield f"sleeping://{directory}"
    finally:
        for process in processes:
            process.communicate()


def _serve(connection: Connection, agent: list[Agent]) -> None:
    with suppress(OSError, EOFError):
        while True:
            kind, *about = connection.recv()
            if kind == "open":
                agent.append(Agent(*about))
                connection.send(agent[-1].found)
            elif kind == "exchange":
                connection.send(agent[-1].exchange(*about))
            else:
                agent[-1].close()
                connection.send(None)


def _main(seconds: float, path: str) -> None:
    SleepingWorker.seconds = seconds
    vars(agents)["LeasedWorker"] = SleepingWorker
    agent: list[Agent] = []
    with Listener(path) as listener:
        print("ready", flush=True)
        threading.Thread(target=lambda: [_serve_next(listener, agent) for _ in iter(int, 1)], daemon=True).start()
        sys.stdin.read()  # until the caller ends
        os._exit(0)  # the directory may be gone


def _serve_next(listener: Listener, agent: list[Agent]) -> None:
    threading.Thread(target=_serve, args=(listener.accept(), agent), daemon=True).start()


if __name__ == "__main__":
    _main(float(sys.argv[1]), sys.argv[2])
