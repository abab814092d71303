"""The caller's side of a fleet: hosts, and workers there that a search uses like those of this host."""

from __future__ import annotations

import itertools
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from ostinato.errors import DeviceError, TuningError
from ostinato.tune.candidate import Call, Command
from ostinato.tune.fleet.agent import Agent, Found, Settings
from ostinato.tune.fleet.joining import HostLostError, Joining, UnreachableError
from ostinato.tune.fleet.messages import (
    CLOSED,
    Begin,
    DeviceLost,
    End,
    Ended,
    Event,
    Failed,
    Finished,
    Inbox,
    Leased,
    Numbered,
    Order,
    Outbox,
    Start,
    Unfit,
)
from ostinato.tune.fleet.messages import (
    Command as Message,
)
from ostinato.tune.leases.device import Device
from ostinato.tune.leases.devices import list_names
from ostinato.tune.outcome import Outcome, Status
from ostinato.tune.trial import Task, Trial
from ostinato.tune.workers.loop import Loop
from ostinato.tune.workers.slot import Finished as OnFinished
from ostinato.tune.workers.slot import LeasedWorker, Returned
from ostinato.tune.workers.tasks import Tasks

if TYPE_CHECKING:
    from ostinato.tune.report.report import Report

POLL_SECONDS = 2.0
"""An exchange waits so long for events."""

UNREACHABLE = 5.0
"""Seconds without an answer after which a host is lost: fewer than after which its agent gives up."""

PATIENCE = 30.0
"""Seconds for which a search that has lost all hosts waits for one to come back."""

_PAUSE = 0.05  # seconds between two tries to reach a host
_HOLD = 1.0  # seconds, at most, that the next exchange waits for the commands that events lead to, to carry them
_AHEAD_SECONDS, _MOST_AHEAD = 1.6, 256  # what a device has ahead, so that it need not wait for the caller
_LEAST_AHEAD_SECONDS = 0.25  # the same when few candidates are left: as long as an exchange takes
_PACE = 0.1  # seconds that a candidate takes, as long as nobody knows
_OPENED_AT_ONCE = 32
_TRIES = 3  # of a candidate that had begun on a host that was lost
_NONE: Mapping[str, RemoteWorker] = MappingProxyType({})


class Endpoint(Protocol):
    """The way to the agent of a host, as an engine makes it."""

    node: str
    """The name of the host; nodes that share one are told apart by the fleet."""
    identity: str
    """What tells this node from any other, also from one of the same name that was started later."""

    def open(self, settings: Settings, node: str) -> Sequence[Found]:
        """Have an agent, and return its devices; raises `HostLostError`, or what `Tuner` raises for their names."""

    def exchange(self, acknowledged: int, commands: Sequence[Numbered], seconds: float) -> tuple[int, list[Numbered]]:
        """Call `Agent.exchange`; raises `HostLostError` or `UnreachableError`."""

    def tell(self, acknowledged: int, commands: Sequence[Numbered]) -> None:
        """The same without waiting for an answer; nothing is raised."""

    def close(self) -> None:
        """End the agent."""


class LocalEndpoint:
    """The way to an agent in this process."""

    def __init__(self, node: str) -> None:
        self.node = self.identity = node
        self._agent: Agent | None = None

    def open(self, settings: Settings, node: str) -> Sequence[Found]:
        self.close()
        self._agent = Agent(settings, node)
        return self._agent.found

    def exchange(self, acknowledged: int, commands: Sequence[Numbered], seconds: float) -> tuple[int, list[Numbered]]:
        if self._agent is None:
            raise HostLostError("it is closed")
        return self._agent.exchange(acknowledged, commands, seconds)

    def tell(self, acknowledged: int, commands: Sequence[Numbered]) -> None:
        if self._agent is not None:
            self._agent.exchange(acknowledged, commands, 0.0)

    def close(self) -> None:
        if self._agent is not None:
            self._agent.close()
            self._agent = None


class Host:
    """A host of a fleet, with its workers. One thread waits for its events; all else is done in the caller's thread."""

    def __init__(
        self, name: str, endpoint: Endpoint, found: Sequence[Found], before: Mapping[str, RemoteWorker] = _NONE
    ) -> None:
        """`before` are the workers that it had, by the names of devices there, where it comes back."""
        self.name = name
        self.endpoint = endpoint
        self._by_device: dict[str, RemoteWorker] = {}
        for each in found:
            worker = before.get(each.device.name) or RemoteWorker(self.name, each)
            worker.move(self, each)
            self._by_device[each.device.name] = worker
        self._lock = threading.Lock()
        self._flushed = threading.Condition(self._lock)
        self._polling = True  # no exchange waits for commands to carry
        self._ending = False  # no more events lead to commands
        self._inbox, self._outbox = Inbox(), Outbox()
        self._unsent: list[Message] = []  # commands that the outbox does not have yet
        self._told = 0  # the number of the last command that was sent at least once
        self._events: list[Event | HostLostError] = []
        self._loop: Loop | None = None
        self._due = False
        self._behind = math.inf  # how many seconds the clock there is behind the clock here, or less
        self.lost = ""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._thread: threading.Thread | None = None

    @property
    def workers(self) -> list[RemoteWorker]:
        """Its devices."""
        return list(self._by_device.values())

    @property
    def by_device(self) -> Mapping[str, RemoteWorker]:
        """Its devices, by their names there."""
        return self._by_device

    def begin(self, loop: Loop, search: Begin) -> None:
        """Begin a search, whose events are read in a loop."""
        if self.lost:
            return
        self._loop, self._due, self._ending = loop, False, False
        loop.watch(self._reader, self._arrived)
        self._thread = threading.Thread(target=self._listen, name=f"ostinato fleet {self.name}", daemon=True)
        self.send(search)  # the first exchange carries it, and the first orders

    def end(self) -> None:
        """End the search, and wait until nothing of it is left there."""
        if self._thread is None:
            return
        self.send(End())
        with self._lock:
            self._ending = True
        self.flush()
        self._thread.join()
        self._thread = None
        for event in self._events:
            if isinstance(event, HostLostError):
                self.lost = self.lost or f"host {self.name} is lost: {event}"
        self._events.clear()
        if self._loop is not None:
            self._loop.forget(self._reader)
        self._loop = None

    @property
    def reports(self) -> bool:
        """Whether it has reported, and the exchange that carries commands there has not begun yet."""
        return not self._polling

    def send(self, command: Message) -> None:
        """Send a command before the loop waits the next time."""
        self._unsent.append(command)
        self._flush_later()

    def _flush_later(self) -> None:
        if not self._due and self._loop is not None:
            self._due = True
            self._loop.before_waiting(self.flush)

    def flush(self) -> None:
        """Send what waits now, or have the exchange that is due carry it."""
        self._due = False
        with self._lock:
            self._post()
            if self._thread is not None and self._thread.ident is None:
                self._thread.start()
                return
            if not self._polling:
                self._flushed.notify()
                return
            new = [each for each in self._outbox.waiting if each[0] > self._told]
            if not new:
                return
            self._told = new[-1][0]
            acknowledged = self._inbox.last
        self.endpoint.tell(acknowledged, new)

    def moment_of(self, event: Finished, now: float) -> float:
        """Return when something ended by the clock of this process, which says `now`.

        Clocks of hosts have nothing in common. The event that arrived soonest after its end tells the difference.
        """
        self._behind = min(self._behind, now - event.ended)
        return event.ended + self._behind

    def _post(self) -> None:
        for command in self._unsent:
            self._outbox.put(command)
        self._unsent.clear()

    def close(self) -> None:
        """Let go of what it has here."""
        os.close(self._reader)
        os.close(self._writer)

    def _listen(self) -> None:
        """Take the events of a search until its end, or that of the host."""
        heard = time.monotonic()
        repeats, ended = False, False
        while not ended:
            with self._lock:
                self._polling = True
                acknowledged, told = self._inbox.last, self._told
                commands = [each for each in self._outbox.waiting if repeats or each[0] > told]
                self._told = max(told, commands[-1][0]) if commands else told
            try:
                known, events = self.endpoint.exchange(acknowledged, commands, POLL_SECONDS)
                if known == CLOSED:
                    raise HostLostError("its agent has ended")
            except UnreachableError as error:
                if time.monotonic() > heard + UNREACHABLE:
                    self._give(HostLostError(f"it has not answered for {UNREACHABLE:g} s: {error}"))
                    return
                repeats = True
                time.sleep(_PAUSE)
                continue
            except HostLostError as error:
                self._give(error)
                return
            heard = time.monotonic()
            with self._lock:
                self._outbox.acknowledge(known)
                # A command that was sent before this exchange and is not known may have been lost.
                repeats = any(number <= told for number, _ in self._outbox.waiting)
                found = self._inbox.take(events)
                self._events += found
                ended = any(isinstance(event, Ended) for event in found)
                if found and not ended:
                    self._polling = self._ending
                    self._wake()
                    if not self._polling:
                        self._flushed.wait(_HOLD)  # most events lead to commands
            if ended:
                self._wake()

    def _give(self, error: HostLostError) -> None:
        with self._lock:
            self._events.append(error)
        self._wake()

    def _wake(self) -> None:
        with suppress(BlockingIOError, OSError):
            os.write(self._writer, b"e")

    def _arrived(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._reader, 4096)
        with self._lock:
            events, self._events = self._events, []
        now = time.monotonic()
        for event in events:
            if isinstance(event, Finished):
                self._by_device[event.device].finished(event, now)
            elif isinstance(event, HostLostError):
                self.lost = self.lost or f"host {self.name} is lost: {event}"
                for worker in self.workers:
                    worker.lose(self.lost)
            elif isinstance(event, Unfit):
                self.lost = f"host {self.name}: {event.why}"
                for worker in self.workers:
                    worker.lose(self.lost, blames=False)
            elif isinstance(event, Failed):
                raise TuningError(f"host {self.name}: {event.why}")
            elif not isinstance(event, Ended):
                self._by_device[event.device].told(event)
        for worker in self.workers:
            worker.set_pace()
        self._flush_later()  # also without commands: the next exchange waits for that


class RemoteWorker(LeasedWorker):
    """A leased worker on another host. The agent there keeps limits of time, builds, and checks outputs."""

    def __init__(self, node: str, found: Found) -> None:
        self.name = f"{node}/{found.device.name}"
        identities = tuple(f"{node}/{each}" for each in found.device.identities)
        self.device = replace(found.device, name=self.name, identities=identities, cores=None, host=node)
        self.measuring = {}
        self._sent: dict[int, Task] = {}
        self._numbers = itertools.count(1)
        self._pace = _PACE
        self.set_pace()
        self._built = False  # candidates are built

    def move(self, host: Host, found: Found) -> None:
        """Be a device of a host: of the first, or of one that has taken its place."""
        self._host, self._there = host, found.device.name
        self._builds = found.cores
        self.lost, self.leased = "", False
        self._asked, self._holder = False, ""

    def serve(self, finished: OnFinished, returned: Returned, stop: object) -> None:
        self.lost = self._host.lost
        self._finished, self._returned = finished, returned
        self._sent.clear()
        self._pace = _PACE
        self.set_pace()
        self._built = False

    def finished(self, event: Finished, now: float) -> None:
        """Take the outcome of a candidate; `set_pace` is to be called after the last of several."""
        task = self._sent.pop(event.number, None)
        if task is not None:  # else an earlier search asked for it
            self._pace = 0.5 * (self._pace + event.seconds)
            ended = self._host.moment_of(event, now)
            self._finished(self, task, event.outcome, ended - event.seconds, ended)

    def told(self, event: Leased | DeviceLost) -> None:
        """Take another event of this device."""
        if isinstance(event, DeviceLost):
            self.lose(event.why)
        elif self._asked:
            self._holder, self.leased = event.holder, not event.holder

    def lose(self, why: str, *, blames: bool = True) -> None:
        """Give back what was sent: what had begun three times at most, unless it cannot be why the host is lost."""
        if self.lost:
            return
        self.lost, self.leased = why, False
        tasks = list(self._sent.values())
        self._sent.clear()
        if blames and tasks and tasks[0].what not in ("final", "anchor"):
            first = tasks[0]
            first.trial.tries += 1
            if first.trial.tries > _TRIES:
                del tasks[0]
                now = time.monotonic()
                self._finished(self, first, Outcome(Status.DEVICE_LOST, (), why), now, now)
        if tasks:
            self._returned(self, tasks, False)

    @property
    def busy(self) -> bool:
        return bool(self._sent)

    def room(self, call: bool, most: int = 1) -> bool:
        # A message of its own costs the caller as much as an exchange: only a device with little to do gets one.
        ahead = self._ahead if self._host.reports else self.least_ahead
        if self._built:
            ahead += self._builds
        return self.leased and not self.lost and len(self._sent) < most and len(self._sent) < ahead

    def set_pace(self) -> None:
        """Set how much work the device has ahead, where candidates take as long as lately."""
        pace = self._pace
        self._ahead = min(_MOST_AHEAD, 1 + math.ceil(_AHEAD_SECONDS / max(pace, 1e-6)))
        self.least_ahead = min(_MOST_AHEAD, 1 + math.ceil(_LEAST_AHEAD_SECONDS / max(pace, 1e-6)))

    def start(self, task: Task) -> None:
        number, candidate = next(self._numbers), task.trial.candidate
        self._sent[number] = task
        builds = isinstance(candidate, Call) and candidate.prepare is not None
        self._built |= builds or (isinstance(candidate, Command) and candidate.build is not None)
        if not self._asked:
            self.take_lease()  # a host that has come back in the final has not been asked for it
        self._host.send(Start(self._there, number, task.what, candidate, task.bound, task.source))

    def deadline(self) -> float:
        return math.inf

    def expire(self) -> None:
        pass

    def cancel(self) -> None:
        if self._sent:
            self._order("cancel")

    def forget(self) -> None:
        self._order("forget")

    def sweep(self) -> bool:
        return True

    def take_lease(self) -> str:
        if not self._asked:
            self._asked, self._holder = True, ""
            self._order("lease")
        return self._holder

    def release(self) -> None:
        self._let_go("release")

    def close(self) -> None:
        self._sent.clear()
        self._let_go("close")

    def _let_go(self, what: str) -> None:
        if self._asked and not self.lost:
            self._order(what)
        self._asked = self.leased = False

    def _order(self, what: str) -> None:
        self._host.send(Order(self._there, what))


class RemoteTasks(Tasks):
    """Makes tasks whose requests the agents write; `source` returns the digest of the code of a candidate here."""

    def __init__(self, *about: Any, source: Callable[[Trial], str], **limits: Any) -> None:
        super().__init__(*about, **limits)
        self._source = source

    def measure(self, trial: Trial, worker: LeasedWorker, bound: float | None, what: str) -> Task:
        seconds = getattr(trial.candidate, "timeout", None) or self._seconds
        return Task(trial, what, self._op, seconds, bound=bound, source=self._source(trial))


class Fleet:
    """The hosts of an engine, with the devices that are used of each.

    With `look`, which returns the endpoints that there are now, hosts join while a search runs: new ones, and lost ones
    that can be reached again, under the name that they had.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        names: str | Sequence[str],
        settings: Settings,
        look: Callable[[], Sequence[Endpoint]] | None = None,
    ) -> None:
        self.hosts: list[Host] = []
        self._endpoints = list(endpoints)
        self._settings = settings
        self._look = look
        self._wanted = list_names(names)
        self._joining: Joining | None = None
        self._loop: Loop | None = None
        self._search: Begin | None = None
        self._joined: Callable[[Sequence[RemoteWorker]], None] = lambda workers: None
        self._note: Callable[[str], None] = lambda text: None
        nodes = _told_apart([endpoint.node for endpoint in endpoints])
        self._alone = len(nodes) == 1
        for name in self._wanted:
            host, slash, _ = name.partition("/")
            if slash and host not in nodes:
                raise DeviceError(f"{name!r}: there is no host {host}; the hosts of the fleet are {', '.join(nodes)}")
        self._names = {each.identity: node for node, each in zip(nodes, endpoints, strict=True)}
        problems: list[str] = []
        try:
            with ThreadPoolExecutor(_OPENED_AT_ONCE) as pool:  # an agent takes seconds to start
                opened = [pool.submit(self._open, *each) for each in zip(nodes, endpoints, strict=True)]
            for node, endpoint, result in zip(nodes, endpoints, opened, strict=True):
                try:
                    found = result.result()
                except (DeviceError, HostLostError) as error:
                    problems.append(f"{node}: {error}")
                    continue
                if found:
                    self.hosts.append(Host(node, endpoint, found))
            if not self.hosts:
                raise DeviceError("; ".join(problems) or "the fleet has no hosts")
            if problems:
                logging.getLogger("ostinato").warning("hosts that are left out of the fleet: %s", "; ".join(problems))
        except BaseException:
            self.close()
            raise

    @property
    def grows(self) -> bool:
        """Whether hosts can join during a search."""
        return self._look is not None

    @property
    def patience(self) -> float:
        """Seconds for which a search that has lost all hosts waits for one to come back."""
        return PATIENCE if self.grows else 0.0

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices of all hosts, as results name them."""
        return tuple(worker.device for worker in self.workers)

    @property
    def workers(self) -> list[RemoteWorker]:
        """The devices of all hosts."""
        return [worker for host in self.hosts for worker in host.workers]

    def begin(self, loop: Loop, search: Begin) -> None:
        """Begin a search.

        Raises
        ------
        TuningError
            The devices are of several models: their times cannot be compared.
        """
        self._loop, self._search = loop, search
        if self._look is not None and all(host.lost for host in self.hosts):  # of an earlier search
            for node, endpoint in self.missing():
                with suppress(DeviceError, HostLostError):
                    self._join(node, endpoint, self._open(node, endpoint))
        models: dict[str, list[str]] = {}
        for worker in self.workers:
            models.setdefault(_model(worker.device), []).append(worker.name)
        if len(models) > 1:
            told = "; ".join(f"{model}: {', '.join(names)}" for model, names in models.items())
            raise TuningError(
                f"the devices of one search must be of one model, but there are {told}; name those to use"
            )
        for host in self.hosts:
            host.begin(loop, search)

    def watch(self, joined: Callable[[Sequence[RemoteWorker]], None], note: Callable[[str], None]) -> None:
        """Have the search that has begun told of devices that join it, and of what should be known of hosts."""
        if self._look is None or self._loop is None:
            return
        self._joined, self._note = joined, note
        self._joining = Joining(self.missing, self._open)
        self._loop.watch(self._joining.reader, self._arrived)

    def end(self) -> None:
        """End a search: what it built goes, and devices are given back."""
        if self._joining is not None:
            if self._loop is not None:
                self._loop.forget(self._joining.reader)
            for _, endpoint, _ in self._joining.close():
                endpoint.close()
            self._joining = None
        for host in self.hosts:
            host.end()
        self._loop = self._search = None

    def ended(self, report: Report | BaseException) -> None:
        """Take note of what became of a search."""

    def publish(self, value: object) -> None:
        """Give a value to the processes that follow this one."""

    def close(self) -> None:
        """End all agents."""
        for host in self.hosts:
            host.endpoint.close()
            host.close()
        for endpoint in self._endpoints:
            endpoint.close()

    def missing(self) -> list[tuple[str, Endpoint]]:
        """Return the names and endpoints of nodes that are there, but are none of the fleet's hosts."""
        assert self._look is not None
        lost = {host.name: host.endpoint for host in self.hosts if host.lost}
        held = {host.endpoint.identity for host in self.hosts if not host.lost}
        taken = {host.name for host in self.hosts if not host.lost}
        found = []
        for endpoint in self._look():
            if endpoint.identity in held:
                continue
            name = self._names.get(endpoint.identity, "")
            if not name or name in taken:  # a node that is new may take the name of one that is lost
                names = itertools.chain((endpoint.node,), (f"{endpoint.node}#{n}" for n in itertools.count(2)))
                others = {name for identity, name in self._names.items() if name not in lost}
                name = next(each for each in names if each not in taken and each not in others)
            taken.add(name)
            found.append((name, endpoint))
        return found

    def _open(self, node: str, endpoint: Endpoint) -> Sequence[Found]:
        """Have an agent on a node, and return the devices there that are wanted; none, if no device there is."""
        own = tuple(_names_of(node, self._wanted))
        shared = "" if self._alone and node == self._names.get(endpoint.identity) else node
        return endpoint.open(self._settings._replace(names=own), shared) if own else ()

    def _arrived(self) -> None:
        assert self._joining is not None
        for node, endpoint, found in self._joining.take():
            self._join(node, endpoint, found)

    def _join(self, node: str, endpoint: Endpoint, found: Sequence[Found]) -> None:
        """Take a node into the fleet, and into the search."""
        before = next((host for host in self.hosts if host.name == node), None)
        models = {_model(worker.device) for worker in self.workers}
        others = sorted({_model(each.device) for each in found} - models)
        if others or not found or self._loop is None or self._search is None:
            endpoint.close()
            if others:
                self._tell(f"host {node} is left out: its devices are {', '.join(others)}, not {', '.join(models)}")
            return
        host = Host(node, endpoint, found, _NONE if before is None else before.by_device)
        self._names[endpoint.identity] = node
        if before is not None:
            before.end()
            before.close()
            self.hosts.remove(before)
            if before.endpoint is not endpoint:
                before.endpoint.close()
        self.hosts.append(host)
        host.begin(self._loop, self._search)
        self._tell(f"host {node} has {'joined' if before is None else 'come back'}")
        self._joined(host.workers)

    def _tell(self, text: str) -> None:
        logging.getLogger("ostinato").info("%s", text)
        self._note(text)


def _model(device: Device) -> str:
    return f"{device.model} {device.driver}".strip()


def _told_apart(nodes: Sequence[str]) -> list[str]:
    """Return names of which no two are the same.

    Examples
    --------
    >>> _told_apart(["a", "b", "a"])
    ['a', 'b', 'a#2']
    """
    count: dict[str, int] = {}
    names = []
    for node in nodes:
        count[node] = count.get(node, 0) + 1
        names.append(node if count[node] == 1 else f"{node}#{count[node]}")
    return names


def _names_of(node: str, names: Sequence[str]) -> list[str]:
    """Return those of the names that are of a host, as it knows them: without a host's name, they are of each."""
    found = []
    for name in names:
        host, slash, device = name.partition("/")
        if not slash:
            found.append(name)
        elif host == node:
            found.append(device)
    return found
