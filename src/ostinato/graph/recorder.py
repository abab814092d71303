"""Turns arguments of recorded calls into operands, each array once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

import numpy as np

from ostinato.errors import GraphError
from ostinato.graph.arrays import Array, as_ndarray, is_array
from ostinato.graph.containers import Container, Path, is_container, mapped, opaque, place_in, walk
from ostinato.graph.context import current_guard
from ostinato.graph.guard import Guard, is_writable
from ostinato.graph.op import Op, Port
from ostinato.graph.operand import WRITE, Operand
from ostinato.graph.param import FreeParam, Param, Params, Step
from ostinato.graph.refusal import array_in, holding, is_constant, opaque_refusal, refusal_of
from ostinato.graph.ring import Ring, RingElement
from ostinato.graph.token import Token
from ostinato.graph.tracer import Tracer
from ostinato.one_line import brief

__all__ = ["Label", "Recorder"]

Label: TypeAlias = Callable[[int], str]
"""Says what the argument at a place is, for messages."""


class Recorder:
    """The operands of one graph.

    Attributes
    ----------
    params
        The parameters of the graph.
    known
        By mode, the operands that exist, by the `id` of what the user passed. The operands keep that alive.
    native
        By mode, those that native tasks may take.
    guard
        That of the capture that records here; None when none does.
    """

    __slots__ = ("_arrays", "_rings", "_tokens", "guard", "known", "native", "params")

    def __init__(self) -> None:
        self.params = Params()
        self.guard: Guard | None = None
        self.known: tuple[dict[int, Operand], ...] = ({}, {}, {}, {})
        self.native: tuple[dict[int, Operand], ...] = ({}, {}, {}, {})
        self._tokens: tuple[dict[int, Operand], ...] = ({}, {}, {}, {})
        self._arrays: dict[int, tuple[object, Array]] = {}  # for what is no ndarray itself
        self._rings: dict[int, Ring] = {}

    def argument(self, value: object, mode: int, label: Label, place: int) -> Operand | Container:
        """Return what a call records of an argument that it accesses: an operand, or a container of operands.

        Raises
        ------
        TypeError
            It can be neither an array nor a token.
        """
        if isinstance(value, Token):
            return self._token(value.value, mode)
        if not is_container(value):
            operand = self.operand(value, mode, label, place)
            if not operand.arrays:
                self._check_token(value, label, place)
                if not opaque(value):  # which may hold arrays when it is passed again
                    self.known[mode][id(value)] = operand
            return operand
        taken = holding(value)
        return self._container(value, taken, mode, label, place) if taken else self._token(value, mode)

    def operand(self, value: object, mode: int, label: Label, place: int) -> Operand:
        """Return the operand for an argument: an array, a ring element, or a token."""
        known = self.known[mode].get(id(value))
        if known is not None:
            return known
        if type(value) is np.ndarray:
            operand = Operand(value, value, None, mode)
            writable = self._hold(value)
        elif isinstance(value, RingElement):
            operand = Operand(value, None, value, mode)
            self._hold_ring(value.ring)
            writable = not mode & WRITE or all([view.flags.writeable for view in value.views])
        elif isinstance(value, Tracer):
            return self.operand(value.real(), mode, label, place)
        else:
            array = self._array(value, label, place)
            if array is None:
                return self._token(value, mode)
            operand = Operand(value, array, None, mode)
            writable = self._hold(array) if _is_held(value) else array.flags.writeable
        if mode & WRITE and not writable:
            raise GraphError(f"{label(place)} is written, but the array passed is read-only")
        self.known[mode][id(value)] = operand
        return operand

    def native_operand(self, value: object, mode: int, label: Label, place: int) -> Operand:
        """Return the operand for an array argument of a native task, whose memory C code can make sense of."""
        operand = self.operand(value, mode, label, place)
        arrays = operand.arrays
        if not arrays:
            raise TypeError(f"{label(place)} must be an array, got {brief(value)}: C code takes no tokens")
        refusal = native_refusal(arrays[0])
        if refusal is not None:
            raise GraphError(f"{label(place)}: {refusal}")
        self.native[mode][id(value)] = operand
        return operand

    def array_operand(self, value: object, mode: int, label: Label, place: int) -> Operand:
        """Return the operand for an argument that must be an array or a ring element."""
        operand = self.operand(value, mode, label, place)
        if not operand.arrays:
            raise TypeError(f"{label(place)} must be an array or an element of a ring, got {brief(value)}")
        return operand

    def plain_value(self, value: object, label: Label, place: int) -> object:
        """Return what is recorded of an argument that is no array.

        Raises
        ------
        GraphError, TypeError
            It cannot be one.
        """
        if isinstance(value, Param):
            return self.own_param(value, label, place)
        if isinstance(value, Op | Port):
            raise TypeError(f"{label(place)}: {value._why()}")
        if isinstance(value, RingElement | Ring | memoryview) or is_array(value):
            raise TypeError(f"{label(place)} is an array, {_UNDECLARED}")
        if isinstance(value, Token):
            raise TypeError(f"{label(place)} is a token, {_UNDECLARED}")
        found = array_in(value)
        if isinstance(found, Param | Step | Op | Port):
            raise TypeError(
                f"{label(place)} is a {type(value).__name__} that holds {found!r}: pass that as an argument of its "
                "own, or beside arrays in a container that the task declares an access for"
            )
        if found is not None:
            raise TypeError(f"{label(place)} is a {type(value).__name__} that holds an array, {_UNDECLARED}")
        return value

    def own_param(self, value: Param, label: Label, place: int) -> Param:
        """Return this graph's parameter for a parameter that is passed: itself, or of a free one that of its name.

        Raises
        ------
        GraphError
            It is a parameter of another graph.
        """
        if isinstance(value, FreeParam):
            return self.params.mention(value.name, value.default, value.combine)
        if self.params.get(value.name) is not value:
            raise GraphError(f"{label(place)}: parameter {value.name!r} belongs to another graph")
        return value

    def hold_arrays_of(self, other: Recorder) -> None:
        """Make the arrays of a nested graph read-only while a capture is open."""
        if (self.guard or current_guard()) is None:
            return
        for operands in other.known:
            for operand in operands.values():
                if operand.ring is not None:
                    self._hold_ring(operand.ring.ring)
                elif operand.array is not None and _is_held(operand.value):
                    self._hold(operand.array)

    def _container(self, value: object, taken: frozenset[int], mode: int, label: Label, place: int) -> Container:
        """Return a container with operands in place of its arrays, and of other objects that tasks could share."""

        def enter(part: object, path: Path) -> bool:
            if id(part) not in taken:
                return False
            if any(id(part) in tokens for tokens in self._tokens):
                raise GraphError(
                    f"{label(place)}{place_in(path)} is a {type(part).__name__} that was recorded as a token, and "
                    "holds arrays now. Pass ost.token(...) of it in all calls, or another container"
                )
            return True

        def leaf(part: object, path: Path) -> object:
            if is_constant(part) or isinstance(part, Step):
                return part

            def labelled(place: int) -> str:
                return label(place) + place_in(path)

            if isinstance(part, Param):
                return self.own_param(part, labelled, place)
            return self.argument(part, mode, labelled, place)

        found = mapped(value, label(place), enter, leaf)
        if not any(isinstance(part, Operand) for part in walk(found)):
            raise TypeError(f"{label(place)} must hold an array, got a {type(value).__name__} of parameters only")
        return cast("Container", found)

    def _check_token(self, value: object, label: Label, place: int) -> None:
        """Raise unless an object that is no array is a token."""
        why = refusal_of(value)
        if why is not None:
            raise TypeError(f"{label(place)} {why}")
        if holding(value):
            raise TypeError(f"{label(place)} {opaque_refusal(value)}")

    def _token(self, value: object, mode: int) -> Operand:
        """Return the operand of an object that is a token."""
        tokens = self._tokens[mode]
        return tokens.setdefault(id(value), Operand(value, None, None, mode))

    def _array(self, value: object, label: Label, place: int) -> Array | None:
        if isinstance(value, Param | Step | Ring):
            raise GraphError(
                f"{label(place)} must be an array, got {brief(value)}{_RING_HINT * isinstance(value, Ring)}"
            )
        if isinstance(value, Op | Port):
            raise TypeError(f"{label(place)}: {value._why()}")
        known = self._arrays.get(id(value))
        if known is not None:
            return known[1]
        try:
            array = as_ndarray(value)
        except TypeError as error:
            raise TypeError(f"{label(place)}: {error}") from error
        if array is not None:
            self._arrays[id(value)] = (value, array)
        return array

    def _hold_ring(self, ring: Ring) -> None:
        if id(ring) not in self._rings:
            for value in ring.values:
                if isinstance(value, np.ndarray):
                    self._hold(value)
            self._rings[id(ring)] = ring

    def _hold(self, array: Array) -> bool:
        """Make an array read-only while a capture is open; return whether it is writable otherwise."""
        guard = self.guard or current_guard()
        return is_writable(array) if guard is None else guard.hold(array)


def _is_held(value: object) -> bool:
    """Whether making an array read-only keeps anybody from writing; others have faces of their own."""
    return isinstance(value, np.ndarray)


_UNDECLARED = (
    "but the task does not say how it uses it; declare the parameter ost.Read, ost.Write or ost.ReadWrite, by "
    "annotation or in access="
)
_RING_HINT = "; pass an element of it, as in u[0]"


def native_refusal(array: Array) -> str | None:
    """Say why C code cannot make sense of an array's elements; None where it can."""
    if array.dtype.hasobject:
        return "C code cannot take an array of Python objects"
    if not array.dtype.isnative:
        return f"C code cannot take an array of swapped byte order ({array.dtype.str}); convert it"
    return None
