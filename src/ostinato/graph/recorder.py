"""Recording calls: what arguments become, and what every kind of task shares."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, cast, overload

import numpy as np

from ostinato import _core
from ostinato.errors import GraphError, TracerError
from ostinato.graph.access import Formal
from ostinato.graph.arrays import WRITE, Array, Operand, as_ndarray, is_array
from ostinato.graph.body import Body, NativeCall, PythonCall
from ostinato.graph.containers import (
    PLAIN,
    Container,
    Path,
    Token,
    array_in,
    format_path,
    holding,
    is_constant,
    is_container,
    map_leaves,
    opaque,
    opaque_refusal,
    refusal_of,
    walk,
)
from ostinato.graph.context import CallSite, Guard, current_guard, is_writable, user_frame
from ostinato.graph.op import Op, Port
from ostinato.graph.param import FreeParam, NoValue, Param, Params, Step
from ostinato.graph.ring import AbstractArray, Ring, RingElement
from ostinato.graph.tracer import Tracer
from ostinato.text import brief, one_line

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph
    from ostinato.graph.messages import Group
    from ostinato.graph.variant import Variant

Label: TypeAlias = Callable[[int], str]
"""Returns what messages call the argument at an index."""


class Recorder:
    """The operands of one graph; `guard` is that of the capture that records here, if one does.

    `group` are the ranks that messages go between, or that arrays are spread over; None where there are none.

    `calls` records common calls without Python. It also finds the operand that was made for an array when the user
    passed the array before. `graph` is the graph, `ops` its ops.
    """

    __slots__ = ("_arrays", "_rings", "_tokens", "calls", "group", "guard", "params")

    def __init__(self, graph: Graph, ops: list[Op]) -> None:
        self.params = Params()
        self.group: Group | None = None
        self.guard: Guard | None = None
        self.calls = _core.CallRecorder(graph, ops)
        self._tokens: tuple[dict[int, Operand], ...] = ({}, {}, {}, {})
        self._arrays: dict[int, tuple[object, Array]] = {}  # for what is no ndarray itself
        self._rings: dict[int, Ring] = {}

    def start(self, guard: Guard) -> None:
        """Have what is recorded protected by the guard of a capture."""
        self.guard = guard
        self.calls.begin(guard.arrays, guard.views)

    def stop(self) -> None:
        """End what `start` began; arrays that are recorded again from now on have new operands."""
        self.guard = None
        self.calls.end()

    def argument(self, value: object, mode: int, label: Label, index: int) -> Operand | Container:
        """Return what a call records of an argument that it accesses: an operand, or a container of operands.

        Raises `TypeError` if it can be neither an array nor a token.
        """
        if isinstance(value, Token):
            return self._token(value.value, mode)
        if not is_container(value):
            operand = self.operand(value, mode, label, index)
            if not operand.arrays:
                self._check_token(value, label, index)
                if not opaque(value):  # which may hold arrays when it is passed again
                    self.calls.keep(value, mode, operand)
            return operand
        taken = holding(value)
        return self._container(value, taken, mode, label, index) if taken else self._token(value, mode)

    def operand(self, value: object, mode: int, label: Label, index: int) -> Operand:
        """Return the operand for an argument: an array, a ring element, or a token."""
        known: Operand | None = self.calls.find(value, mode)
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
            return self.operand(value.referent(), mode, label, index)
        else:
            array = self._array(value, label, index)
            if array is None:
                return self._token(value, mode)
            spread = isinstance(value, AbstractArray)  # over ranks: tasks get what this one has of it
            if spread:
                self.join(value.group)  # type: ignore[attr-defined]
            operand = Operand(array if spread else value, array, None, mode)
            # A guard keeps nobody from writing to an array that has another interface.
            writable = self._hold(array) if isinstance(value, np.ndarray) else array.flags.writeable
        if mode & WRITE and not writable:
            raise GraphError(f"{label(index)} is written, but the array passed is read-only")
        self.calls.keep(value, mode, operand)
        return operand

    def native_operand(self, value: object, mode: int, label: Label, index: int) -> Operand:
        """Return the operand for an array argument of a native task, whose memory C code can make sense of."""
        operand = self.operand(value, mode, label, index)
        arrays = operand.arrays
        if not arrays:
            raise TypeError(f"{label(index)} must be an array, got {brief(value)}: {NO_TOKENS}")
        refusal = native_refusal(arrays[0])
        if refusal is not None:
            raise GraphError(f"{label(index)}: {refusal}")
        return operand

    def array_operand(self, value: object, mode: int, label: Label, index: int) -> Operand:
        """Return the operand for an argument that must be an array or a ring element."""
        operand = self.operand(value, mode, label, index)
        if not operand.arrays:
            raise TypeError(f"{label(index)} must be an array or an element of a ring, got {brief(value)}")
        return operand

    def plain_value(self, value: object, label: Label, index: int) -> object:
        """Return what is recorded of an argument that is no array; raise if it cannot be one."""
        if isinstance(value, Param):
            return self.own_param(value, label, index)
        if isinstance(value, Op | Port):
            raise TypeError(f"{label(index)}: {value.why_unusable()}")
        if isinstance(value, RingElement | Ring | memoryview) or is_array(value):
            raise TypeError(f"{label(index)} is an array, {_UNDECLARED}")
        if isinstance(value, Token):
            raise TypeError(f"{label(index)} is a token, {_UNDECLARED}")
        found = array_in(value)
        if isinstance(found, Param | Step | Op | Port):
            raise TypeError(
                f"{label(index)} is a {type(value).__name__} that holds {found!r}: pass that as an argument of its "
                "own, or beside arrays in a container that the task declares an access for"
            )
        if found is not None:
            raise TypeError(f"{label(index)} is a {type(value).__name__} that holds an array, {_UNDECLARED}")
        return value

    def own_param(self, value: Param, label: Label, index: int) -> Param:
        """Return this graph's parameter for a parameter that is passed: itself, or of a free one that of its name.

        Raises `GraphError` for a parameter of another graph.
        """
        if isinstance(value, FreeParam):
            return self.params.mention(value.name, value.default, value.combine)
        if self.params.get(value.name) is not value:
            raise GraphError(f"{label(index)}: parameter {value.name!r} belongs to another graph")
        return value

    def hold_arrays_of(self, ops: Iterable[Op]) -> None:
        """Make the arrays of a nested graph read-only while a capture is open."""
        if (self.guard or current_guard()) is None:
            return
        for op in ops:
            for operand in op.operands:
                if operand.ring is not None:
                    self._hold_ring(operand.ring.ring)
                elif operand.array is not None and isinstance(operand.value, np.ndarray):
                    self._hold(operand.array)

    def _container(self, value: object, taken: frozenset[int], mode: int, label: Label, index: int) -> Container:
        """Return a container with operands in place of its arrays, and of other objects that tasks could share."""

        def enter(part: object, path: Path) -> bool:
            if id(part) not in taken:
                return False
            if any(id(part) in tokens for tokens in self._tokens):
                raise GraphError(
                    f"{label(index)}{format_path(path)} is a {type(part).__name__} that was recorded as a token, and "
                    "holds arrays now. Pass ost.token(...) of it in all calls, or another container"
                )
            return True

        def leaf(part: object, path: Path) -> object:
            if is_constant(part) or isinstance(part, Step):
                return part

            def labelled(index: int) -> str:
                return label(index) + format_path(path)

            if isinstance(part, Param):
                return self.own_param(part, labelled, index)
            return self.argument(part, mode, labelled, index)

        found = map_leaves(value, label(index), enter, leaf)
        if not any(isinstance(part, Operand) for part in walk(found)):
            raise TypeError(f"{label(index)} must hold an array, got a {type(value).__name__} of parameters only")
        return cast("Container", found)

    def _check_token(self, value: object, label: Label, index: int) -> None:
        """Raise unless an object that is no array is a token."""
        why = refusal_of(value)
        if why is not None:
            raise TypeError(f"{label(index)} {why}")
        if holding(value):
            raise TypeError(f"{label(index)} {opaque_refusal(value)}")

    def _token(self, value: object, mode: int) -> Operand:
        """Return the operand of an object that is a token."""
        tokens = self._tokens[mode]
        return tokens.setdefault(id(value), Operand(value, None, None, mode))

    def _array(self, value: object, label: Label, index: int) -> Array | None:
        if isinstance(value, Param | Step | Ring):
            raise GraphError(
                f"{label(index)} must be an array, got {brief(value)}{_RING_HINT * isinstance(value, Ring)}"
            )
        if isinstance(value, Op | Port):
            raise TypeError(f"{label(index)}: {value.why_unusable()}")
        known = self._arrays.get(id(value))
        if known is not None:
            return known[1]
        try:
            array = as_ndarray(value)
        except TypeError as error:
            raise TypeError(f"{label(index)}: {error}") from error
        if array is not None:
            self._arrays[id(value)] = (value, array)
        return array

    def join(self, group: Group) -> None:
        """Let these ranks compile and replay what is recorded together."""
        if self.group is not None and self.group is not group:
            raise GraphError("a graph has messages between the ranks of one ostinato.Ranks, but was given two")
        self.group = group

    def _hold_ring(self, ring: Ring) -> None:
        if id(ring) not in self._rings:
            for value in ring.values:
                if isinstance(value, np.ndarray):
                    self._hold(value)
                elif isinstance(value, AbstractArray):
                    self.join(value.group)
            self._rings[id(ring)] = ring

    def _hold(self, array: Array) -> bool:
        """Make an array read-only while a capture is open; return whether it is writable otherwise."""
        guard = self.guard or current_guard()
        return is_writable(array) if guard is None else guard.hold(array)


_core.prepare_recording(Operand, Op, NativeCall, PythonCall, tuple(PLAIN), lambda frame: CallSite(user_frame(frame)))

_UNDECLARED = (
    "but the task does not say how it uses it; declare the parameter ost.Read, ost.Write or ost.ReadWrite, by "
    "annotation or in access="
)
NO_TOKENS = "compiled code takes arrays only; pass numpy.array(...) of a list"
"""Why a kernel or a native task refuses what is no array."""
_RING_HINT = "; pass an element of it, as in u[0]"


def native_refusal(array: Array) -> str | None:
    """Say why C code cannot make sense of an array's elements; None where it can."""
    if array.dtype.hasobject:
        return "C code cannot take an array of Python objects"
    if not array.dtype.isnative:
        return f"C code cannot take an array of swapped byte order ({array.dtype.str}); convert it"
    return None


_PUBLIC = frozenset(("blocking", "launch_only", "name", "pure", "releases_gil", "variant", "variants"))

F = TypeVar("F", bound=Callable[..., Any])


class Recordable:
    """A task of any kind, with its `name` in messages and traces.

    `takes_names` says whether arguments may be passed by name.
    """

    __slots__ = ("variants_held",)

    name: str
    takes_names: ClassVar[bool] = True
    variants_held: tuple[Variant, ...]  # made when somebody asks; see variant.py

    def bind(
        self, recorder: Recorder, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Body, tuple[Operand, ...]]:
        """Turn the arguments of a call into what an op records."""
        raise NotImplementedError

    def body_of(self, args: tuple[object, ...], kwargs: Mapping[str, object], known: dict[object, Any]) -> Body:
        """Return what an op records of a call whose arguments another op has recorded; raise if it cannot take these.

        `known` is filled with what calls with the same arguments can share.
        """
        raise NotImplementedError

    def plain_form(self) -> tuple[tuple[Any, ...], bool] | None:
        """Return how it takes its arguments where each is given, by position; None if `bind` must look at each call.

        By argument: the access of an array, 0 for a plain value, or the type of a number; and whether it is native.
        """
        return None

    def formals(self) -> tuple[Formal, ...]:
        """Return what parameters it declares."""
        raise NotImplementedError

    def check_config(self, name: str, value: object) -> None:
        """Raise unless a value of a configuration can be an argument."""

    @property
    def called(self) -> str:
        """What messages call it: ``"relax()"``."""
        return f"{one_line(self.name)}()"

    @property
    def source(self) -> Recordable:
        """The task as the user has it: of what was compiled from a kernel, the kernel."""
        return self

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants declared, in the order in which they were; the task itself is not among them."""
        from ostinato.graph.variant import held

        return held(self.source)[1:]

    @overload
    def variant(self, function: F, /) -> F: ...
    @overload
    def variant(
        self, on: str | None = None, name: str | None = None, config: Mapping[str, Any] | None = None
    ) -> Callable[[F], F]: ...
    def variant(self, on: Any = None, name: str | None = None, config: Mapping[str, Any] | None = None) -> Any:
        """Declare another implementation of this task: a function, or a task of any kind.

        `Graph.tune` measures it where it has the same results as the task, and programs compiled afterwards run
        whichever is fastest. It uses its arguments as the task does, position by position: annotate them alike. It is
        returned as it was given, so that one function can be declared with one configuration after the other. What is
        said of the task, such as `releases_gil`, holds for a function, too; declare a task of it to say otherwise.

        Parameters
        ----------
        on
            The kind of processor that it is for, such as ``"cpu"``; by default any.
        name
            The name in reports; by default the function's, with its kind before it if that is the task's own.
        config
            The configuration, of plain values. Those named as parameters that the function has beyond the task's are
            passed to it; the others only describe it.

        Raises
        ------
        TypeError
            It does not take the task's arguments, or uses one in another way.
        ValueError
            The task has a variant of this name and configuration, or `on` is no kind of processor.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> @ost.task
        ... def total(src: ost.Read, dst: ost.Write):
        ...     dst[0] = sum(src)
        >>> @total.variant(config={"block": 4})
        ... @total.variant(config={"block": 8})
        ... def by_blocks(src: ost.Read, dst: ost.Write, *, block):
        ...     dst[0] = sum(src[at : at + block].sum() for at in range(0, len(src), block))
        >>> [variant.label for variant in total.variants]
        ['by_blocks(block=8)', 'by_blocks(block=4)']
        """
        from ostinato.graph.variant import Declaration

        if isinstance(on, Recordable) or (callable(on) and not isinstance(on, type)):  # @relax.variant
            Declaration(self.source, None, name, config).add(on, sys._getframe(1).f_locals)
            return on
        declaration = Declaration(self.source, on, name, config)

        def decorate(function: F) -> F:
            declaration.add(function, sys._getframe(1).f_locals)
            return function

        return decorate

    def __dir__(self) -> list[str]:  # for completion: what recording uses is not for users
        return [name for name in super().__dir__() if name.startswith("_") or name in _PUBLIC]

    def __copy__(self) -> Recordable:
        return self  # like functions

    def __deepcopy__(self, memo: dict[int, Any]) -> Recordable:
        return self


def importable_name(task: Recordable) -> str:
    """Return the name by which pickle finds a task in its module."""
    name = getattr(task, "__qualname__", None)
    if not isinstance(name, str):
        raise TypeError(f"{task!r} cannot be pickled: what it calls has no name")
    return name


def refuse_placeholder(value: object, name: str) -> None:
    """Raise if an argument of a call that runs at once only has a meaning in a recorded one."""
    if isinstance(value, NoValue | Ring):
        kind = TracerError if isinstance(value, Tracer) else TypeError
        raise kind(
            f"{one_line(name)}() runs at once here, outside a capture, where {value!r} has no value; "
            "call it in a function that is given to ostinato.compile, or inside `with ostinato.capture():`"
        )
