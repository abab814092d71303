"""The coherence protocol of one equivalence set, step by step: where it is valid, when it is copied, in which order."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ostinato.compiler.ir import HOST


class Event(NamedTuple):
    """An access of an op to a set, in steps that are `phase` modulo `period`."""

    op: int
    operand: int  # Which of the op's.
    phase: int
    period: int
    memory: int  # Where it looks for the set.
    needs: bool  # Whether the set must be valid there before.
    writes: bool  # Whether it is valid nowhere else afterwards.
    covers: bool  # Whether all of the set is written.
    in_stream: bool  # Whether the op is in the order of a stream, and so sets flags itself when it has written.


class CopyKey(NamedTuple):
    """A copy that an op needs of the set, in steps that are `phase` modulo the set's period."""

    op: int
    operand: int
    source: int
    target: int
    phase: int
    after: bool = False  # Whether it comes after the op: data that one device has written for the memory of another.


class NoteKey(NamedTuple):
    """A note of where the set is newest, after an op that is in no stream has written it."""

    op: int


@dataclass
class Need:
    """When a copy is needed."""

    first: set[int] = field(default_factory=set)
    """In which steps of a run, counted from its first, of those in which the set is used for the first time."""
    later: bool = False  # Whether in the steps after these.
    readers: set[int] = field(default_factory=set)  # The ops that rely on it.
    initial: bool = True  # Whether it always copies what the home had when the run began.


class Written(NamedTuple):
    """A write of the set, by an op or by a copy that comes after one, in steps that are `phase` modulo the period."""

    by: int  # A number of `Followed.nodes`.
    phase: int
    memory: int


@dataclass
class Followed:
    """What sets need that are used alike. Each set has numbers of its own for ops."""

    period: int  # After how many steps all repeats.
    nodes: list[int | CopyKey | NoteKey]  # The ops by number, then the copies and notes that are inserted.
    copies: dict[int, Need] = field(default_factory=dict)  # By number of a node.
    edges: set[tuple[int, int, int, bool]] = field(default_factory=set)
    """Source, destination, distance in steps, and whether the edge carries poison; nodes by number."""
    written: set[Written] = field(default_factory=set)  # Writes that set or clear flags.
    noted: set[int] = field(default_factory=set)  # Ops in no stream that are followed by a note.
    stale: bool = False  # Whether the home can be out of date at the end of a step.


class OfSet(NamedTuple):
    """What one equivalence set needs."""

    found: Followed
    ops: tuple[int, ...]  # By the number that an op has in `found`, the op.

    def copies(self) -> Iterator[tuple[int, CopyKey, Need]]:
        """Yield the copies that it needs, each with the number of its node."""
        for node, need in self.found.copies.items():
            key = self.found.nodes[node]
            assert isinstance(key, CopyKey)
            yield node, CopyKey(self.ops[key.op], *key[1:]), need


def follow_all(events: Mapping[int, Sequence[Event]], home_of: Callable[[int], int]) -> dict[int, OfSet]:
    """Return what each set needs: see `follow`. Sets that are used alike are followed once."""
    known: dict[tuple[int, tuple[Event, ...]], Followed] = {}
    result = {}
    for eqset, happening in sorted(events.items()):
        number: dict[int, int] = {}
        alike = tuple([Event(number.setdefault(event[0], len(number)), *event[1:]) for event in happening])
        home = home_of(eqset)
        found = known.get((home, alike))
        if found is None:
            found = known[home, alike] = follow(home, alike, len(number))
        result[eqset] = OfSet(found, tuple(number))
    return result


def follow(home: int, events: Sequence[Event], ops: int) -> Followed:
    """Return the copies that a set needs so that each event finds valid data, and no more of them.

    A run begins with the set valid at its home only. Steps repeat with the least common multiple of the events'
    periods. The state that a step finds depends on the first step of the run only until each event has happened once.
    After that it depends on the last write, or without writes on all copies that were made.

    `events`: in the order in which they happen in a step; the reads of an op before its writes.
    """
    period = math.lcm(*{event.period for event in events})
    timeline: list[tuple[int, Event]] = []
    for residue in range(period):
        written: dict[int, int] = {}  # by op, where in the timeline it writes
        for event in events:
            if residue % event.period != event.phase % event.period:
                continue
            if event.writes and event.op in written:  # through another operand: that is one write
                at = written[event.op]
                timeline[at] = residue, event._replace(covers=event.covers or timeline[at][1].covers)
                continue
            if event.writes:
                written[event.op] = len(timeline)
            timeline.append((residue, event))
    out = Followed(period, [*range(ops)])
    numbers: dict[CopyKey | NoteKey, int] = {}
    previous = timeline[-1][0] - period
    for begin, (residue, _) in enumerate(timeline):
        if residue != previous:
            _Walk(out, numbers, home, timeline, begin, residue - previous).run()
            previous = residue
    return out


_ROUNDS = 3  # The first, one like all that follow, and one more for edges that reach from one to the next.


@dataclass(slots=True)
class _Since:
    """Accesses, each with its step: those of ops apart, since ops have edges among themselves already."""

    ops: dict[int, int] = field(default_factory=dict)
    added: dict[int, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.ops or self.added)

    def all(self) -> list[tuple[int, int]]:
        return [*self.ops.items(), *self.added.items()]


class _Walk:
    """Walks some rounds of the timeline, from an event that is the first of its step.

    The run may begin in any of `earlier` steps: those after the step of the event before, up to that of the event.
    """

    def __init__(
        self,
        out: Followed,
        numbers: dict[CopyKey | NoteKey, int],
        home: int,
        timeline: Sequence[tuple[int, Event]],
        begin: int,
        earlier: int,
    ) -> None:
        self._out = out
        self._numbers = numbers  # of the nodes that are inserted
        self._home = home
        self._timeline = timeline
        self._begin = begin
        self._earlier = earlier
        self._valid = {home}
        self._newest = home
        self._wrote: dict[int, _Since] = defaultdict(_Since)  # by memory: which nodes wrote the data there
        self._read: dict[int, _Since] = defaultdict(_Since)  # and which have read it since
        self._flagged = _Since()  # which nodes last set or cleared flags
        self._phase = self._step = 0
        self._first = True

    def run(self) -> None:
        length, period = len(self._timeline), self._out.period
        start = self._timeline[self._begin][0]
        for count in range(_ROUNDS * length):
            rounds, at = divmod(self._begin + count, length)
            self._phase, event = self._timeline[at]
            before, self._step = self._step, self._phase + period * rounds
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

    def _number(self, key: CopyKey | NoteKey) -> int:
        number = self._numbers.setdefault(key, len(self._out.nodes))
        if number == len(self._out.nodes):
            self._out.nodes.append(key)
        return number

    def _copy(self, event: Event, source: int, target: int, after: bool = False) -> int:
        key = self._number(CopyKey(event.op, event.operand, source, target, self._phase, after))
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
            self._flag(key)
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
            # Data goes from one device to another by way of the host; there it waits for the end of the run.
            by = self._copy(event, memory, HOST, after=True)
            memory = HOST
        else:
            by = event.op
        if memory != self._home or self._newest != self._home:
            if not away and not event.in_stream:
                self._out.noted.add(event.op)
                by = self._number(NoteKey(event.op))
                self._edge(event.op, by, self._step, poison=True)
            self._out.written.add(Written(by, self._phase, memory))
            self._flag(by, by == event.op)
        elif event.in_stream:
            self._out.written.add(Written(by, self._phase, memory))
        self._newest = memory

    def _flag(self, node: int, is_op: bool = False) -> None:
        """Order a node that changes flags after all that changed them before."""
        for other, step in self._flagged.added.items() if is_op else self._flagged.all():
            self._edge(other, node, step)
        if is_op:
            self._flagged.ops[node] = self._step
        else:
            self._flagged = _Since(added={node: self._step})

    def _relies(self, op: int, src: int, dst: int, step: int) -> None:
        self._edge(src, dst, step, poison=True)
        need = self._out.copies.get(src)
        if need is not None:
            need.readers.add(op)

    def _edge(self, src: int, dst: int, step: int, poison: bool = False) -> None:
        distance = self._step - step
        if src != dst or distance:
            self._out.edges.add((src, dst, distance, poison))
