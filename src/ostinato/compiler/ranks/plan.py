"""Which rank runs which operation, and what ranks send each other for it.

An operation runs on the rank that owns what it writes (owner computes: Callahan and Kennedy 1988). All ranks find the
same plan, each the part of it that it takes part in, so nobody has to tell anybody.

Before the first operation of a step that reads elements of another rank, their owner sends them, and before any other
that reads them after the owner has written to them since. Within a step, elements are sent to a rank once after each
write. The pieces that one rank needs of another travel in one message, if none of them is written between the first
operation that needs one and the operation that needs the last.

A rank may have recorded only what happens near its own tiles. So it knows who writes what its tiles need, but not who
writes what operations of all ranks need, such as a fold. These get all that they read in messages of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ostinato.errors import GraphError
from ostinato.graph.arrays import READ, WRITE, Array, Operand
from ostinato.graph.body import Join, Postcondition, Precondition, Until
from ostinato.graph.messages import Message, Receive
from ostinato.ranks.array import DistributedArray, distributed_at
from ostinato.ranks.boxes import Box, box_of, intersect, merge, slices_of, subtract, subtract_all
from ostinato.ranks.channels import Common

if TYPE_CHECKING:
    from ostinato.graph.op import Op
    from ostinato.graph.ring import Ring
    from ostinato.ranks.distribution import Layout

EVERYWHERE = -1
"""In place of a rank: all of them."""

_OF_ONE_RANK = (Precondition, Postcondition, Join, Message)


@dataclass(frozen=True, eq=False)
class Place:
    """A distributed array, or the arrays of a ring that take turns, as operands name them; there is one of each."""

    arrays: tuple[DistributedArray, ...]
    ring: Ring | None
    phase: int

    def meets(self, other: Place) -> bool:
        """Whether both can be the same elements in one step."""
        if self.ring is not None and self.ring is other.ring:
            return self.phase == other.phase or not self.ring.disjoint
        return any(array is each for array in self.arrays for each in other.arrays)


class Piece(NamedTuple):
    """A box of what stands at a place; or a whole operand, replicated, if `box` is None."""

    place: Place | Operand
    box: Box | None

    def operand(self, mode: int) -> Operand:
        """Return the piece as an operand of an operation."""
        if isinstance(self.place, Operand):
            whole = self.place
            return Operand(whole.value, whole.array, whole.ring, mode)
        assert self.box is not None
        index = slices_of(self.box)
        if self.place.ring is not None:
            element = self.place.ring[self.place.phase].sliced(index)
            return Operand(element, None, element, mode)
        view = self.place.arrays[0].memory[index]
        return Operand(view, view, None, mode)


@dataclass(eq=False)
class Transfer:
    """A message from one rank to another, in every step, before the operation at an index, or behind it."""

    source: int
    target: int
    at: int
    behind: bool = False
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """The part that a rank takes in a step.

    `where`: by operation, the rank that runs it, or `EVERYWHERE`. `transfers`: the messages that this rank sends or
    receives, in program order. `common`: what must be the same on all ranks.
    """

    rank: int
    where: tuple[int, ...]
    transfers: tuple[Transfer, ...]
    common: Common

    def runs(self, index: int) -> bool:
        """Whether this rank runs an operation."""
        return self.where[index] in (EVERYWHERE, self.rank)


_Access: TypeAlias = tuple[Place, Box]


def plan(ops: Sequence[Op], rank: int, size: int) -> Plan:
    """Return the part that a rank takes in a step of operations, in program order.

    Raises
    ------
    GraphError
        No rank can run an operation: it writes what several ranks own, or both that and arrays that all ranks have.
    """
    planning = _Planning(rank, size)
    for index, op in enumerate(ops):
        planning.add(index, op)
    for transfer in planning.transfers:
        _merge_pieces(transfer)
    order = sorted(planning.transfers, key=lambda each: (each.at, each.behind))
    return Plan(rank, tuple(planning.where), tuple(order), planning.common())


class _Planning:
    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self.where: list[int] = []
        self.transfers: list[Transfer] = []
        self._open: dict[tuple[int, int], Transfer] = {}  # by source and target, the last one
        self._valid: dict[tuple[int, int], list[tuple[Place, list[Box]]]] = {}  # what the target has got
        self._writes: list[tuple[int, int, Place, Box]] = []  # by whom
        self._accesses: dict[int, _Access | None] = {}  # by the id of the operand, which ops keep
        self._places: dict[tuple[int, ...], Place] = {}
        self._by_array: dict[int, DistributedArray | None] = {}
        self._received: set[int] = set()  # the ids of arrays that messages of the step overwrite on this rank only
        self._shared: list[str] = []

    def common(self) -> Common:
        """Return what must be the same on all ranks."""
        arrays = {array.number: array.describe() for array in self._by_array.values() if array is not None}
        return Common(arrays, tuple(self._shared) if arrays else ())

    def add(self, index: int, op: Op) -> None:
        """Take the next operation."""
        reads, writes = [], []
        for operand in op.operands:
            access = self._access(operand, op)
            if access is not None:
                if operand.mode & READ:
                    reads.append(access)
                if operand.mode & WRITE:
                    writes.append(access)
        rank, by_all = _where(op, reads, writes, self._size, self._is_plain)
        self.where.append(rank)
        if isinstance(op.body, Message) and (reads or writes):
            raise GraphError(
                f"{op.name!r} at {op.call_site} sends or receives a part of a distributed array, whose elements "
                "travel by themselves; send() and recv() are for NumPy arrays"
            )
        if self._size == 1:
            return
        alone: dict[tuple[int, int], Transfer] | None = None if writes else {}
        for place, box in reads:
            self._bring(index, rank, place, box, alone)
        for place, box in writes:
            self._note_write(index, rank, place, box)
        if isinstance(op.body, Receive):
            self._received.update(id(_root(array)) for each in op.operands for array in each.arrays)
        if by_all and not self._uses_received(op):
            self._shared.append(_describe(op, reads))
        if rank != EVERYWHERE:
            self._spread(index, rank, op)

    def _uses_received(self, op: Op) -> bool:
        """Whether an operation reads what a message brought: the ranks of an allreduce do not all do the same."""
        return any(id(_root(array)) in self._received for each in op.operands for array in each.arrays)

    def _bring(
        self, index: int, rank: int, place: Place, box: Box, alone: dict[tuple[int, int], Transfer] | None
    ) -> None:
        """Have what an operation reads brought to the ranks that run it, as far as this rank takes part; in messages of
        its own if `alone` is where these are.
        """
        parts = place.arrays[0].layout.parts(box)
        readers = range(self._size) if rank == EVERYWHERE else (rank,)
        for owner, boxes in parts.items():
            for reader in readers:
                if reader != owner and self._rank in (reader, owner):
                    for part in boxes:
                        if alone is not None:
                            self._transfer(alone, index, owner, reader).pieces.append(Piece(place, part))
                        else:
                            self._need(index, owner, reader, place, part)

    def _need(self, index: int, source: int, target: int, place: Place, box: Box) -> None:
        valid = self._valid.setdefault((source, target), [])
        known = next((boxes for each, boxes in valid if each is place), None)
        if known is None:
            known = []
            valid.append((place, known))
        missing = subtract_all(box, known)
        if not missing:
            return
        known += missing
        transfer = self._open.get((source, target))
        if transfer is not None and any(self._written_since(transfer.at, source, place, part) for part in missing):
            del self._open[source, target]
        self._transfer(self._open, index, source, target).pieces += [Piece(place, part) for part in missing]

    def _transfer(self, those: dict[tuple[int, int], Transfer], index: int, source: int, target: int) -> Transfer:
        """Return the message between two ranks among some, a new one if there is none yet."""
        found = those.get((source, target))
        if found is None:
            found = those[source, target] = Transfer(source, target, index)
            self.transfers.append(found)
        return found

    def _written_since(self, index: int, rank: int, place: Place, box: Box) -> bool:
        for at, writer, written, where in reversed(self._writes):
            if at < index:
                return False
            if writer == rank and written.meets(place) and intersect(where, box) is not None:
                return True
        return False

    def _note_write(self, index: int, rank: int, place: Place, box: Box) -> None:
        self._writes.append((index, rank, place, box))
        for (source, _), valid in self._valid.items():
            if source == rank:
                for known, boxes in valid:
                    if known.meets(place):
                        boxes[:] = [rest for each in boxes for rest in subtract(each, box)]

    def _spread(self, index: int, rank: int, op: Op) -> None:
        """Have what one rank has written to arrays that all ranks have sent to all others, along a binomial tree."""
        pieces = [Piece(each, None) for each in op.operands if each.mode & WRITE and self._is_plain(each)]
        if not pieces:
            return
        place = (self._rank - rank) % self._size  # ranks are counted from the writer on
        distance = 1
        while distance < self._size:
            distance *= 2
        while distance > 1:
            distance //= 2
            if place % (2 * distance) == distance:
                self.transfers.append(Transfer((self._rank - distance) % self._size, self._rank, index, True, pieces))
            elif place % (2 * distance) == 0 and place + distance < self._size:
                self.transfers.append(Transfer(self._rank, (self._rank + distance) % self._size, index, True, pieces))

    def _is_plain(self, operand: Operand) -> bool:
        """Whether an operand is an array that all ranks have."""
        return any(array.size and self._array_of(array) is None for array in operand.arrays)

    def _array_of(self, view: Array) -> DistributedArray | None:
        root = _root(view)
        if id(root) not in self._by_array:
            self._by_array[id(root)] = distributed_at(root)
        return self._by_array[id(root)]

    def _access(self, operand: Operand, op: Op) -> _Access | None:
        if id(operand) not in self._accesses:
            self._accesses[id(operand)] = self._find_access(operand, op)
        return self._accesses[id(operand)]

    def _find_access(self, operand: Operand, op: Op) -> _Access | None:
        views = operand.arrays
        found = [self._array_of(view) for view in views]
        arrays = tuple([each for each in found if each is not None])
        if not arrays or not views[0].size:
            return None
        layout = arrays[0].layout
        if len(arrays) < len(found) or any(_differ(each.layout, layout) for each in arrays[1:]):
            raise GraphError(
                f"the arrays of the ring that {op.name!r} at {op.call_site} uses must all be distributed in the same "
                "way: give ranks.array() the same tiles and owner for each"
            )
        boxes = [box_of(view, array.memory) for view, array in zip(views, arrays, strict=True)]
        box = boxes[0]
        assert box is not None
        if any(each != box for each in boxes):
            raise GraphError(
                f"the arrays of the ring that {op.name!r} at {op.call_site} uses must be whole distributed arrays, or "
                "the same slice of each"
            )
        ring = operand.ring
        key = tuple(map(id, arrays)) if ring is None else (id(ring.ring), ring.offset % len(ring.ring))
        place = self._places.get(key)
        if place is None:
            made = Place(arrays, None, 0) if ring is None else Place(arrays, ring.ring, ring.offset % len(ring.ring))
            place = self._places[key] = made
        return place, box


def _root(view: Array) -> Array:
    root = view
    while type(root.base) is type(view):
        root = root.base
    return root


def _where(
    op: Op, reads: list[_Access], writes: list[_Access], size: int, is_plain: Callable[[Operand], bool]
) -> tuple[int, bool]:
    """Return the rank that runs an operation, or `EVERYWHERE`; and whether all ranks must record it."""
    bound = _bound(op, size)
    owners = {owner for place, box in writes for owner in place.arrays[0].layout.parts(box)}
    plain = any(each.mode & WRITE and is_plain(each) for each in op.operands)
    if len(owners) > 1:
        listed = ", ".join(map(str, sorted(owners)))
        raise GraphError(
            f"{op.name!r} at {op.call_site} writes elements that several ranks own ({listed}); a rank writes only what "
            "it owns: pass one tile at a time, as tiles() gives them"
        )
    if owners and plain:
        raise GraphError(
            f"{op.name!r} at {op.call_site} writes both a distributed array, which one rank owns, and a NumPy array, "
            "which every rank has; write the number to a distributed array, and combine with ranks.fold()"
        )
    if owners:
        owner = owners.pop()
        if bound is not None and bound != owner:
            raise GraphError(
                f"{op.name!r} at {op.call_site} is bound to rank {bound}, but writes what rank {owner} owns; leave out "
                "on=, or let rank "
                f"{bound} own the tile"
            )
        return owner, False
    if bound is not None:
        return bound, True
    if isinstance(op.body, _OF_ONE_RANK):
        return EVERYWHERE, False
    if plain or isinstance(op.body, Until):
        return EVERYWHERE, True
    readers = {owner for place, box in reads for owner in place.arrays[0].layout.parts(box)}
    return (readers.pop(), False) if len(readers) == 1 else (0, True)


def _describe(op: Op, reads: list[_Access]) -> str:
    """Return an operation that all ranks must record, in words."""
    parts = []
    for place, box in reads:
        numbers = " or ".join(str(array.number) for array in place.arrays)
        parts.append(f"[{', '.join(f'{low}:{high}' for low, high in box)}] of distributed array {numbers}")
    return f"{op.name!r} at {op.call_site}" + (f", which reads {' and '.join(parts)}" if parts else "")


def _bound(op: Op, size: int) -> int | None:
    """Return the rank that an operation is bound to."""
    if not isinstance(op.on, str) or not op.on.startswith("rank:"):
        return None
    number = op.on.removeprefix("rank:")
    if not number.isdecimal() or int(number) >= size:
        raise GraphError(
            f"{op.name!r} at {op.call_site} is bound to {op.on!r}; ranks are rank:0 to rank:{size - 1} here"
        )
    return int(number)


def _differ(a: Layout, b: Layout) -> bool:
    return a is not b and a != b


def _merge_pieces(transfer: Transfer) -> None:
    """Join pieces of one place that lie side by side, and put all in an order that both ranks find."""
    by_place: dict[Place, list[Box]] = {}
    for place, box in transfer.pieces:
        if isinstance(place, Place) and box is not None:
            by_place.setdefault(place, []).append(box)
    if by_place:
        transfer.pieces = list(_ordered(by_place))


def _ordered(by_place: dict[Place, list[Box]]) -> Iterator[Piece]:
    for place, boxes in by_place.items():
        yield from (Piece(place, box) for box in merge(boxes))
