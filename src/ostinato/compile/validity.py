"""What happens to one unit, step by step: where it is valid, when it is copied, and what must come after what."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ostinato.compile.homes import HOST

__all__ = ["CopyKey", "Edge", "Event", "Followed", "Need", "Node", "NoteKey", "follow"]


class Event(NamedTuple):
    """An access of an op to a unit, in steps that are `phase` modulo `period`."""

    op: int
    operand: int
    """Which of the op's."""
    phase: int
    period: int
    memory: int
    """Where it looks for the unit."""
    needs: bool
    """Whether the unit must be valid there before."""
    writes: bool
    """Whether it is valid nowhere else afterwards."""
    covers: bool
    """Whether all of the unit is written."""
    in_stream: bool
    """Whether the op is in the order of a stream, and so can itself note what it writes."""


class CopyKey(NamedTuple):
    """A copy that an op needs of the unit, in steps that are `phase` modulo the unit's period."""

    op: int
    operand: int
    source: int
    target: int
    phase: int
    after: bool = False
    """Whether it comes after the op: what one device has written for the memory of another."""


class NoteKey(NamedTuple):
    """A note of where the unit is newest, after an op that is in no stream has written it."""

    op: int


Node: TypeAlias = int | CopyKey | NoteKey
"""An op, or what is added."""


class Edge(NamedTuple):
    """`dst` comes after `src` so many steps before; with poison if it needs what that did."""

    src: Node
    dst: Node
    distance: int
    poison: bool


@dataclass
class Need:
    """When a copy is needed."""

    first: set[int] = field(default_factory=set)
    """In which steps of a run, counted from its first, of those in which the unit is looked for the first time."""
    later: bool = False
    """Whether in the steps after these."""
    readers: set[int] = field(default_factory=set)
    """The ops that rely on it."""
    initial: bool = True
    """Whether it is always of what the home had when the run began."""


class Written(NamedTuple):
    """A write of the unit, by an op or by a copy that comes after one, in steps that are `phase` modulo the period."""

    by: Node
    phase: int
    memory: int


@dataclass
class Followed:
    """What a unit needs."""

    period: int
    """After how many steps all repeats."""
    copies: dict[CopyKey, Need]
    edges: set[Edge]
    written: set[Written]
    """Writes after which it is to be known whether the home is out of date."""
    noted: set[int]
    """Ops in no stream that are followed by a note."""
    stale: bool = False
    """Whether the home can be out of date at the end of a step."""


def follow(home: int, events: Sequence[Event]) -> Followed:
    """Return the copies that a unit needs so that each event finds it, no more of them than that takes.

    A run begins with the unit valid at its home, and there only. Steps repeat after so many as all events take turns
    in; what a step finds depends on the run's first step only until each event has been once: from then on, on the
    last write, or without one on all that was copied.

    Parameters
    ----------
    home
        The memory that the unit is in.
    events
        In the order in which they happen in a step; what an op needs before what it writes.
    """
    period = math.lcm(*{event.period for event in events})
    timeline: list[tuple[int, Event]] = []
    for residue in range(period):
        written: dict[int, int] = {}  # by op, its place in the timeline
        for event in events:
            if residue % event.period != event.phase % event.period:
                continue
            if event.writes and event.op in written:  # through another operand: that is one write
                place = written[event.op]
                timeline[place] = residue, event._replace(covers=event.covers or timeline[place][1].covers)
                continue
            if event.writes:
                written[event.op] = len(timeline)
            timeline.append((residue, event))
    out = Followed(period, {}, set(), set(), set())
    previous = timeline[-1][0] - period
    for begin, (residue, _) in enumerate(timeline):
        if residue != previous:
            _Walk(out, home, timeline, begin, residue - previous).run()
            previous = residue
    return out


_ROUNDS = 3
"""The first, one as all that follow, and one more for what reaches from one to the next."""


@dataclass
class _Since:
    """What has happened, each with its step: apart, since ops know their order among themselves."""

    ops: dict[Node, int] = field(default_factory=dict)
    added: dict[Node, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.ops or self.added)

    def all(self) -> Iterator[tuple[Node, int]]:
        yield from self.ops.items()
        yield from self.added.items()


class _Walk:
    """Some steps from one place in the timeline on.

    The run's first step may be any from that of the event before, without it, on: `earlier` of them.
    """

    def __init__(
        self, out: Followed, home: int, timeline: Sequence[tuple[int, Event]], begin: int, earlier: int
    ) -> None:
        self._out = out
        self._home = home
        self._timeline = timeline
        self._begin = begin
        self._earlier = earlier
        self._valid = {home}
        self._newest = home
        self._wrote: dict[int, _Since] = defaultdict(_Since)  # by memory: what wrote what is there
        self._read: dict[int, _Since] = defaultdict(_Since)  # and what has read it since
        self._told = _Since()  # what has last told, or asked, which memory is newest
        self._phase = self._step = 0
        self._first = True

    def run(self) -> None:
        length, period = len(self._timeline), self._out.period
        start = self._timeline[self._begin][0]
        for count in range(_ROUNDS * length):
            place = self._begin + count
            self._phase, event = self._timeline[place % length]
            before, self._step = self._step, self._phase + period * (place // length)
            self._out.stale |= before < self._step and self._newest != self._home
            self._first = count < length
            self._since = self._step - start
            if event.needs:
                self._need(event)
            if event.writes:
                self._write(event)
        self._out.stale |= self._newest != self._home

    def _need(self, event: Event) -> None:
        memory = event.memory
        if memory not in self._valid:
            if HOST in self._valid:
                self._copy(event, HOST, memory)
            else:
                (only,) = self._valid
                self._copy(event, only, HOST)
                if memory != HOST:
                    self._copy(event, HOST, memory)
        for node, step in self._wrote[memory].added.items():
            self._relies(event, node, event.op, step)
        self._read[memory].ops[event.op] = self._step

    def _copy(self, event: Event, source: int, target: int, after: bool = False) -> CopyKey:
        key = CopyKey(event.op, event.operand, source, target, self._phase, after)
        need = self._out.copies.setdefault(key, Need())
        if self._first:
            need.first.update(range(self._since, self._since + self._earlier))
        else:
            need.later = True
        need.initial &= not self._wrote[source]
        for node, step in self._wrote[source].all():
            self._relies(event, node, key, step)
        for node, step in (*self._wrote[target].all(), *self._read[target].all()):
            self._edge(node, key, step)
        self._read[source].added[key] = self._step
        self._wrote[target] = _Since(added={key: self._step})
        self._read[target] = _Since()
        self._valid.add(target)
        if target == self._home:
            self._newest = target
            self._out.written.add(Written(key, self._phase, target))
            self._tell(key)
        return key

    def _write(self, event: Event) -> None:
        memory = event.memory
        for known in (self._wrote[memory], self._read[memory]):
            for node, step in known.added.items():
                self._edge(node, event.op, step)
        if event.covers:
            self._wrote[memory] = _Since(ops={event.op: self._step})
            self._read[memory] = _Since()
        else:
            self._wrote[memory].ops[event.op] = self._step
        self._valid = {memory}
        away = HOST not in (memory, self._home) and memory != self._home
        if away:
            # From one device to another it goes by way of the host; there it waits for the end of the run.
            by: Node = self._copy(event, memory, HOST, after=True)
            memory = HOST
        else:
            by = event.op
        if memory != self._home or self._newest != self._home:
            if not away and not event.in_stream:
                self._out.noted.add(event.op)
                by = NoteKey(event.op)
                self._edge(event.op, by, self._step, poison=True)
            self._out.written.add(Written(by, self._phase, memory))
            self._tell(by)
        elif event.in_stream:
            self._out.written.add(Written(by, self._phase, memory))
        self._newest = memory

    def _tell(self, node: Node) -> None:
        for other, step in self._told.added.items() if isinstance(node, int) else self._told.all():
            self._edge(other, node, step)
        if isinstance(node, int):
            self._told.ops[node] = self._step
        else:
            self._told = _Since(added={node: self._step})

    def _relies(self, event: Event, src: Node, dst: Node, step: int) -> None:
        self._edge(src, dst, step, poison=True)
        if isinstance(src, CopyKey):
            self._out.copies[src].readers.add(event.op)

    def _edge(self, src: Node, dst: Node, step: int, poison: bool = False) -> None:
        distance = self._step - step
        if src != dst or distance:
            self._out.edges.add(Edge(src, dst, distance, poison))
