"""What the coherence pass adds to the nodes of a step."""

from __future__ import annotations

from ostinato.graph.arrays import Array
from ostinato.graph.body import Inserted

__all__ = ["Noted", "Transferred"]


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
