"""Insert copies between memories, so that every node finds valid data where it runs.

The protocol is like MSI, over equivalence sets of bytes (Bauer et al., "Visibility Algorithms for Dynamic Dependence
Analysis and Distributed Coherence", PPoPP 2023). A set is valid in some memories, after a write in one. A read from
elsewhere needs a copy first. All accesses are known when the graph is compiled, so `validity` runs the protocol then,
and only its copies are left at run time. Which write was the last of a run is not known then, since runs may fail. So
flags say at run time which homes are out of date; what these lack is copied home at the end of the run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato.compiler.coherence.uses import Uses, topological_order
from ostinato.compiler.coherence.validity import CopyKey, Followed, NoteKey, OfSet, follow_all
from ostinato.compiler.inserted import InstanceCopy, Note
from ostinato.compiler.ir import HOST, Activity, Coherence, Edges, Node, Phases, Step, Target, WriteBack, edges_of
from ostinato.compiler.memories import Homes, Instances
from ostinato.graph.arrays import HOST as HOST_NAME
from ostinato.graph.arrays import Array

if TYPE_CHECKING:
    from ostinato.graph.op import Op

LATENCY = 10e-6  # Seconds that a copy between memories takes beside its bytes, as a rule of thumb.
BYTE = 1 / 10e9  # Seconds for each of these.


def insert_copies(step: Step, target: Target, homes: Homes | None = None) -> Step:
    """Return the step with the copies between memories that it needs, and no more of them.

    `Step.edges` of the result carry poison: a copy comes after what wrote its data, and nodes that rely on the copy
    come after it. `Step.ordering` also keeps copies and nodes from what the other still reads, or wrote before. `homes`
    says where arrays are; None: where the devices of the target know them to be.
    """
    order = topological_order(len(step.nodes), step.ordering)
    used = Uses(step.nodes, step.device, homes or Homes(target.devices), order)
    every = used.sets.all
    followed = follow_all(used.events(), lambda number: used.home_of[every[number].allocation])
    return _Insertion(step, target, used, followed).run()


class _CopyGroup(NamedTuple):
    """Copies between the same memories, in the same steps, which one op needs, or is the first to need."""

    op: int
    source: int
    target: int
    after: bool  # Whether they come after the op, not before it.
    members: tuple[tuple[int, ...], ...]  # The equivalence sets, by step modulo the period.
    first: frozenset[int]  # In which of a run's first steps they are made; of so many as the period has.
    later: bool  # Whether in those that follow.

    @property
    def period(self) -> int:
        """After how many steps the same sets are copied."""
        return len(self.members)

    @property
    def activity(self) -> Activity | None:
        """When there is something to copy; None: in every step."""
        return _activity(self.first, self.later, tuple(map(bool, self.members)))


@lru_cache(256)
def _activity(first: frozenset[int], later: bool, any_in: tuple[bool, ...]) -> Activity | None:
    """Return when there is something to copy, by steps modulo the period; the arrays are not to be changed."""
    period = len(any_in)
    columns = max((r + 1 for r in range(period) if (r in first) != later), default=0)
    some = np.array(any_in)
    if not columns and later and some.all():
        return None
    since = np.arange(columns)
    phase = (np.arange(period)[:, None] + since) % period
    needed = np.array([r in first for r in since.tolist()], np.bool_)
    return (some[phase] & needed).astype(np.uint8), (some & later).astype(np.uint8)


def _group_copies(
    followed: Mapping[int, OfSet], allocation_of: Callable[[int], int], order: Sequence[int]
) -> tuple[list[_CopyGroup], dict[tuple[int, int], int]]:
    """Return the copies that are made together, as one node; and by set and node of its `Followed`, the copy's group.

    Data that is copied once in a run, as it was when the run began, is copied for all ops together: before the first
    op that needs some of it.
    """
    position = {op: at for at, op in enumerate(order)}
    wanted = [
        (position[key.op], key, number, node) for number, each in followed.items() for node, key, _ in each.copies()
    ]
    alike: dict[tuple[object, ...], list[tuple[CopyKey, int, int]]] = {}
    for _, key, number, node in sorted(wanted):
        found, ops = followed[number]
        need = found.copies[node]
        for_all = frozenset([ops[reader] for reader in need.readers]), need.initial, need.later
        alike.setdefault((*key[:4], key.after, found.period, frozenset(need.first), for_all), []).append(
            (key, number, node)
        )
    together: dict[tuple[object, ...], list[tuple[CopyKey, int, int]]] = {}
    for group, copies in enumerate(alike.values()):
        key, number, node = copies[0]
        found = followed[number].found
        need = found.copies[node]
        if need.initial and not need.later and not key.after:
            where = frozenset([(each.phase, allocation_of(of)) for each, of, _ in copies])
            sign = (key.source, key.target, frozenset(need.first), found.period, where)
            together.setdefault(sign, []).extend(copies)
        else:
            together[group,] = copies
    groups: list[_CopyGroup] = []
    of_copy: dict[tuple[int, int], int] = {}
    for copies in together.values():
        key, number, node = copies[0]
        found = followed[number].found
        need = found.copies[node]
        by_phase: list[list[int]] = [[] for _ in range(found.period)]
        for each, of, copied in copies:
            of_copy[of, copied] = len(groups)
            by_phase[each.phase].append(of)
        members = tuple(map(tuple, by_phase))
        groups.append(_CopyGroup(key.op, key.source, key.target, key.after, members, frozenset(need.first), need.later))
    return groups, of_copy


class _Insertion:
    def __init__(self, step: Step, target: Target, used: Uses, followed: Mapping[int, OfSet]) -> None:
        self._step = step
        self._ops = step.nodes
        self._devices = target.devices
        self._used = used
        self._followed = followed
        self._instances = Instances(used.extents(), used.home_of, used.allocation_of)
        self._known_pairs: dict[tuple[tuple[int, ...], int, int], tuple[tuple[Array, Array], ...]] = {}
        self._groups, self._group_of = _group_copies(
            followed, lambda number: used.sets.all[number].allocation, used.order
        )
        self._noted = sorted({ops[op] for found, ops in followed.values() for op in found.noted})
        self._number_nodes()

    def run(self) -> Step:
        used, count, costs = self._used, self._count, self._step.costs
        at = np.array(self._at_op, np.int64)
        nodes: list[Op | None] = [None] * count
        device = np.full(count, HOST, np.int32)
        seconds, spread, source = np.zeros(count), np.zeros(count), np.zeros(count, np.int32)
        device[at], seconds[at], spread[at], source[at] = used.device, costs.seconds, costs.spread, costs.source
        for op, index, memories in zip(self._ops, self._at_op, used.memories, strict=True):
            nodes[index] = self._instances.move_node(op, index, memories)
        activity: dict[int, Activity] = {}
        for group, index in zip(self._groups, self._at_group, strict=True):
            body = self._copy(group)
            nodes[index] = Node.added(self._ops[group.op], index, self._name(group), body)
            device[index] = group.source if group.target == HOST else group.target
            seconds[index] = LATENCY + BYTE * max(body.nbytes)
            if group.activity is not None:
                activity[index] = group.activity
        flags = self._flags()
        for number, index in self._at_note.items():
            table = flags.sets.get(index) or flags.clears[index]
            op = self._ops[number]
            nodes[index] = Node.added(op, index, f"note for {op.name!r}", Note(len(table)))
            device[index] = flags.device[index]
        edges, ordering = self._all_edges(self._step.edges, self._step.ordering)
        return replace(
            self._step,
            nodes=tuple(node for node in nodes if node is not None),
            edges=edges,
            ordering=ordering,
            costs=costs._replace(seconds=seconds, spread=spread, source=source),
            device=device,
            coherence=Coherence(self._instances.all, activity, flags.sets, flags.clears, tuple(flags.write_backs)),
        )

    def _number_nodes(self) -> None:
        """Give nodes their new numbers: copies come right before the op that needs them, notes right after."""
        before: list[list[int]] = [[] for _ in self._ops]
        behind: list[list[int]] = [[] for _ in self._ops]
        for number, group in enumerate(self._groups):
            (behind if group.after else before)[group.op].append(number)
        noted = set(self._noted)
        numbers = itertools.count()
        self._at_op = [0] * len(self._ops)
        self._at_group = [0] * len(self._groups)
        self._at_note: dict[int, int] = {}
        for index in range(len(self._ops)):
            # Data that comes from a device may go on to another one.
            for number in sorted(before[index], key=lambda each: self._groups[each].target != HOST):
                self._at_group[number] = next(numbers)
            self._at_op[index] = next(numbers)
            for number in behind[index]:
                self._at_group[number] = next(numbers)
            if index in noted:
                self._at_note[index] = next(numbers)
        self._count = next(numbers)
        self._at = {number: self._at_nodes(number, *of_set) for number, of_set in self._followed.items()}

    def _at_nodes(self, number: int, found: Followed, ops: tuple[int, ...]) -> list[int]:
        """Return the new numbers of the nodes of a set."""
        at = [self._at_op[op] for op in ops]
        for position in range(len(ops), len(found.nodes)):
            node = found.nodes[position]
            if isinstance(node, NoteKey):
                at.append(self._at_note[ops[node.op]])
            else:
                at.append(self._at_group[self._group_of[number, position]])
        return at

    def _copy(self, group: _CopyGroup) -> InstanceCopy:
        pairs = tuple(self._pairs(members, group.source, group.target) for members in group.members)
        return InstanceCopy(group.source, group.target, pairs)

    def _pairs(self, members: tuple[int, ...], source: int, target: int) -> tuple[tuple[Array, Array], ...]:
        if not members:
            return ()
        known = self._known_pairs.get((members, source, target))
        if known is None:
            allocation = self._used.sets.all[members[0]].allocation
            known = self._known_pairs[members, source, target] = tuple(
                (self._instances.at(array, allocation, source), self._instances.at(array, allocation, target))
                for array in self._used.arrays(members, target)
            )
        return known

    def _name(self, group: _CopyGroup) -> str:
        where = HOST_NAME if group.target == HOST else self._devices[group.target].name
        return f"copy to {where} {'after' if group.after else 'for'} {self._ops[group.op].name!r}"

    def _flags(self) -> _Flags:
        """Return the flags. Sets of one allocation that are written by the same nodes share theirs."""
        flags = _Flags()
        every, home_of = self._used.sets.all, self._used.home_of
        alike: dict[tuple[int, int, bool, frozenset[tuple[int, int, int]]], list[int]] = {}
        for number, (found, _) in self._followed.items():
            allocation = every[number].allocation
            if any(each.memory != home_of[allocation] for each in found.written):
                at = self._at[number]
                sign = frozenset([(at[by], phase, memory) for by, phase, memory in found.written])
                alike.setdefault((allocation, found.period, found.stale, sign), []).append(number)
        for (allocation, period, stale, written), members in alike.items():
            home = home_of[allocation]
            flag_of: dict[int, int] = {}
            for memory in sorted({memory for _, _, memory in written} - {home}):
                flag_of[memory] = len(flags.write_backs)
                device = home if memory == HOST else memory
                pairs = self._pairs(tuple(members), memory, home)
                flags.write_backs.append(WriteBack(flag_of[memory], device, memory, home, pairs, stale))
            for index, phase, memory in written:
                flags.device.setdefault(index, flags.write_backs[next(iter(flag_of.values()))].device)
                for other, flag in flag_of.items():
                    table = flags.found[other == memory].setdefault(index, {})
                    table.setdefault((phase, period), set()).add(flag)
        own = {self._at_op[op.index]: _period_of(op) for op in self._ops}
        own |= {at: group.period for group, at in zip(self._groups, self._at_group, strict=True)}
        for tables, result in zip(flags.found, (flags.clears, flags.sets), strict=True):
            for index, by_phase in tables.items():
                every_step = own.get(index) or math.lcm(*{period for _, period in by_phase})
                row: list[set[int]] = [set() for _ in range(every_step)]
                for (phase, period), numbers in by_phase.items():
                    stride = math.gcd(period, every_step)
                    for residue in range(phase % stride, every_step, stride):
                        row[residue] |= numbers
                result[index] = tuple(tuple(sorted(each)) for each in row)
        return flags

    def _all_edges(self, edges: Edges, ordering: Edges) -> tuple[Edges, Edges]:
        alike: dict[int, list[int]] = {}
        for number, (each, _) in self._followed.items():
            alike.setdefault(id(each), []).append(number)
        new: list[list[npt.NDArray[np.int32]]] = [[], []]  # without and with poison
        for numbers in alike.values():
            found = self._followed[numbers[0]].found
            at_nodes = np.array([self._at[number] for number in numbers], np.int32)
            rows = np.array([*found.edges], np.int32).reshape(-1, 4)
            for poison in (0, 1):
                src, dst, distance = rows[rows[:, 3] == poison, :3].T
                steps = np.broadcast_to(distance, (len(numbers), len(distance)))
                new[poison].append(np.stack([at_nodes[:, src], at_nodes[:, dst], steps]).reshape(3, -1))
        lasting = [
            (index, index, group.period)
            for group, index in zip(self._groups, self._at_group, strict=True)
            if not group.later  # if it has failed, the data is missing ever after
        ]
        new[1].append(np.array(lasting, np.int32).reshape(-1, 3).T)
        at = np.array(self._at_op, np.int32)

        def joined(old: Edges, *more: npt.NDArray[np.int32]) -> Edges:
            rows = [np.stack([at[old.src], at[old.dst], old.distance]), *more]
            return edges_of(self._count, *np.concatenate(rows, axis=1))

        return joined(edges, *new[1]), joined(ordering, *new[1], *new[0])


class _Flags:
    """Which nodes set and clear which flags."""

    def __init__(self) -> None:
        self.write_backs: list[WriteBack] = []
        self.sets: dict[int, Phases] = {}
        self.clears: dict[int, Phases] = {}
        self.device: dict[int, int] = {}  # by node, the device of one of its flags
        # Those to clear, and to set: by node, by step modulo a period.
        self.found: tuple[dict[int, dict[tuple[int, int], set[int]]], ...] = ({}, {})


def _period_of(op: Op) -> int:
    return math.lcm(*{len(operand.ring.views) for operand in op.operands if operand.ring is not None})
