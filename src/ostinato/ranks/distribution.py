"""How arrays are distributed over ranks: their tiles, who owns these, and the margin that belongs to none."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ostinato.ranks.boxes import Box, intersect, merge


@dataclass(frozen=True, slots=True)
class Tile:
    """A part of a distributed array.

    Attributes
    ----------
    index
        Its place among the tiles, an integer for each axis.
    inner
        The slices that take it out of the array.
    halo
        The same with the margin on every side.
    rank
        The rank that owns it.
    """

    index: tuple[int, ...]
    inner: tuple[slice, ...]
    halo: tuple[slice, ...]
    rank: int


def split(begin: int, end: int, parts: int) -> tuple[int, ...]:
    """Return where so many parts of a range begin, and where the last one ends; their lengths differ by one at most."""
    return tuple([begin + (end - begin) * part // parts for part in range(parts + 1)])


def choose_grid(counts: Sequence[int], ranks: int) -> tuple[int, ...]:
    """Return into how many blocks of tiles each axis is cut, one block for each rank.

    The rank with the most tiles has as few as possible; then, as few tiles as possible lie at a cut.

    Examples
    --------
    >>> choose_grid((64, 64), 4), choose_grid((3, 100), 6)
    ((2, 2), (3, 2))
    """

    def cost(grid: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        most = prod(-(-count // blocks) for count, blocks in zip(counts, grid, strict=True))
        total = prod(counts)
        cut = sum((blocks - 1) * total // max(count, 1) for count, blocks in zip(counts, grid, strict=True))
        return most, cut, tuple(-blocks for blocks in grid)

    return min(_factors(ranks, len(counts)), key=cost)


def _factors(number: int, axes: int) -> Iterator[tuple[int, ...]]:
    if axes <= 1:
        yield (number,) * axes
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for rest in _factors(number // first, axes - 1):
                yield (first, *rest)


class Layout:
    """Cells that an array is cut into along its axes, and the rank that owns each: tiles, or blocks of tiles.

    Parameters
    ----------
    bounds
        By axis, where cells begin, and where the last one ends.
    owner
        By cell, the rank.
    """

    __slots__ = ("_boxes", "bounds", "owner")

    def __init__(self, bounds: tuple[tuple[int, ...], ...], owner: npt.NDArray[np.int64]) -> None:
        self.bounds = bounds
        self.owner = owner
        self._boxes: dict[int, list[Box]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.bounds == other.bounds and np.array_equal(self.owner, other.owner)

    __hash__ = object.__hash__

    def boxes(self, rank: int) -> list[Box]:
        """Return what a rank owns, in order."""
        found = self._boxes.get(rank)
        if found is None:
            cells = (self._cell(tuple(index)) for index in np.argwhere(self.owner == rank).tolist())
            found = self._boxes[rank] = merge(cell for cell in cells if all(low < high for low, high in cell))
        return found

    def parts(self, box: Box) -> dict[int, list[Box]]:
        """Return the parts of a box by the rank that owns them."""
        ranges = []
        for (low, high), bounds in zip(box, self.bounds, strict=True):
            ranges.append(range(max(bisect_right(bounds, low) - 1, 0), min(bisect_left(bounds, high), len(bounds) - 1)))
        found: dict[int, list[Box]] = {}
        for index in product(*ranges):
            part = intersect(box, self._cell(index))
            if part is not None:
                found.setdefault(int(self.owner[index]), []).append(part)
        return {rank: merge(boxes) for rank, boxes in sorted(found.items())}

    def _cell(self, index: tuple[int, ...]) -> Box:
        return tuple([(bounds[i], bounds[i + 1]) for i, bounds in zip(index, self.bounds, strict=True)])


def lay_out(
    shape: tuple[int, ...],
    counts: tuple[int, ...],
    margin: int,
    grid: tuple[int, ...] | None,
    owner: npt.NDArray[Any] | None,
) -> Layout:
    """Return the layout of an array whose tiles, so many along each axis, leave a margin.

    The margin belongs to the owners of the tiles beside it. Either blocks of tiles have one owner each, by a grid of
    blocks, or `owner` says it for each tile.
    """
    bounds = []
    for axis, (length, count) in enumerate(zip(shape, counts, strict=True)):
        span = length - 2 * margin
        inside = {0: 0, count: length}  # the first tile that there is has the margin before it, the last that behind
        cuts = range(count + 1) if grid is None else split(0, count, grid[axis])
        bounds.append(tuple([inside.get(tile, margin + span * tile // count) for tile in cuts]))
    if owner is None:
        assert grid is not None
        owner = np.arange(prod(grid), dtype=np.int64).reshape(grid)
    return Layout(tuple(bounds), owner)


class Distribution:
    """What arrays of one shape that are cut and owned in the same way share, as one rank sees it.

    `owners` says which rank owns each tile; None: each rank owns a block of tiles. Who owns what depends on the margin,
    too. `margin` is the one that somebody asked for last, for arrays that nobody asks for tiles; None: none yet.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        shape: tuple[int, ...],
        counts: tuple[int, ...],
        owners: npt.NDArray[np.int64] | None,
    ) -> None:
        self._rank, self._size, self._shape, self._counts = rank, size, shape, counts
        self._owners = owners
        self._grid = choose_grid(counts, size) if owners is None else None
        self.margin: int | None = None
        self._layouts: dict[int, Layout] = {}

    def layout(self, margin: int) -> Layout:
        """Return who owns what, with a margin."""
        found = self._layouts.get(margin)
        if found is None:
            found = self._layouts[margin] = lay_out(self._shape, self._counts, margin, self._grid, self._owners)
        return found

    def check_margin(self, margin: int) -> None:
        """Raise `ValueError` if tiles cannot leave a margin."""
        for axis, (length, count) in enumerate(zip(self._shape, self._counts, strict=True)):
            if length - 2 * margin < count:
                raise ValueError(
                    f"a margin of {margin} leaves {max(length - 2 * margin, 0)} of {length} elements along axis "
                    f"{axis}, which cannot be cut into {count} tiles"
                )

    def settable(self) -> list[Box]:
        """Return what this rank owns without a margin, and what it may own once one is known."""
        owned = self.layout(0).boxes(self._rank)
        reach = self.reach
        fitting = (each for each in (1, reach) if all(self._fits(each)))
        if self._size == 1 or all(self.layout(margin) == self.layout(0) for margin in fitting):
            return owned
        whole = tuple([(0, length) for length in self._shape])
        grown = (intersect(tuple([(low - reach, high + reach) for low, high in box]), whole) for box in owned)
        return [box for box in grown if box is not None]

    def tiles(self, margin: int, near: int | None) -> Iterator[Tile]:
        """Yield tiles; see `DistributedArray.tiles`."""
        spans = [(length - 2 * margin, count) for length, count in zip(self._shape, self._counts, strict=True)]
        for index in self._near(near):
            bounds = [
                (margin + span * i // count, margin + span * (i + 1) // count)
                for i, (span, count) in zip(index, spans, strict=True)
            ]
            inner = tuple([slice(low, high) for low, high in bounds])
            halo = tuple([slice(low - margin, high + margin) for low, high in bounds])
            yield Tile(index, inner, halo, self._rank_of(index))

    @property
    def reach(self) -> int:
        """How far `set` reaches beyond what a rank owns, and so the largest margin that may become known after it."""
        return min((length // count for length, count in zip(self._shape, self._counts, strict=True)), default=0)

    def _fits(self, margin: int) -> Iterator[bool]:
        return (length - 2 * margin >= count for length, count in zip(self._shape, self._counts, strict=True))

    def _near(self, near: int | None) -> Iterable[tuple[int, ...]]:
        """Return the indices of the tiles that are so near to those of this rank."""
        if near is None:
            return product(*map(range, self._counts))
        if self._grid is not None:
            ranges = []
            blocks = np.unravel_index(self._rank, self._grid) if self._grid else ()
            for count, parts, block in zip(self._counts, self._grid, map(int, blocks), strict=True):
                low, high = count * block // parts, count * (block + 1) // parts
                if low == high:
                    return ()
                ranges.append(range(max(low - near, 0), min(high + near, count)))
            return product(*ranges)
        assert self._owners is not None
        beside = (
            product(*(range(max(i - near, 0), min(i + near + 1, n)) for i, n in zip(own, self._counts, strict=True)))
            for own in np.argwhere(self._owners == self._rank).tolist()
        )
        return sorted({index for indices in beside for index in indices})

    def _rank_of(self, index: tuple[int, ...]) -> int:
        if self._owners is not None:
            return int(self._owners[index])
        assert self._grid is not None
        rank = 0
        for i, count, parts in zip(index, self._counts, self._grid, strict=True):
            rank = rank * parts + ((i + 1) * parts - 1) // count
        return rank
