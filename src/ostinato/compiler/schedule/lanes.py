"""Lanes that must be several, so that nothing stands behind a wait for something outside that it does not need."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compiler.ir import Edges, IntArray, Placement


def move_next_to_purpose(
    edges: Edges,
    placement: Placement,
    order: IntArray,
    idle: npt.NDArray[np.bool_],
    tells: npt.NDArray[np.bool_],
) -> tuple[Placement, IntArray]:
    """Return the placement and the order with ops that only wait, or only tell, next to those that they are for.

    What only waits (for an event, for a phase of a barrier) goes right before the first op that comes after it: there
    it holds up nothing else. What only tells that others are done goes right after the last of these.
    """
    waits = np.flatnonzero(idle)
    if not len(waits) and not tells.any():
        return placement, order
    position = np.empty(len(order))
    position[order] = np.arange(len(order))
    lane = placement.lane.copy()
    src, dst, _ = (column[edges.distance == 0] for column in edges)
    begin = np.searchsorted(dst, np.arange(len(order) + 1)).tolist()
    for tell in np.flatnonzero(tells).tolist():
        before = src[begin[tell] : begin[tell + 1]]
        if len(before):  # else it tells of a step before
            last = before[np.argmax(position[before])]
            position[tell] = np.nextafter(position[last], len(order))
            lane[tell] = lane[last]
    by_source = np.argsort(src, kind="stable")
    src, dst = src[by_source], dst[by_source]
    begin = np.searchsorted(src, np.arange(len(order) + 1)).tolist()
    for wait in sorted(waits.tolist(), key=lambda op: -position[op]):  # the last first: one may come after another
        after = dst[begin[wait] : begin[wait + 1]]
        if len(after):
            first = after[np.argmin(position[after])]
            position[wait] = np.nextafter(position[first], -1)
            lane[wait] = lane[first]
    left, renumbered = np.unique(lane, return_inverse=True)  # a lane that nothing is left on is none
    lanes = placement._replace(
        lane=renumbered.reshape(-1).astype(np.int32), affinity=placement.affinity[left], pinned=placement.pinned[left]
    )
    return lanes, np.argsort(position, kind="stable").astype(np.int32)


def split(
    edges: Edges,
    placement: Placement,
    order: IntArray,
    outside: npt.NDArray[np.bool_],
    idle: npt.NDArray[np.bool_],
    serial: bool = False,
) -> Placement:
    """Return the placement with lanes split where their order would add dependences on what is outside.

    A lane runs its ops in order, step after step. If one of them waits for something outside (an event, a phase of a
    barrier, a reservation, a task that may block) and another, later on the lane, does not depend on that, then the
    second could not run before the first: two programs that each wait for such a second op of the other would wait
    forever, though neither asked for that.

    So let ``back(x, e)``, the iteration distance, be the least number of steps back that op x depends on wait e along
    the edges, infinite if it does not. Op x of a lane may come before op y of the same lane if, for all e,
    ``back(y, e) <= back(x, e) <= back(y, e) + 1``: then y depends on what x waits for, and x in the next step on what
    y waits for, anyway. Waits for the same thing hold in the order of steps. An idle wait itself may be held up by
    whatever all that directly comes after it is held up by: its distances count as the greatest of theirs, less the
    distance.

    `edges`: all dependences that order ops.
    `placement`, `order`: lanes of ops, and the order of the step.
    `outside`: the ops that wait for something outside.
    `idle`: those of them that do nothing else.
    `serial`: whether each step begins when the one before has ended, by a barrier that is the last op.
    """
    if not outside.any():
        return placement
    if serial:  # every op depends on all waits of the step before: only distances of 0, of 0 and 1, tell ops apart
        edges = edges.within_a_step()
    distances = find_iteration_distances(len(outside), edges, outside)
    distances.held_up_as_what_follows(edges, idle)
    split_lanes = _by_waits_in_the_step if serial else _by_distances
    lane, old = split_lanes(distances, placement.lane.tolist(), order.tolist())
    return placement._replace(lane=lane, affinity=placement.affinity[old], pinned=placement.pinned[old])


def _by_distances(distances: IterationDistances, before: list[int], order: list[int]) -> tuple[IntArray, list[int]]:
    """Return the lane of each op, and for each lane the one that it grew out of."""
    kinds = distances.kinds()
    old: list[int] = []
    groups: dict[tuple[int, bytes], _Group] = {}
    lane = np.empty(len(order), np.int32)
    for op in order:
        waits, back = distances.rows[op]
        key = before[op], waits.tobytes()
        if key not in groups:
            groups[key] = _Group(len(waits))
        group = groups[key]
        slot = group.find_slot(kinds[op], back)
        if slot == len(group.lanes):
            group.lanes.append(len(old))
            old.append(before[op])
        group.put(slot, back)
        lane[op] = group.lanes[slot]
    return lane, old


def _by_waits_in_the_step(
    distances: IterationDistances, before: list[int], order: list[int]
) -> tuple[IntArray, list[int]]:
    """Return what `_by_distances` does where all iteration distances are 0, or 1 if there is none.

    Then op x may come before op y if y depends on all that x waits for. So the last op of a lane stands for all of it.
    """
    kinds = distances.kinds()
    waits_of = {kind: frozenset(distances.rows[op][0].tolist()) for op, kind in enumerate(kinds)}
    uses = Counter(wait for waits in waits_of.values() for wait in waits)
    groups: dict[int, _Nested] = {}
    old: list[int] = []
    lane = np.empty(len(order), np.int32)
    for op in order:
        kind = kinds[op]
        group = groups.setdefault(before[op], _Nested(waits_of, uses))
        slot = group.find_slot(kind)
        if slot is None:
            slot = len(old)
            old.append(before[op])
        group.put(slot, kind)
        lane[op] = slot
    return lane, old


class _Nested:
    """Lanes that grow out of one lane, each with the kind of its last op: that waits for all that those before it do.

    A lane is listed under the one of these waits that fewest kinds of ops have, so that few ops look at it in vain.
    """

    def __init__(self, waits_of: Mapping[int, frozenset[int]], uses: Mapping[int, int]) -> None:
        self._waits_of = waits_of
        self._uses = uses
        self._last: dict[int, int] = {}  # by lane, the kind of its last op
        self._listed: dict[int, set[int]] = defaultdict(set)  # by wait, lanes
        self._first: dict[int, int] = {}  # by kind of op, the first lane that may take it: a lane takes ever less

    def find_slot(self, kind: int) -> int | None:
        """Return the first lane at whose end an op may be put; None if there is none."""
        first = self._first.get(kind, -1)
        if first >= 0 and self._takes(first, kind):
            return first
        under = (_NO_WAIT, *self._waits_of[kind])
        found = (lane for wait in under for lane in self._listed.get(wait, ()) if lane > first)
        return min((lane for lane in found if self._takes(lane, kind)), default=None)

    def put(self, slot: int, kind: int) -> None:
        """Put an op at the end of a lane."""
        self._first[kind] = slot
        last = self._last.get(slot)
        if last == kind:
            return
        if last is not None:
            self._listed[self._rarest(last)].remove(slot)
        self._last[slot] = kind
        self._listed[self._rarest(kind)].add(slot)

    def _takes(self, slot: int, kind: int) -> bool:
        last = self._last[slot]
        return last == kind or self._waits_of[last] <= self._waits_of[kind]

    def _rarest(self, kind: int) -> int:
        return min(self._waits_of[kind], key=self._uses.__getitem__, default=_NO_WAIT)


_NO_WAIT = -1
_NEVER = 2**31 - 2


class _Group:
    """Lanes that grow out of one lane, of ops that depend on the same waits: those that do not never share a lane."""

    def __init__(self, waits: int) -> None:
        self.lanes: list[int] = []
        self._least = np.full((waits, 1), _NEVER, np.int32)  # by wait and lane, the least distance of the lane's ops
        self._greatest = np.zeros((waits, 1), np.int32)
        self._first: dict[int, int] = {}  # by kind of op, the first lane that may take it: a lane takes ever less

    def find_slot(self, kind: int, back: IntArray) -> int:
        """Return the first lane at whose end an op may be put; if none, how many lanes there are."""
        first, count = self._first.get(kind, 0), len(self.lanes)
        if len(back):
            near, far = int(back.argmin()), int(back.argmax())  # the distances that most lanes differ in
            likely = self._greatest[near, first:count] <= back[near] + 1
            likely &= self._least[far, first:count] >= back[far]
            slots = (first + np.flatnonzero(likely)).tolist()
            first = next((slot for slot in slots if self._takes(slot, back)), count)
        self._first[kind] = first
        return first

    def put(self, slot: int, back: IntArray) -> None:
        """Put an op at the end of a lane."""
        if slot == self._least.shape[1]:
            self._least = np.hstack([self._least, np.full(self._least.shape, _NEVER, np.int32)])
            self._greatest = np.hstack([self._greatest, np.zeros(self._greatest.shape, np.int32)])
        self._least[:, slot] = np.minimum(self._least[:, slot], back)
        self._greatest[:, slot] = np.maximum(self._greatest[:, slot], back)

    def _takes(self, slot: int, back: IntArray) -> bool:
        return bool((back <= self._least[:, slot]).all() and (self._greatest[:, slot] <= back + 1).all())


Row: TypeAlias = tuple[IntArray, IntArray]


class IterationDistances(NamedTuple):
    """By op, which waits it depends on, and how many steps back at least: most ops depend on few of many waits."""

    rows: list[Row]  # The waits, ascending; and as many iteration distances.

    def kinds(self) -> list[int]:
        """Return a number for each op: the same for those with the same iteration distances."""
        numbers: dict[tuple[bytes, bytes], int] = {}
        of_row: dict[int, int] = {}  # ops share long rows
        for row in self.rows:
            if id(row) not in of_row:
                waits, back = row
                of_row[id(row)] = numbers.setdefault((waits.tobytes(), back.tobytes()), len(numbers))
        return [of_row[id(row)] for row in self.rows]

    def held_up_as_what_follows(self, edges: Edges, waits: npt.NDArray[np.bool_]) -> None:
        """Give each of the ops that only wait the greatest distances of all that directly comes after it."""
        among = np.flatnonzero(waits[edges.src])
        among = among[np.argsort(edges.src[among], kind="stable")]
        source, after, distance = (column[among] for column in edges)
        chosen = np.flatnonzero(waits)
        begins, ends = np.searchsorted(source, chosen), np.searchsorted(source, chosen, "right")
        for wait, begin, end in zip(chosen.tolist(), begins.tolist(), ends.tolist(), strict=True):
            if begin == end:
                continue
            if end - begin == 1 and distance[begin] == 0:  # what follows waits for this at once
                self.rows[wait] = self.rows[after[begin]]
                continue
            rows = [self.rows[op] for op in after[begin:end].tolist()]
            between = np.repeat(distance[begin:end], [len(row[0]) for row in rows])
            known, slot, count = np.unique(
                np.concatenate([row[0] for row in rows]), return_inverse=True, return_counts=True
            )
            back = np.zeros(len(known), np.int32)
            np.maximum.at(back, slot.reshape(-1), np.concatenate([row[1] for row in rows]) - between)
            back[known == wait] = 0
            common = count == end - begin
            self.rows[wait] = known[common], back[common]


def find_iteration_distances(ops: int, edges: Edges, waits: npt.NDArray[np.bool_]) -> IterationDistances:
    """Return how many steps back, at least, each op depends on each wait along the edges."""
    sources = np.flatnonzero(waits).astype(np.int32)
    start, op, back = _core.passes.iteration_distances(ops, edges, sources)
    by_op = np.argsort(op, kind="stable")
    ends = np.searchsorted(op[by_op], np.arange(ops), "right").tolist()
    wait, back = np.repeat(sources, np.diff(start))[by_op], back[by_op]
    return IterationDistances([(wait[a:b], back[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)])
