"""What the coherence pass makes of ops, and what it adds to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.compiler.derived_op import DerivedOp
from ostinato.graph.arrays import Array
from ostinato.graph.body import Inserted
from ostinato.graph.op import Op

if TYPE_CHECKING:
    from ostinato.graph.body import Body

__all__ = ["AddedOp", "Noted", "PlacedOp", "Transferred"]


class Transferred(Inserted):
    """A copy from one memory to another, of what is valid in the one and wanted in the other.

    Attributes
    ----------
    source, target
        The memories: `HOST`, or the index of a device.
    pairs
        By step modulo `period`: arrays to copy, and where to. All of them are in one allocation, and in one mirror of
        that; what is in a mirror is at made-up addresses. Empty: nothing is copied then.
    """

    __slots__ = ("pairs", "source", "target")

    def __init__(self, source: int, target: int, pairs: tuple[tuple[tuple[Array, Array], ...], ...]) -> None:
        self.source = source
        self.target = target
        self.pairs = pairs

    @property
    def period(self) -> int:
        """After how many steps the same arrays are copied."""
        return len(self.pairs)

    @property
    def nbytes(self) -> tuple[int, ...]:
        """By step modulo `period`, how many bytes are copied."""
        return tuple(sum(source.nbytes for source, _ in pairs) for pairs in self.pairs)


class Noted(Inserted):
    """Nothing but a note, once an op that is in no stream has written: where the newest data is now."""

    __slots__ = ("_period",)

    def __init__(self, period: int) -> None:
        self._period = period

    @property
    def period(self) -> int:
        """After how many steps the same is noted."""
        return self._period


class PlacedOp(DerivedOp):
    """Another op at another place in the order, on the arrays that it finds where it runs."""

    __slots__ = ()

    @property
    def placed(self) -> Op:
        """The other op."""
        return self._op


class AddedOp(Op):
    """What an op needs before it runs, or after."""

    __slots__ = ("_op",)

    def __init__(self, op: Op, index: int, name: str, body: Body) -> None:
        super().__init__(op.graph, index, name, op.call_site, body, (), None, op.priority)
        self._op = op

    @property
    def original(self) -> Op:
        """The op that was recorded, for which this is."""
        return self._op.original
