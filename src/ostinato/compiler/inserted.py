"""Bodies of the nodes that passes insert where a step uses devices."""

from __future__ import annotations

from ostinato.graph.arrays import Array
from ostinato.graph.body import Inserted


class InstanceCopy(Inserted):
    """A copy from one instance of an allocation to another: of data that is valid here and needed there.

    `source`, `target`: the memories: `HOST`, or the index of a device.
    `pairs`: by step modulo `period`: arrays to copy, and where to; none if nothing is copied then. All of them are in
        one allocation and in one of its instances. Addresses in an instance are made up: see `Instance`.
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


class Note(Inserted):
    """Sets and clears flags that say where the newest data is, after an op that is in no stream has written it."""

    __slots__ = ("_period",)

    def __init__(self, period: int) -> None:
        self._period = period

    @property
    def period(self) -> int:
        """After how many steps the same is noted."""
        return self._period


class Fence(Inserted):
    """The device has done all that the ops `of` one stream, and those before them, enqueued.

    `of`: the ops, by their indices.
    `waits`: whether it waits for that. A fence that does not wait only carries failures, once the device reports them:
        of what the op depends on, to what depends on the op.
    """

    __slots__ = ("of", "waits")

    works_elsewhere = True

    def __init__(self, of: tuple[int, ...], waits: bool = True) -> None:
        self.of = of
        self.waits = waits
