"""What happens to one unit, step by step: where it is valid, when it is copied, and what must come after what."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ostinato.compiler.coherence.memories import HOST

__all__ = ["CopyKey", "Event", "Followed", "Need", "NoteKey", "OfUnit", "Written", "follow", "follow_all"]


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

    by: int
    """A place in `Followed.nodes`."""
    phase: int
    memory: int


@dataclass
class Followed:
    """What units need to which the same happens. Ops are numbers that each unit has for its own."""

    period: int
    """After how many steps all repeats."""
    nodes: list[int | CopyKey | NoteKey]
    """The ops by number, then what is added."""
    copies: dict[int, Need] = field(default_factory=dict)
    """By place in `nodes`."""
    edges: set[tuple[int, int, int, bool]] = field(default_factory=set)
    """What comes after what so many steps before: places in `nodes`, source first; with poison if it needs that."""
    written: set[Written] = field(default_factory=set)
    """Writes after which it is to be known whether the home is out of date."""
    noted: set[int] = field(default_factory=set)
    """Ops in no stream that are followed by a note."""
    stale: bool = False
    """Whether the home can be out of date at the end of a step."""


class OfUnit(NamedTuple):
    """What one unit needs."""

    found: Followed
    ops: tuple[int, ...]
    """By the number that an op has in `found`, the op."""

    def copies(self) -> Iterator[tuple[int, CopyKey, Need]]:
        """Give the copies that it needs, each with its place among the nodes."""
        for place, need in self.found.copies.items():
            key = self.found.nodes[place]
            assert isinstance(key, CopyKey)
            yield place, CopyKey(self.ops[key.op], *key[1:]), need


def follow_all(events: Mapping[int, Sequence[Event]], home_of: Callable[[int], int]) -> dict[int, OfUnit]:
    """Return what each unit needs: see `follow`. Units to which the same happens are followed once.

    Parameters
    ----------
    events
        By unit, what happens to it in a step.
    home_of
        Gives the memory that a unit is in.
    """
    known: dict[tuple[int, tuple[Event, ...]], Followed] = {}
    result = {}
    for unit, happening in sorted(events.items()):
        number: dict[int, int] = {}
        alike = tuple([Event(number.setdefault(event[0], len(number)), *event[1:]) for event in happening])
        home = home_of(unit)
        found = known.get((home, alike))
        if found is None:
            found = known[home, alike] = follow(home, alike, len(number))
        result[unit] = OfUnit(found, tuple(number))
    return result


def follow(home: int, events: Sequence[Event], ops: int) -> Followed:
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
    ops
        How many ops there are.
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
    out = Followed(period, [*range(ops)])
    places: dict[CopyKey | NoteKey, int] = {}
    previous = timeline[-1][0] - period
    for begin, (residue, _) in enumerate(timeline):
        if residue != previous:
            _Walk(out, places, home, timeline, begin, residue - previous).run()
            previous = residue
    return out


_ROUNDS = 3
"""The first, one as all that follow, and one more for what reaches from one to the next."""


class _Since:
    """What has happened, each with its step: apart, since ops know their order among themselves."""

    __slots__ = ("added", "ops")

    def __init__(self, ops: dict[int, int] | None = None, added: dict[int, int] | None = None) -> None:
        self.ops = ops if ops is not None else {}
        self.added = added if added is not None else {}

    def __bool__(self) -> bool:
        return bool(self.ops or self.added)

    def all(self) -> list[tuple[int, int]]:
        return [*self.ops.items(), *self.added.items()]


class _Walk:
    """Some steps from one place in the timeline on.

    The run's first step may be any from that of the event before, without it, on: `earlier` of them.
    """

    def __init__(
        self,
        out: Followed,
        places: dict[CopyKey | NoteKey, int],
        home: int,
        timeline: Sequence[tuple[int, Event]],
        begin: int,
        earlier: int,
    ) -> None:
        self._out = out
        self._places = places  # among the nodes
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
            self._relies(event.op, node, event.op, step)
        self._read[memory].ops[event.op] = self._step

    def _place(self, key: CopyKey | NoteKey) -> int:
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._out.nodes)
            self._out.nodes.append(key)
        return place

    def _copy(self, event: Event, source: int, target: int, after: bool = False) -> int:
        key = self._place(CopyKey(event.op, event.operand, source, target, self._phase, after))
        need = self._out.copies.get(key)
        if need is None:
            need = self._out.copies[key] = Need()
        if self._first:
            need.first.update(range(self._since, self._since + self._earlier))
        else:
            need.later = True
        need.initial &= not self._wrote[source]
        for node, step in self._wrote[source].all():
            self._relies(event.op, node, key, step)
        for node, step in self._wrote[target].all() + self._read[target].all():
            self._edge(node, key, step)
        self._read[source].added[key] = self._step
        self._wrote[target] = _Since(added={key: self._step})
        self._read[target] = _Since()
        self._valid.add(target)
        if target == self._home:
            self._newest = target
            self._out.written.add(Written(key, self._phase, target))
            self._tell_of_added(key)
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
            by = self._copy(event, memory, HOST, after=True)
            memory = HOST
        else:
            by = event.op
        if memory != self._home or self._newest != self._home:
            if not away and not event.in_stream:
                self._out.noted.add(event.op)
                by = self._place(NoteKey(event.op))
                self._edge(event.op, by, self._step, poison=True)
            self._out.written.add(Written(by, self._phase, memory))
            if by == event.op:
                self._tell(by)
            else:
                self._tell_of_added(by)
        elif event.in_stream:
            self._out.written.add(Written(by, self._phase, memory))
        self._newest = memory

    def _tell(self, op: int) -> None:
        for other, step in self._told.added.items():
            self._edge(other, op, step)
        self._told.ops[op] = self._step

    def _tell_of_added(self, node: int) -> None:
        for other, step in self._told.all():
            self._edge(other, node, step)
        self._told = _Since(added={node: self._step})

    def _relies(self, op: int, src: int, dst: int, step: int) -> None:
        self._edge(src, dst, step, poison=True)
        need = self._out.copies.get(src)
        if need is not None:
            need.readers.add(op)

    def _edge(self, src: int, dst: int, step: int, poison: bool = False) -> None:
        distance = self._step - step
        if src != dst or distance:
            self._out.edges.add((src, dst, distance, poison))
