"""Arrays that are spread over ranks: each rank holds the tiles that it owns."""

from __future__ import annotations

import itertools
import mmap
import operator
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from ostinato.arguments import integer
from ostinato.devices.registry import address_of
from ostinato.devices.views import NotBasicError, Taken, view_index
from ostinato.errors import GraphError, TracerError
from ostinato.graph.arrays import Array
from ostinato.graph.capture import capture
from ostinato.graph.context import CallSite, current, statement_frame
from ostinato.graph.ring import AbstractArray
from ostinato.ranks.boxes import Box, slices_of
from ostinato.ranks.distribution import Distribution, Layout, Tile
from ostinato.text import brief

if TYPE_CHECKING:
    from ostinato.graph.messages import Group

_NO_RESERVE = 0x4000  # MAP_NORESERVE, which the module mmap does not name in all versions
_distributions: weakref.WeakKeyDictionary[Group, dict[object, Distribution]] = weakref.WeakKeyDictionary()
_numbers: weakref.WeakKeyDictionary[Group, itertools.count[int]] = weakref.WeakKeyDictionary()
_distributed: weakref.WeakValueDictionary[int, DistributedArray] = weakref.WeakValueDictionary()


class _Spread(AbstractArray):
    """Base of distributed arrays and their slices: `memory` is where this rank has what it holds of it."""

    __slots__ = ("group", "memory")

    is_ostinato_distributed_array = True
    group: Group
    memory: Array

    def _sample(self) -> Array:
        return self.memory

    def _taking(self, take: Callable[[Array], Array], taken: Taken) -> NoReturn:
        raise self._error(f".{taken[0]} is not for", "Slice it, or use such a view inside a task")

    def _title(self) -> str:
        return "a distributed array, whose elements lie on several ranks"

    def _error(self, what: str, way_out: str) -> TracerError:
        site = CallSite(statement_frame())
        return TracerError(
            f"{site}: {what} {self._title()}. {way_out}. Outside of steps, .get() copies all of it here, and .local "
            "has what this rank owns"
        )

    def __getitem__(self, index: Any) -> DistributedSlice:
        try:
            index = view_index(index)
        except NotBasicError as error:
            raise self._fancy(error.entry) from None
        return DistributedSlice(self.group, self.memory[index])


class DistributedSlice(_Spread):
    """A part of a distributed array, for tasks; made by slicing one."""

    __slots__ = ("__weakref__",)

    def __init__(self, group: Group, memory: Array) -> None:
        self.group = group
        self.memory = memory

    def __repr__(self) -> str:
        return f"<slice of a distributed array, shape {self.shape}, {self.dtype}>"


class DistributedArray(_Spread):
    """An array that is spread over ranks; made by `Ranks.array`.

    It has a shape, a dtype and slices, and is passed to tasks like an array. Nothing else of NumPy works on it: most of
    its elements lie on other ranks.

    Parameters
    ----------
    group
        The ranks.
    shape, dtype, tiles, owner
        As for `Ranks.array`.
    """

    __slots__ = ("__weakref__", "_margin", "_set", "distribution", "number")

    def __init__(self, group: Group, shape: Any, dtype: Any, tiles: Any, owner: Any) -> None:
        self.group = group
        lengths = _lengths("shape", shape, least=1)
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise TypeError(f"a distributed array must hold numbers or other plain data, got dtype {kind}")
        counts = lengths if tiles is None else _lengths("tiles", tiles, least=1)
        if len(counts) != len(lengths):
            raise ValueError(f"tiles must have an entry for each of {len(lengths)} axes, got {brief(tiles)}")
        for axis, (length, count) in enumerate(zip(lengths, counts, strict=True)):
            if count > length:
                raise ValueError(f"axis {axis} has {length} elements, which cannot be cut into {count} tiles")
        owners = None if owner is None else _owners(owner, counts, group.size)
        self.number = next(_numbers.setdefault(group, itertools.count()))
        self.distribution = _distribution_of(group, lengths, counts, owners)
        self._margin: int | None = None  # until something depends on it
        self._set = False  # while it depended on nothing
        self.memory = _reserve(lengths, kind, group.size)
        _distributed[address_of(self.memory)] = self

    @property
    def layout(self) -> Layout:
        """Which rank owns what. From now on that stays."""
        if self._margin is None:
            self._fix_margin(self.distribution.margin or 0)
        assert self._margin is not None
        return self.distribution.layout(self._margin)

    def owned(self, rank: int) -> list[Box]:
        """Return what a rank owns."""
        return self.layout.boxes(rank)

    def describe(self) -> str:
        """Say what it is and how it is distributed; equal on ranks that agree on that."""
        import hashlib  # here: programs of one rank do without

        layout = self.layout
        told = hashlib.sha256(repr(layout.bounds).encode() + layout.owner.tobytes()).hexdigest()[:8]
        return f"shape {self.shape}, {self.dtype}, a margin of {self._margin}, and owners with the digest {told}"

    def tiles(self, margin: int = 0, near: int | None = None) -> Iterator[Tile]:
        """Iterate over the tiles, in row-major order.

        Parameters
        ----------
        margin
            How many elements at each border of the whole array belong to no tile. ``inner`` of all tiles covers the
            rest once, and ``halo`` is ``inner`` with so many more elements on every side. An array has one margin.
            Where nobody asks for tiles of an array, it is that of the array of the same shape, tiles and owner whose
            tiles somebody asked for last.
        near
            None for all tiles; else this rank's, and those so many tiles away from them. Operations on other tiles do
            not concern this rank, so a step that is recorded with ``near=1`` takes the same time however many ranks
            there are. What operations on a rank's tiles read must then lie that near.

        Yields
        ------
        Tile
            With ``index``, ``inner``, ``halo`` and ``rank``.

        Raises
        ------
        ValueError
            The margin leaves fewer elements than tiles. Or it is another one than before, and some elements would
            change their owner.

        Examples
        --------
        >>> import ostinato as ost
        >>> a = ost.Ranks().array(8, tiles=2)
        >>> [(tile.inner, tile.halo) for tile in a.tiles(margin=1)]
        [((slice(1, 4, None),), (slice(0, 5, None),)), ((slice(4, 7, None),), (slice(3, 8, None),))]
        """
        margin = integer("margin", margin, 0)
        near = None if near is None else integer("near", near, 0)
        graph = current()
        if graph is not None:
            graph.join(self.group)
            near = None if graph.sees_all_tiles else near
        self.distribution.check_margin(margin)
        self._fix_margin(margin)
        self.distribution.margin = margin
        return self.distribution.tiles(margin, near)

    @property
    def local(self) -> list[tuple[tuple[slice, ...], Array]]:
        """What this rank owns: boxes of slices, and NumPy views of the elements there.

        Examples
        --------
        >>> import ostinato as ost
        >>> a = ost.Ranks().array((2, 3))
        >>> for box, view in a.local:
        ...     view[...] = 7
        >>> a.get()[box].tolist()
        [[7.0, 7.0, 7.0], [7.0, 7.0, 7.0]]
        """
        return [(slices_of(box), self.memory[slices_of(box)]) for box in self.owned(self.group.rank)]

    def set(self, values: Any) -> None:
        """Set the elements that this rank owns. All ranks call it.

        Parameters
        ----------
        values
            What NumPy could assign to the whole array, the same on all ranks; or a function that gets a box, a tuple of
            slices, and returns what is to be there. Boxes may reach beyond what the rank owns.

        Raises
        ------
        ValueError
            The shape of the values does not fit.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> a = ost.Ranks().array(4, tiles=2)
        >>> a.set(lambda box: np.arange(box[0].start, box[0].stop))
        >>> a.get()
        array([0., 1., 2., 3.])
        """
        self._refuse_capture("set")
        whole = None if callable(values) else np.broadcast_to(values, self.shape)
        if self._margin is None and self.distribution.margin is None:
            self._set, boxes = True, self.distribution.settable()
        else:
            boxes = self.owned(self.group.rank)
        for box in boxes:
            index = slices_of(box)
            self.memory[index] = values(index) if whole is None else whole[index]

    def get(self, root: int | None = None) -> Array | None:
        """Return a copy of the whole array. All ranks call it, between runs.

        Parameters
        ----------
        root
            The rank that gets it; others get None. None: all of them.

        Examples
        --------
        >>> import ostinato as ost
        >>> ost.Ranks().array((1, 2)).get()
        array([[0., 0.]])
        """
        size, rank = self.group.size, self.group.rank
        if root is not None:
            root = integer("root", root, 0, size - 1)
        self._refuse_capture("get")
        if size == 1:
            return self.memory.copy()
        return _gather(self, root, rank)

    def __repr__(self) -> str:
        return f"<DistributedArray of {self.group.size} ranks, shape {self.shape}, {self.dtype}>"

    def _fix_margin(self, margin: int) -> None:
        """Let tiles leave a margin from now on; raise `ValueError` if what happened until now depends on another."""
        layout = self.distribution.layout
        if self._margin is not None and layout(margin) != layout(self._margin):
            raise ValueError(
                f"margin must be {self._margin}, with which this array has been used before, got {margin}; who owns "
                f"what depends on it, so call tiles(margin={margin}) once before anything else"
            )
        if self._margin is None and self._set and margin > self.distribution.reach and layout(margin) != layout(0):
            raise ValueError(
                f"with a margin of {margin}, more than a tile, ranks own other elements than set() has set; call "
                f"tiles(margin={margin}) once before"
            )
        self._margin = margin

    def _refuse_capture(self, method: str) -> None:
        if current() is not None:
            raise GraphError(f"{method}() inside a capture would run once, not in every step; call it before or after")


def _gather(array: DistributedArray, root: int | None, rank: int) -> Array | None:
    """Return a copy of a distributed array, on `root` or on every rank."""
    ranks: Any = array.group
    receives = root in (None, rank)
    whole = np.empty(array.shape if receives else (0,) * array.ndim, array.dtype)
    layout = array.layout
    sends = False
    if receives:
        for box in map(slices_of, layout.boxes(rank)):
            whole[box] = array.memory[box]
    with capture() as graph:
        for owner in range(ranks.size):
            for box in map(slices_of, layout.boxes(owner)):
                sends = sends or root != owner
                if root is None:
                    ranks.bcast(whole[box], root=owner)
                elif owner == rank != root:
                    ranks.send(array.memory[box].copy(), to=root)
                elif owner != rank == root:
                    ranks.recv(whole[box], source=owner)
        graph.join(ranks)
        if not len(graph):
            graph.fill(np.zeros(1), 0)  # a step of nothing
    if sends:
        with graph.compile(adapt=False) as program:
            program.replay()
    return whole if receives else None


def distributed_at(root: Array) -> DistributedArray | None:
    """Return the distributed array whose memory this is; None if it is that of none."""
    found = _distributed.get(address_of(root)) if _distributed else None
    return found if found is not None and found.memory is root else None


def _distribution_of(
    group: Group, shape: tuple[int, ...], counts: tuple[int, ...], owners: npt.NDArray[np.int64] | None
) -> Distribution:
    """Return how an array is distributed; those that are so alike share it."""
    known = _distributions.setdefault(group, {})
    key = shape, counts, None if owners is None else owners.tobytes()
    if key not in known:
        known[key] = Distribution(group.rank, group.size, shape, counts, owners)
    return known[key]


def _reserve(shape: tuple[int, ...], dtype: np.dtype[Any], ranks: int) -> Array:
    """Return memory for what a rank holds of an array: addresses for all of it, and pages where something is written.

    So that what a rank has of the array and what it has received lie side by side, as tasks take them.
    """
    if ranks == 1:
        return np.zeros(shape, dtype)
    nbytes = max(prod(shape) * dtype.itemsize, 1)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_NOHUGEPAGE)  # large pages would hold much of what lies elsewhere
    return np.ndarray(shape, dtype, memory)


def _lengths(name: str, value: Any, least: int) -> tuple[int, ...]:
    entries = value if isinstance(value, tuple | list) else (value,)
    return tuple([integer(name, entry, least) for entry in entries])


def _owners(owner: Any, counts: tuple[int, ...], size: int) -> npt.NDArray[np.int64]:
    """Return the rank that owns each tile."""
    if not callable(owner):
        raise TypeError(f"owner must be a function from the index of a tile to a rank, got {brief(owner)}")
    found = np.empty(counts, np.int64)
    for index in product(*map(range, counts)):
        rank = owner(index)
        try:
            found[index] = operator.index(rank)
        except TypeError:
            raise TypeError(f"owner must return a rank, got {brief(rank)} for tile {index}") from None
        if not 0 <= found[index] < size:
            raise ValueError(f"owner must return a rank from 0 to {size - 1}, got {rank} for tile {index}")
    return found
