"""Rebinding: other arrays stand for those a program was captured with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ostinato.compiler.inserted import InstanceCopy
from ostinato.compiler.ir import Node
from ostinato.devices.array import DeviceArray
from ostinato.errors import GraphError
from ostinato.graph.arrays import Array, Operand, as_ndarray, memory_of
from ostinato.graph.body import Body
from ostinato.graph.op import Op
from ostinato.graph.ring import RingElement
from ostinato.runtime.memory import Extent, at_address, extent_of
from ostinato.text import brief

if TYPE_CHECKING:
    from ostinato.compiler.ir import Executable


class _Swap(NamedTuple):
    old: Extent
    new: Array
    value: object  # the new array as the user gave it
    views: tuple[Extent, ...]  # captured memory within `old`


class Rebinding:
    """Which memory stands for which of the captured arrays' memory; views follow their base by address.

    `owned` keeps the captured arrays alive that nothing stands for. Code may rely on the `alignments` of addresses, in
    bytes.
    """

    def __init__(
        self, owned: Mapping[Extent, Array], alignments: Mapping[Extent, int], swaps: tuple[_Swap, ...] = ()
    ) -> None:
        self._owned = owned
        self._alignments = alignments
        self._swaps = swaps

    @classmethod
    def of(cls, ops: Sequence[Op]) -> Rebinding:
        """Return the binding in which every array of `ops` stands for itself."""
        owned: dict[Extent, Array] = {}
        alignments: dict[Extent, int] = {}
        for view in (view for op in ops for each in op.operands for view in each.arrays):
            extent = extent_of(view)
            owned[extent] = view
            if view.flags.aligned:
                alignments[extent] = max(view.dtype.alignment, alignments.get(extent, 1))
        return cls(owned, alignments)

    def substitute(self, array: Array) -> Array:
        """Return what stands for a captured array, or for a view of one."""
        extent = extent_of(array)
        for swap in self._swaps:
            if swap.old.holds(extent):
                return at_address(array.ctypes.data - swap.old.low + extent_of(swap.new).low, array, swap.new)
        return at_address(array.ctypes.data, array, self._owned.get(extent))

    def value(self, value: object) -> object:
        """Return what stands for an array of another library, which tasks get as the user passed it."""
        if not self._swaps:
            return value
        try:
            array = as_ndarray(value)
        except TypeError:  # a token may be anything
            return value
        for swap in self._swaps:
            if array is not None and swap.old == extent_of(array):
                return swap.value
        return value

    def array(self, value: Any) -> Any:
        """Return the array that stands for one that the user gave, as the user gave it where it is a whole one."""
        array = _array(value)
        for swap in self._swaps:
            if swap.old == extent_of(array):
                return swap.value
            if swap.old.holds(extent_of(array)):
                return self.substitute(array)
        return value

    def rebound(self, arrays: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> Rebinding:
        """Return the binding in which `arrays` hold too."""
        captured = [*self._owned, *(view for swap in self._swaps for view in swap.views)]
        swaps = {swap.old: swap for swap in self._swaps}
        for old_value, new_value in arrays.items() if isinstance(arrays, Mapping) else arrays:
            old, new = _array(old_value), _array(new_value)
            if (new.shape, new.dtype, new.strides) != (old.shape, old.dtype, old.strides):
                raise GraphError(
                    f"rebind: an array of shape {old.shape}, {old.dtype}, strides {old.strides} cannot be replaced by "
                    f"one of shape {new.shape}, {new.dtype}, strides {new.strides}"
                )
            spread = _spread(old_value)
            if spread is not _spread(new_value):
                raise GraphError(
                    "rebind: a distributed array can be replaced by one of the same shape, tiles and owner, and by "
                    "nothing else: who owns what was compiled in"
                )
            if memory_of(old) != memory_of(new):
                raise GraphError(
                    f"rebind: an array in the memory of {memory_of(old)} cannot be replaced by one in that of "
                    f"{memory_of(new)}: where data is at home was compiled in"
                )
            if not new.flags.writeable:
                raise GraphError("rebind: the new array is read-only; a program owns the memory that it runs on")
            meant = self._meant(extent_of(old), captured)
            views = tuple(view for view in captured if meant.holds(view))
            if not views:
                if spread is not None:  # this rank has nothing to do with it, but another one may
                    continue
                raise GraphError(
                    f"rebind: old must be an array of the program, got one of shape {old.shape} and dtype {old.dtype}"
                )
            if any(meant.meets(view) for view in captured if view not in views):
                raise GraphError("rebind: the program uses memory across the bounds of this array; rebind its base")
            self._check_alignment(meant, extent_of(new), views)
            swaps[meant] = _Swap(meant, new, new_value, views)
        kept = {view: owner for view, owner in self._owned.items() if not any(old.holds(view) for old in swaps)}
        result = Rebinding(kept, self._alignments, tuple(swaps.values()))
        result._check_overlaps()
        return result

    def _meant(self, extent: Extent, captured: Sequence[Extent]) -> Extent:
        """The captured memory that is meant: this, or what it stands for by now."""
        if not any(extent.holds(view) for view in captured):
            for swap in self._swaps:
                if extent_of(swap.new) == extent:
                    return swap.old
        return extent

    def _check_alignment(self, old: Extent, new: Extent, views: Sequence[Extent]) -> None:
        """What was aligned must be: compiled code relies on it."""
        alignment = max(self._alignments.get(view, 1) for view in views)
        if (new.low - old.low) % alignment:
            raise GraphError(
                f"rebind: the new array must begin at a multiple of {alignment} bytes, as the old one does, got "
                f"address {new.low:#x}; pass an aligned copy, as of np.require(array, requirements='A')"
            )

    def _check_overlaps(self) -> None:
        """What did not overlap before must not now."""
        taken = [*self._owned, *(extent_of(swap.new) for swap in self._swaps)]
        for swap in self._swaps:
            new = extent_of(swap.new)
            if sum(new.meets(other) for other in taken) > 1:
                raise GraphError("rebind: the new array overlaps other memory that the program uses")


def _spread(value: Any) -> object:
    """Return how an array is distributed over ranks; of a slice of one, the slice; of any other array, None."""
    return getattr(value, "distribution", value) if hasattr(type(value), "is_ostinato_distributed_array") else None


def _array(value: object) -> Array:
    array = as_ndarray(value)
    if array is None:
        raise TypeError(f"rebind: old and new must be arrays, got {brief(value)}")
    return array


def detach(executable: Executable) -> Executable:
    """Return a schedule of copies of its ops whose arrays are addresses only.

    Tokens, and arrays of other libraries, which tasks get as they were passed, stay what they are.
    """
    copies, step, before = _Copies(), executable.step, executable.step.before_devices
    nodes = tuple(map(copies.op, step.nodes))
    write_backs = tuple(each._replace(pairs=_pairs(each.pairs)) for each in step.coherence.write_backs)
    if before is not None:
        before = replace(before, nodes=tuple(map(copies.op, before.nodes)))
    coherence = step.coherence._replace(write_backs=write_backs)
    return replace(executable, step=replace(step, nodes=nodes, coherence=coherence, before_devices=before))


def _pairs(pairs: Iterable[tuple[Array, Array]]) -> tuple[tuple[Array, Array], ...]:
    return tuple((_address_only(source), _address_only(target)) for source, target in pairs)


def _address_only(array: Array) -> Array:
    return at_address(array.ctypes.data, array, None)


class _Copies:
    def __init__(self) -> None:
        self._operands: dict[int, Operand] = {}

    def op(self, op: Op) -> Node:
        body = self._body(op.body)
        recorded = body if op.recorded is op.body else self._body(op.recorded)
        return Node(op, body=body, operands=tuple(map(self._operand, op.operands)), recorded=recorded).forgetting()

    def _body(self, body: Body) -> Body:
        if isinstance(body, InstanceCopy):
            return InstanceCopy(body.source, body.target, tuple(map(_pairs, body.pairs)))
        return body.map_operands(self._operand)

    def _operand(self, operand: Operand) -> Operand:
        if id(operand) not in self._operands:
            self._operands[id(operand)] = self._copy(operand)
        return self._operands[id(operand)]

    def _copy(self, operand: Operand) -> Operand:
        if operand.ring is not None:
            views = tuple(map(_address_only, operand.ring.views))
            ring = RingElement(cast(Any, None), operand.ring.offset, views)  # the ring holds the old arrays
            return Operand(None, None, ring, operand.mode)
        if operand.array is None:
            return operand
        array = _address_only(operand.array)
        is_plain = isinstance(operand.value, type(array) | DeviceArray)  # not of another library
        return Operand(array if is_plain else operand.value, array, None, operand.mode)
