"""MPI as the engine of a fleet: rank 0 has the search, and the first rank of each host has its agent."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ostinato.errors import DeviceError, TuningError
from ostinato.tune.fleet.agent import GATHER_SECONDS, Agent, Found, Settings
from ostinato.tune.fleet.host import Endpoint, Fleet, LocalEndpoint
from ostinato.tune.fleet.joining import HostLostError, UnreachableError
from ostinato.tune.fleet.messages import CLOSED, Numbered

if TYPE_CHECKING:
    from ostinato.tune.report.report import Report

_TO_AGENT, _TO_CALLER = 1, 2  # tags
_NAP = 0.5e-3  # seconds between two looks for a message: MPI's own waits keep a core busy that is to be measured on
_OPEN_SECONDS, _ANSWER_SECONDS = 60.0, 5.0


class World:
    """The ranks of ``COMM_WORLD``, in a communicator of a tuner's own; one thread at a time is in MPI."""

    def __init__(self) -> None:
        from ostinato.ranks.launch import import_mpi  # the core and NumPy, which a tuner does not need

        MPI = import_mpi()
        if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise TuningError(
                "MPI must be initialised for threads: leave mpi4py.rc.thread_level at its default, 'multiple'"
            )
        self._lock = threading.Lock()
        self._comm = MPI.COMM_WORLD.Dup()
        self.rank: int = self._comm.rank
        self.size: int = self._comm.size
        beside = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.first = beside.rank == 0
        found = self._comm.allgather((MPI.Get_processor_name(), self.first))
        beside.Free()
        self.hosts = [(name, rank) for rank, (name, first) in enumerate(found) if first]
        self._sent: list[Any] = []

    def send(self, message: object, to: int, tag: int) -> None:
        """Send, without waiting for whoever receives."""
        with self._lock:
            self._sent = [request for request in self._sent if not request.test()[0]]
            self._sent.append(self._comm.isend(message, to, tag))

    def receive(self, source: int, tag: int, seconds: float) -> Any:
        """Return a message; None if there is none for so many seconds."""
        end = time.monotonic() + seconds
        while True:
            with self._lock:
                if self._comm.iprobe(source, tag):
                    return self._comm.recv(source=source, tag=tag)
            if time.monotonic() >= end:
                return None
            time.sleep(_NAP)

    def publish(self, kind: str, value: object) -> None:
        """Tell all other ranks."""
        for rank in range(1, self.size):
            self.send((kind, value), rank, _TO_AGENT)
        while True:
            with self._lock:
                self._sent = [request for request in self._sent if not request.test()[0]]
            if not self._sent:
                return
            time.sleep(_NAP)


class RankEndpoint:
    """The way to the agent of another host."""

    def __init__(self, world: World, node: str, rank: int) -> None:
        self.node, self.identity = node, f"rank {rank}"
        self._world, self._rank = world, rank
        self._numbers = itertools.count()
        self._open = False

    def open(self, settings: Settings, node: str) -> Sequence[Found]:
        self._world.send(("open", (settings, node)), self._rank, _TO_AGENT)
        answer = self._world.receive(self._rank, _TO_CALLER, _OPEN_SECONDS)
        if answer is None:
            raise HostLostError(f"rank {self._rank} must make a Tuner, too, as every rank")
        if isinstance(answer, str):
            raise DeviceError(answer)
        self._open = True
        found: Sequence[Found] = answer
        return found

    def exchange(self, acknowledged: int, commands: Sequence[Numbered], seconds: float) -> tuple[int, list[Numbered]]:
        number = next(self._numbers)
        self._world.send(("exchange", (number, acknowledged, commands, seconds)), self._rank, _TO_AGENT)
        end = time.monotonic() + seconds + _ANSWER_SECONDS
        while (left := end - time.monotonic()) > 0:
            answer = self._world.receive(self._rank, _TO_CALLER, left)
            if answer is not None and answer[0] == number:
                known, events = answer[1]
                return known, events
        raise UnreachableError(f"rank {self._rank} does not answer")

    def tell(self, acknowledged: int, commands: Sequence[Numbered]) -> None:
        self._world.send(("tell", (acknowledged, commands)), self._rank, _TO_AGENT)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._world.send(("close", None), self._rank, _TO_AGENT)


def endpoints(world: World) -> list[Endpoint]:
    """Return the hosts of the ranks, for rank 0."""
    return [LocalEndpoint(node) if rank == 0 else RankEndpoint(world, node, rank) for node, rank in world.hosts]


class Caller(Fleet):
    """The fleet of rank 0: other ranks get what becomes of each search."""

    def __init__(self, world: World, names: str | Sequence[str], settings: Settings) -> None:
        self._world = world
        try:
            super().__init__(endpoints(world), names, settings)
        except BaseException as error:
            world.publish("failed", error)
            raise
        world.publish("ready", self.devices)

    def ended(self, report: Report | BaseException) -> None:
        self._world.publish("failed" if isinstance(report, BaseException) else "report", report)

    def publish(self, value: object) -> None:
        self._world.publish("value", value)

    def close(self) -> None:
        super().close()
        self._world.publish("closed", None)


class Follower:
    """Another rank than 0: it has an agent if it is the first of its host, and gets every report."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._agent: Agent | None = None
        self._poll: tuple[int, float] | None = None  # its number, and when it is answered
        self._first = math.inf  # when the poll had its first event
        self._closed = False  # by rank 0
        self.devices = self._serve("ready")

    def report(self) -> Report:
        """Serve until a search is over, and return its report; raise what rank 0 raised."""
        found: Report = self._serve("report")
        return found

    def receive(self) -> Any:
        """Serve until rank 0 publishes a value, and return it; raise what rank 0 raised in a search."""
        return self._serve("value")

    def close(self) -> None:
        """Serve until rank 0 closes its tuner."""
        if not self._closed:
            self._serve("closed")

    def _serve(self, until: str) -> Any:
        while True:
            message = self._world.receive(0, _TO_AGENT, 0.0 if self._poll else 0.1)
            if message is None:
                self._answer()
                time.sleep(_NAP)
                continue
            kind, value = message
            if kind == "open":
                self._open(*value)
            elif kind == "exchange":
                number, acknowledged, commands, seconds = value
                self._poll, self._first = (number, time.monotonic() + seconds), math.inf
                self._tell(acknowledged, commands)
            elif kind == "tell":
                self._tell(*value)
            elif kind == "close" and self._agent is not None:
                self._agent.close()
                self._agent = None
            elif kind == "failed":
                raise value
            elif kind == until:
                self._closed = kind == "closed"
                return value
            elif kind == "closed" and until != "ready":  # a fleet that cannot be made is closed, and says why then
                self._closed = True
                raise TuningError("rank 0 has closed its tuner: every rank must make the same calls")

    def _open(self, settings: Settings, node: str) -> None:
        try:
            self._agent = Agent(settings, node)
        except DeviceError as error:
            self._world.send(str(error), 0, _TO_CALLER)
        else:
            self._world.send(self._agent.found, 0, _TO_CALLER)

    def _tell(self, acknowledged: int, commands: Sequence[Numbered]) -> None:
        if self._agent is not None:
            self._agent.exchange(acknowledged, commands, 0.0)

    def _answer(self) -> None:
        """Answer the exchange that waits, as `Agent.exchange` does for those that can block."""
        if self._poll is None:
            return
        number, end = self._poll
        answer = (CLOSED, []) if self._agent is None else self._agent.answer
        now = time.monotonic()
        if answer[1]:
            self._first = min(self._first, now)
            end = self._first + GATHER_SECONDS
        urgent = self._agent is not None and answer[1] and self._agent.is_urgent(now - self._first)
        if self._agent is None or answer[0] == CLOSED or now >= end or urgent:
            self._poll = None
            if self._agent is not None:
                self._agent.answered()
            self._world.send((number, answer), 0, _TO_CALLER)
