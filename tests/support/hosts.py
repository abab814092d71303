"""Hosts of a fleet that are processes on this machine: they can be killed, stopped, and started again.

`connect` is an engine: ``fleet="processes:///directory"`` are the hosts that listen in a directory. A host is
`python -m support.hosts DIRECTORY/NAME.NUMBER.sock`; the number tells those apart that are started one after the other
under one name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from ostinato.errors import DeviceError
from ostinato.tune.fleet import engines
from ostinato.tune.fleet.agent import Agent
from ostinato.tune.fleet.host import HostLostError

TESTS = Path(__file__).parents[1]


def offer() -> None:
    """Have ``fleet="processes://..."`` mean this engine."""
    engines._OURS["processes"] = __name__


def connect(address: str) -> list[ProcessEndpoint]:
    directory = Path(address.partition("://")[2])
    return [ProcessEndpoint(path) for path in sorted(directory.glob("*.sock"))]


class ProcessEndpoint:
    def __init__(self, path: Path) -> None:
        self.node = path.name.split(".")[0]
        self.identity = path.stem
        self._path = path
        self._lock = threading.Lock()
        self._polls: Connection | None = None
        self._tells: Connection | None = None

    def open(self, settings, node):
        self.close()
        try:
            self._polls, self._tells = Client(os.fspath(self._path)), Client(os.fspath(self._path))
            number, found = self._ask(self._polls, "open", settings, node)
            if isinstance(found, str):
                raise DeviceError(found)
            self._ask(self._tells, "use", number)
        except (OSError, EOFError) as error:
            raise HostLostError(f"its process has ended: {error!r}") from error
        return found

    def exchange(self, acknowledged, commands, seconds):
        try:
            return self._ask(self._polls, "exchange", acknowledged, commands, seconds)
        except (OSError, EOFError, AttributeError) as error:
            raise HostLostError(f"its process has ended: {error!r}") from error

    def tell(self, acknowledged, commands):
        with suppress(OSError, EOFError, AttributeError), self._lock:
            self._ask(self._tells, "exchange", acknowledged, commands, 0.0)

    def close(self):
        if self._tells is not None:
            with suppress(OSError, EOFError), self._lock:
                self._ask(self._tells, "close")
        for connection in (self._polls, self._tells):
            if connection is not None:
                connection.close()
        self._polls = self._tells = None

    @staticmethod
    def _ask(connection, *question):
        connection.send(question)
        return connection.recv()


class Host:
    """A host in a process of its own, for tests."""

    def __init__(self, directory: Path, name: str, number: int = 1, **environment: str) -> None:
        self.path = Path(directory, f"{name}.{number}.sock")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.hosts", self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(TESTS), **environment},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for file in (self.process.stdin, self.process.stdout):
            assert file is not None
            file.close()


def _serve(connection: Connection, agents: dict[int, Agent]) -> None:
    agent = None
    with suppress(OSError, EOFError):
        while True:
            kind, *about = connection.recv()
            if kind == "open":
                try:
                    agent = Agent(*about)
                except DeviceError as error:
                    connection.send((0, str(error)))
                    continue
                agents[id(agent)] = agent
                connection.send((id(agent), agent.found))
            elif kind == "use":
                agent = agents[about[0]]
                connection.send(None)
            elif kind == "exchange":
                connection.send(agent.exchange(*about))
            else:
                agent.close()
                connection.send(None)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    agents: dict[int, Agent] = {}
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with Listener(sys.argv[1]) as listener:
        os.write(1, b"ready\n")
        while True:
            threading.Thread(target=_serve, args=(listener.accept(), agents), daemon=True).start()


if __name__ == "__main__":
    main()
