"""What ops use, in which memory, and what that does to each equivalence set in a step."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ostinato import _core
from ostinato.compiler.coherence.validity import Event
from ostinato.compiler.equivalence_sets import (
    Box,
    EquivalenceSets,
    elements,
    elements_within,
    find_equivalence_sets,
)
from ostinato.compiler.ir import HOST, Edges, IntArray
from ostinato.compiler.memories import Homes
from ostinato.graph.arrays import READ, WRITE, Array
from ostinato.graph.body import Copy, Fill

if TYPE_CHECKING:
    from ostinato.graph.arrays import Operand
    from ostinato.graph.op import Op


class Uses:
    """What ops use, and in which memory.

    `device`: by op, the device that it runs on, or `HOST`.

    `sets`: the equivalence sets of allocations that are used away from home.
    `device`: by op, the device that it runs on, or `HOST`.
    `memories`: by op, the memory in which it looks for each of its operands.
    `home_of`: by allocation, the memory that it is in.
    """

    def __init__(self, ops: Sequence[Op], device: IntArray, homes: Homes, order: Sequence[int]) -> None:
        self._ops = ops
        self.order = order
        self.device: list[int] = device.tolist()
        self._first_view: dict[int, int] = {}  # by id of an operand
        self._known: dict[int, int] = {}  # by id of an array, its allocation
        views: list[Array] = []
        users: list[Op] = []
        for op in ops:
            for operand in op.operands:
                if id(operand) not in self._first_view:
                    self._first_view[id(operand)] = len(views)
                    views += operand.arrays
                    users += [op] * len(operand.arrays)
        rings = {id(each.ring.ring): each.ring.ring for op in ops for each in op.operands if each.ring is not None}
        # An instance of a ring has all of the ring's arrays.
        self._views = views + [array for ring in rings.values() for array in ring.arrays]
        self._allocation: IntArray = _core.passes.boxes(self._views)["allocation"]
        self.home_of = [HOST] * (int(self._allocation.max(initial=-1)) + 1)
        numbers, firsts = np.unique(self._allocation[: len(views)], return_index=True)
        for number, view in zip(numbers.tolist(), firsts.tolist(), strict=True):
            if number >= 0:
                self.home_of[number] = homes.of(views[view], users[view])
        self._users = self._users_of() if any(isinstance(op.body, Copy | Fill) for op in ops) else {}
        self.memories = [self._memories_of(op) for op in ops]
        self.sets = self._find_sets()

    def allocation_of(self, array: Array) -> int:
        """Return the allocation of one of the arrays; -1 for one without elements."""
        if not self._known:
            self._known = {id(view): a for view, a in zip(self._views, self._allocation.tolist(), strict=True)}
        return self._known[id(array)]

    def events(self) -> dict[int, list[Event]]:
        """Return what happens to each equivalence set in a step."""
        events: dict[int, list[Event]] = {}
        touched, covered = self.sets.touched, self.sets.covered.tolist()
        for index in self.order:
            op = self._ops[index]
            in_stream = self.device[index] != HOST and op.body.keeps_stream_order
            written: list[tuple[int, Event]] = []
            for position, (operand, memory) in enumerate(zip(op.operands, self.memories[index], strict=True)):
                views = self._views_of(operand)
                offset = operand.ring.offset if operand.ring is not None else 0
                for k, view in enumerate(views):
                    writes, covers = bool(operand.mode & WRITE), covered[view]
                    needs = bool(operand.mode & READ) or not covers
                    phase, period = (k - offset) % len(views), len(views)
                    for number in touched[view]:
                        if needs:
                            event = Event(index, position, phase, period, memory, True, False, covers, in_stream)
                            events.setdefault(number, []).append(event)
                        if writes:
                            event = Event(index, position, phase, period, memory, False, True, covers, in_stream)
                            written.append((number, event))
            for number, event in written:
                events.setdefault(number, []).append(event)
        return events

    def extents(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Return what is used of each allocation in each memory: addresses of the first byte, and behind the last.

        Data on its way from device to device is on the host meanwhile. Of a ring, all of each array is used.
        """
        of_set = [self.sets.extent(number) for number in range(len(self.sets.all))]
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for operand, memory, view in self._away():
            touched = [of_set[number] for number in self.sets.touched[view]]
            if operand.ring is not None and touched:
                array = operand.ring.ring.arrays[view - self._first_view[id(operand)]]
                touched.append(_core.passes.extent(array))
            if not touched:
                continue
            allocation = int(self._allocation[view])
            for where in {memory, HOST} - {self.home_of[allocation]}:
                for low, high in touched:
                    known = found.get((allocation, where), (low, high))
                    found[allocation, where] = min(low, known[0]), max(high, known[1])
        return found

    def arrays(self, members: Sequence[int], target: int) -> list[Array]:
        """Return what is copied of equivalence sets, all of one allocation, to a memory, as arrays of bytes.

        Only what was written elsewhere goes home: the user may have changed what lies between the elements of views
        with steps.
        """
        found = self.sets
        allocation = found.all[members[0]].allocation
        boxes_of_all = [box for number in members for box in found.all[number].boxes]
        if target != self.home_of[allocation]:
            return found.arrays(boxes_of_all, allocation)
        together = frozenset(members)
        whole: list[Box] = []
        parts: list[Array] = []
        stepped: dict[int, Array | None] = {}  # views all of whose sets are members
        for number in members:
            views = self._written_with_steps.get(number)
            if not views:
                whole += found.all[number].boxes
            elif all(together.issuperset(found.touched[view]) for view in views):
                stepped |= {view: elements(self._views[view]) for view in views if view not in stepped}
            else:
                low, strides, boxes = found.low[allocation], found.strides[allocation], found.all[number].boxes
                within = [elements_within(self._views[view], low, strides, boxes) for view in views]
                if any(each is None for each in within):
                    whole += boxes
                else:
                    parts += [part for each in within for part in each or ()]
        nothing = not (whole or parts or stepped)  # all of it lies between elements, but a copy must not be empty
        if nothing or any(part is None for part in stepped.values()):
            return found.arrays(boxes_of_all, allocation)
        parts += [part for part in stepped.values() if part is not None]
        alike = {(_core.passes.extent(part), part.shape, part.strides): part for part in parts}
        return found.arrays(whole, allocation) + list(alike.values())

    @cached_property
    def _written_with_steps(self) -> dict[int, dict[int, None]]:
        """By set of which only parts are written away from home: the views that write to it."""
        covered = self.sets.covered.tolist()
        found: dict[int, dict[int, None]] = {}
        whole: set[int] = set()
        for operand, _, view in self._away():
            if not operand.mode & WRITE:
                continue
            if covered[view]:
                whole.update(self.sets.touched[view])
            else:
                for number in self.sets.touched[view]:
                    found.setdefault(number, {})[view] = None
        return {number: views for number, views in found.items() if number not in whole}

    def _away(self) -> Iterator[tuple[Operand, int, int]]:
        """Yield the views that are used away from home, each with its operand and the memory."""
        home: list[int] = np.array([*self.home_of, HOST], np.int64)[self._allocation].tolist()
        for op, memories in zip(self._ops, self.memories, strict=True):
            for operand, memory in zip(op.operands, memories, strict=True):
                for view in self._views_of(operand):
                    if home[view] != memory:
                        yield operand, memory, view

    def _memories_of(self, op: Op) -> tuple[int, ...]:
        device = self.device[op.index]
        if device == HOST or not isinstance(op.body, Copy | Fill):
            return (device,) * len(op.operands)
        # A copy moves data between memories itself: one side is on its device, the other there or on the host.
        homes = [self._home(operand) for operand in op.operands]
        if device not in homes:
            return (device,) * len(homes)
        return tuple(
            device if home == device or self._only(operand, device) else HOST
            for operand, home in zip(op.operands, homes, strict=True)
        )

    def _only(self, operand: Operand, device: int) -> bool:
        """Whether all else that reads what a copy writes, or that writes what it reads, does so on a device."""
        table = self._users[READ if operand.mode & WRITE else WRITE]
        return table.get(self._allocation[self._views_of(operand)[0]]) == {device} if operand.arrays else False

    def _users_of(self) -> dict[int, dict[int, set[int]]]:
        """By mode, by allocation: where ops other than copies and fills use it so."""
        found: dict[int, dict[int, set[int]]] = {READ: {}, WRITE: {}}
        for op in self._ops:
            if isinstance(op.body, Copy | Fill) and self.device[op.index] != HOST:
                continue
            for operand in op.operands:
                for mode in (READ, WRITE):
                    if operand.mode & mode:
                        for view in self._views_of(operand):
                            found[mode].setdefault(int(self._allocation[view]), set()).add(self.device[op.index])
        return found

    def _home(self, operand: Operand) -> int:
        views = self._views_of(operand)
        allocation = self._allocation[views[0]] if views else -1
        return self.home_of[allocation] if allocation >= 0 else HOST

    def _views_of(self, operand: Operand) -> range:
        begin = self._first_view[id(operand)]
        return range(begin, begin + len(operand.arrays))

    def _find_sets(self) -> EquivalenceSets:
        away = np.zeros(len(self._views), np.bool_)
        away[[view for _, _, view in self._away()]] = True
        return find_equivalence_sets(self._views, away)


def topological_order(n: int, ordering: Edges) -> Sequence[int]:
    """Return so many ops in an order that agrees with the edges within a step; in program order where it can be."""
    inside = ordering.distance == 0
    src, dst = ordering.src[inside], ordering.dst[inside]
    if (src < dst).all():
        return range(n)
    missing = np.bincount(dst, minlength=n).tolist()
    followers: list[list[int]] = [[] for _ in range(n)]
    for a, b in zip(src.tolist(), dst.tolist(), strict=True):
        followers[a].append(b)
    ready = [op for op in range(n) if not missing[op]]
    found = []
    while ready:
        found.append(heapq.heappop(ready))
        for follower in followers[found[-1]]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, follower)
    return found
