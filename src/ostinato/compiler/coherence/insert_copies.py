"""Coherence: copies, so that every op finds valid data where it runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato.compiler.assign_devices import Assignment
from ostinato.compiler.coherence.coherent_ops import Noted, Transferred
from ostinato.compiler.coherence.copy_groups import Activity, CopyGroup, copy_groups
from ostinato.compiler.coherence.memories import HOST, Homes
from ostinato.compiler.coherence.mirrors import Mirror, Mirrors
from ostinato.compiler.coherence.rewriting import Rewriting
from ostinato.compiler.coherence.uses import Uses, topological_order
from ostinato.compiler.coherence.validity import Followed, NoteKey, OfUnit, follow_all
from ostinato.compiler.costs import Costs
from ostinato.compiler.ir import Edges, Node, edges_of
from ostinato.graph.arrays import HOST as HOST_NAME
from ostinato.graph.arrays import Array

if TYPE_CHECKING:
    from ostinato.devices.device import Device
    from ostinato.graph.op import Op

__all__ = ["Activity", "Coherent", "WriteBack", "coherent"]

LATENCY = 10e-6
"""Seconds that a copy between memories takes beside its bytes, as a rule of thumb."""

BYTE = 1 / 10e9
"""Seconds for each of these."""

Phases: TypeAlias = tuple[tuple[int, ...], ...]


class WriteBack(NamedTuple):
    """What is copied home at the end of a run if its flag is set."""

    flag: int
    device: int
    """The device that copies."""
    source: int
    """The memory that it was written in."""
    target: int
    """Its home."""
    pairs: tuple[tuple[Array, Array], ...]
    """As of `Transferred`."""
    usual: bool
    """Whether there is ever something to copy unless an op fails, or a run is cancelled."""


class Coherent(NamedTuple):
    """Ops on the arrays that they find where they run, with the copies that see to that."""

    ops: tuple[Op, ...]
    edges: Edges
    """Along which poison goes. A copy comes after who wrote what it copies; who relies on it comes after the copy."""
    ordering: Edges
    """These, and those that keep copies and ops from what the other still reads, or wrote before."""
    assignment: Assignment
    costs: Costs
    mirrors: tuple[Mirror, ...]
    activity: Mapping[int, Activity]
    """By op, for copies that are not made in every step."""
    sets: Mapping[int, Phases]
    """By op, by step modulo its period: flags to set once it has run without failure."""
    clears: Mapping[int, Phases]
    """Likewise, those to clear."""
    flags: int
    """How many there are: each says that something's home is out of date, since it was written in another memory."""
    write_backs: tuple[WriteBack, ...]


def coherent(
    ops: Sequence[Op],
    edges: Edges,
    ordering: Edges,
    assignment: Assignment,
    costs: Costs,
    devices: Sequence[Device],
    homes: Homes | None = None,
) -> Coherent:
    """Return the ops with the copies between memories that they need, and no more of them.

    Parameters
    ----------
    ops
        The ops of a flat graph.
    edges, ordering
        Which op comes after which, with poison and at all.
    assignment
        Where they run.
    costs
        What they take.
    devices
        Those of the machine.
    homes
        Where arrays are.
    """
    used = Uses(ops, assignment, homes or Homes(devices), topological_order(len(ops), ordering))
    every = used.sets.all
    followed = follow_all(used.events(), lambda unit: used.home_of[every[unit].allocation])
    return _Result(ops, assignment, costs, devices, used, followed).coherent(edges, ordering)


class _Result:
    def __init__(
        self,
        ops: Sequence[Op],
        assignment: Assignment,
        costs: Costs,
        devices: Sequence[Device],
        used: Uses,
        followed: Mapping[int, OfUnit],
    ) -> None:
        self._ops = ops
        self._assignment = assignment
        self._costs = costs
        self._devices = devices
        self._used = used
        self._followed = followed
        self._mirrors = Mirrors(used.extents(), used.home_of)
        self._known_pairs: dict[tuple[tuple[int, ...], int, int], tuple[tuple[Array, Array], ...]] = {}
        self._groups, self._group_of = copy_groups(followed, lambda unit: used.sets.all[unit].allocation, used.sequence)
        self._noted = sorted({ops[op] for found, ops in followed.values() for op in found.noted})
        self._place_ops()

    def coherent(self, edges: Edges, ordering: Edges) -> Coherent:
        used, count = self._used, self._count
        rewriting = Rewriting(lambda array, memory: self._mirrors.at(array, used.allocation_of(array), memory))
        at = np.array(self._at_op, np.int64)
        ops: list[Op | None] = [None] * count
        device = np.full(count, HOST, np.int32)
        seconds, spread, source = np.zeros(count), np.zeros(count), np.zeros(count, np.int32)
        device[at], seconds[at] = self._assignment.device, self._costs.seconds
        spread[at], source[at] = self._costs.spread, self._costs.source
        for op, index, memories in zip(self._ops, self._at_op, used.memories, strict=True):
            ops[index] = rewriting.placed(op, index, memories)
        activity: dict[int, Activity] = {}
        for group, index in zip(self._groups, self._at_group, strict=True):
            body = self._transferred(group)
            ops[index] = Node.added(self._ops[group.op], index, self._name(group), body)
            device[index] = group.source if group.target == HOST else group.target
            seconds[index] = LATENCY + BYTE * max(body.nbytes)
            if group.activity is not None:
                activity[index] = group.activity
        flags = self._flags()
        for number, index in self._at_note.items():
            table = flags.sets.get(index) or flags.clears[index]
            ops[index] = Node.added(self._ops[number], index, f"note for {self._ops[number].name!r}", Noted(len(table)))
            device[index] = flags.device[index]
        edges, ordering = self._all_edges(edges, ordering)
        return Coherent(
            tuple(op for op in ops if op is not None),
            edges,
            ordering,
            Assignment(device),
            self._costs._replace(seconds=seconds, spread=spread, source=source),
            self._mirrors.all,
            activity,
            flags.sets,
            flags.clears,
            len(flags.write_backs),
            tuple(flags.write_backs),
        )

    def _place_ops(self) -> None:
        """Number the ops anew: copies come right before the op that needs them, notes right after."""
        before: list[list[int]] = [[] for _ in self._ops]
        behind: list[list[int]] = [[] for _ in self._ops]
        for number, group in enumerate(self._groups):
            (behind if group.after else before)[group.op].append(number)
        noted = set(self._noted)
        places = itertools.count()
        self._at_op = [0] * len(self._ops)
        self._at_group = [0] * len(self._groups)
        self._at_note: dict[int, int] = {}
        for index in range(len(self._ops)):
            # What comes from a device may go on to another one.
            for number in sorted(before[index], key=lambda each: self._groups[each].target != HOST):
                self._at_group[number] = next(places)
            self._at_op[index] = next(places)
            for number in behind[index]:
                self._at_group[number] = next(places)
            if index in noted:
                self._at_note[index] = next(places)
        self._count = next(places)
        self._at = {unit: self._at_nodes(unit, *of_unit) for unit, of_unit in self._followed.items()}

    def _at_nodes(self, unit: int, found: Followed, ops: tuple[int, ...]) -> list[int]:
        """Return the new numbers of what has to do with a unit."""
        at = [self._at_op[op] for op in ops]
        for place in range(len(ops), len(found.nodes)):
            node = found.nodes[place]
            if isinstance(node, NoteKey):
                at.append(self._at_note[ops[node.op]])
            else:
                at.append(self._at_group[self._group_of[unit, place]])
        return at

    def _transferred(self, group: CopyGroup) -> Transferred:
        pairs = tuple(self._pairs(members, group.source, group.target) for members in group.members)
        return Transferred(group.source, group.target, pairs)

    def _pairs(self, members: tuple[int, ...], source: int, target: int) -> tuple[tuple[Array, Array], ...]:
        if not members:
            return ()
        known = self._known_pairs.get((members, source, target))
        if known is None:
            allocation = self._used.sets.all[members[0]].allocation
            known = self._known_pairs[members, source, target] = tuple(
                (self._mirrors.at(array, allocation, source), self._mirrors.at(array, allocation, target))
                for array in self._used.arrays(members, target)
            )
        return known

    def _name(self, group: CopyGroup) -> str:
        where = HOST_NAME if group.target == HOST else self._devices[group.target].name
        return f"copy to {where} {'after' if group.after else 'for'} {self._ops[group.op].name!r}"

    def _flags(self) -> _Flags:
        flags = _Flags()
        alike: dict[tuple[int, int, bool, frozenset[tuple[int, int, int]]], list[int]] = {}
        for unit, (found, _) in self._followed.items():
            home = self._used.home_of[self._used.sets.all[unit].allocation]
            if any(each.memory != home for each in found.written):
                at = self._at[unit]
                sign = frozenset([(at[by], phase, memory) for by, phase, memory in found.written])
                key = (self._used.sets.all[unit].allocation, found.period, found.stale, sign)
                alike.setdefault(key, []).append(unit)
        for (allocation, period, stale, written), members in alike.items():
            home = self._used.home_of[allocation]
            flag_of: dict[int, int] = {}
            for memory in sorted({memory for _, _, memory in written} - {home}):
                flag_of[memory] = len(flags.write_backs)
                device = home if memory == HOST else memory
                flags.write_backs.append(
                    WriteBack(flag_of[memory], device, memory, home, self._pairs(tuple(members), memory, home), stale)
                )
            for index, phase, memory in written:
                flags.device.setdefault(index, flags.write_backs[next(iter(flag_of.values()))].device)
                for other, flag in flag_of.items():
                    table = flags.found[other == memory].setdefault(index, {})
                    table.setdefault((phase, period), set()).add(flag)
        own = {self._at_op[op.index]: _period_of(op) for op in self._ops}
        own |= {at: group.period for group, at in zip(self._groups, self._at_group, strict=True)}
        for number, tables in enumerate(flags.found):
            for index, told in tables.items():
                every = own.get(index) or math.lcm(*{period for _, period in told})
                row: list[set[int]] = [set() for _ in range(every)]
                for (phase, period), numbers in told.items():
                    for place in range(phase % math.gcd(period, every), every, math.gcd(period, every)):
                        row[place] |= numbers
                (flags.clears, flags.sets)[number][index] = tuple(tuple(sorted(each)) for each in row)
        return flags

    def _all_edges(self, edges: Edges, ordering: Edges) -> tuple[Edges, Edges]:
        alike: dict[int, list[int]] = {}
        for unit, (each, _) in self._followed.items():
            alike.setdefault(id(each), []).append(unit)
        new: list[list[npt.NDArray[np.int32]]] = [[], []]  # without and with poison
        for units in alike.values():
            found = self._followed[units[0]].found
            at_nodes = np.array([self._at[unit] for unit in units], np.int32)
            rows = np.array([*found.edges], np.int32).reshape(-1, 4)
            for poison in (0, 1):
                src, dst, distance = rows[rows[:, 3] == poison, :3].T
                steps = np.broadcast_to(distance, (len(units), len(distance)))
                new[poison].append(np.stack([at_nodes[:, src], at_nodes[:, dst], steps]).reshape(3, -1))
        lasting = [
            (index, index, group.period)
            for group, index in zip(self._groups, self._at_group, strict=True)
            if not group.later  # where it has failed, the data is missing ever after
        ]
        new[1].append(np.array(lasting, np.int32).reshape(-1, 3).T)
        at = np.array(self._at_op, np.int32)

        def joined(old: Edges, *more: npt.NDArray[np.int32]) -> Edges:
            rows = [np.stack([at[old.src], at[old.dst], old.distance]), *more]
            return edges_of(self._count, *np.concatenate(rows, axis=1))

        return joined(edges, *new[1]), joined(ordering, *new[1], *new[0])


class _Flags:
    """Who sets and clears which flags."""

    def __init__(self) -> None:
        self.write_backs: list[WriteBack] = []
        self.sets: dict[int, Phases] = {}
        self.clears: dict[int, Phases] = {}
        self.device: dict[int, int] = {}  # by op, one that has to do with its flags
        # Those to clear, and to set: by op, by step modulo a period.
        self.found: tuple[dict[int, dict[tuple[int, int], set[int]]], ...] = ({}, {})


def _period_of(op: Op) -> int:
    return math.lcm(*{len(operand.ring.views) for operand in op.operands if operand.ring is not None})
