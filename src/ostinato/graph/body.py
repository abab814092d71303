"""What an op does, by kind: plain values for the passes and the runtime to read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from ostinato.events import Barrier
from ostinato.graph.access import split
from ostinato.graph.arrays import Operand, fill_value
from ostinato.graph.containers import Packing, pack
from ostinato.graph.param import Param, as_scalar

if TYPE_CHECKING:
    from ostinato.events import Reservation
    from ostinato.graph.graph import Graph
    from ostinato.graph.native import NativeTask
    from ostinato.graph.op import Source
    from ostinato.graph.operations import Reduction
    from ostinato.graph.task import PythonTask


class NewValue(Protocol):
    """Gives what stands for an argument: itself, or where it is a parameter another one, or a value."""

    def __call__(self, arg: Any, convert: Callable[[Any, str], Any] | None = None) -> Any:
        """Return it; `convert` takes a value, and what messages call it."""


class Body:
    """What an op does: base of all classes that say so.

    Most passes ask a body what they need; some treat calls, copies and fills apart.

    How the core runs a body, `ostinato.compiler.lower.lowerings` says, by its class.
    """

    __slots__ = ()

    only_waits: ClassVar[bool] = False
    """Whether it does nothing but wait for something outside of its program."""
    works_elsewhere: ClassVar[bool] = False
    """Whether, where a thread waits for it, no core does its work meanwhile."""

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in getattr(self, "__slots__", ()))
        return f"{type(self).__name__}({fields})"

    @property
    def takes_stream(self) -> bool:
        """Whether it puts its work on the stream of a device."""
        return False

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The operands whose arrays `perform` takes; none for classes that are run in other ways."""
        return ()

    def perform(self, *arrays: Any) -> None:
        """Do it, to arrays of the host: for classes that have no lowering of their own."""
        raise NotImplementedError

    @property
    def waits_outside(self) -> bool:
        """Whether it waits for something outside of its program: an event, a phase, a reservation, a blocking task."""
        return False

    @property
    def keeps_stream_order(self) -> bool:
        """Whether an op that runs on a device puts its work on the stream that it is given, and nowhere else."""
        return False

    def map_operands(self, new: Callable[[Operand], Operand]) -> Self:
        """Return the same on the operands that `new` gives for its own."""
        return self

    def map_params(self, new: NewValue) -> Self:
        """Return the same with what `new` gives in place of its parameters; itself if it has none."""
        return self


class _Call(Body):
    """A call of a task."""

    __slots__ = ()

    task: PythonTask | NativeTask
    args: tuple[object, ...]

    @property
    def takes_stream(self) -> bool:
        return self.task.stream is not None

    @property
    def keeps_stream_order(self) -> bool:
        return self.takes_stream


@dataclass(slots=True, eq=False, repr=False)
class PythonCall(_Call):
    """A call of a Python function, that of `task`.

    `args` are the positional, then the keyword values, in the order of a vectorcall; `keywords` names the latter.
    Each is an `Operand`, a `Param`, `STEP`, `STREAM`, or a plain object that is passed as it is. Where arguments are
    containers, `args` are what these hold, `packing` says how the arguments are made of it, and `keywords` is empty.
    """

    task: PythonTask
    args: tuple[object, ...]
    keywords: tuple[str, ...] = ()
    packing: Packing | None = None

    works_elsewhere = True

    @classmethod
    def of(cls, task: PythonTask, values: tuple[object, ...], keywords: tuple[str, ...]) -> PythonCall:
        """Return a call with values among which there are containers."""
        leaves, packing = pack(values, keywords)
        return cls(task, leaves, (), packing)

    def with_args(self, args: Iterable[object]) -> PythonCall:
        """Return the same call with other `args`."""
        return PythonCall(self.task, tuple(args), self.keywords, self.packing)

    def map_operands(self, new: Callable[[Operand], Operand]) -> PythonCall:
        return self.with_args(_mapped(self.args, new))

    def map_params(self, new: NewValue) -> PythonCall:
        return self.with_args(map(new, self.args)) if _any_param(self.args) else self

    @property
    def function(self) -> Callable[..., Any]:
        """What is called with `args`: the task's function, or what makes containers of them and calls that."""
        if self.packing is None:
            return self.task.function
        return self.packing.called(self.task.name, self.task.function)

    @property
    def releases_gil(self) -> bool:
        """Whether it spends its time without Python's global interpreter lock."""
        return self.task.releases_gil

    @property
    def blocking(self) -> bool:
        """Whether it may wait, and so runs on a thread of its own."""
        return self.task.blocking

    @property
    def waits_outside(self) -> bool:
        return self.blocking

    @property
    def launch_only(self) -> bool:
        """Whether it does nothing but start what its arguments say, on a stream."""
        return self.task.launch_only and self.task.stream is not None

    def given(self) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the positional and the keyword values, as the call gave them: without the stream."""
        return split(*self.arguments())

    def arguments(self) -> tuple[tuple[object, ...], tuple[str, ...]]:
        """Return the positional, then the keyword values, a `Container` for each container, and the keywords."""
        if self.packing is None:
            return self.args, self.keywords
        return self.packing.arguments(self.args), self.packing.keywords


@dataclass(slots=True, eq=False, repr=False)
class NativeCall(_Call):
    """A call of a C function.

    Each of `args` is an `Operand`, or for a scalar a float, an int, a `Param`, `STEP`, or `STREAM` for its handle.
    """

    task: NativeTask
    args: tuple[object, ...]

    def map_operands(self, new: Callable[[Operand], Operand]) -> NativeCall:
        return NativeCall(self.task, tuple(_mapped(self.args, new)))

    def map_params(self, new: NewValue) -> NativeCall:
        if not _any_param(self.args):
            return self
        pairs = zip(self.args, self.task.kinds, strict=True)
        return NativeCall(self.task, tuple(new(arg, partial(_as_kind, kind)) for arg, kind in pairs))

    def given(self) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the values as the call gave them, without the stream; there are no keywords."""
        return split(self.args, ())


@dataclass(slots=True, eq=False, repr=False)
class Copy(Body):
    """A copy of `source` into `target`, combined by `reduce`, gathered by `indices`, scattered by `scatter`."""

    source: Operand
    target: Operand
    reduce: Reduction | None = None
    indices: Operand | None = None
    scatter: Operand | None = None

    keeps_stream_order = True

    def map_operands(self, new: Callable[[Operand], Operand]) -> Copy:
        indices, scatter = (each and new(each) for each in (self.indices, self.scatter))
        return Copy(new(self.source), new(self.target), self.reduce, indices, scatter)


@dataclass(slots=True, eq=False, repr=False)
class Fill(Body):
    """An assignment to all of `target`: of a `Param`, or of an array of its dtype that broadcasts to its shape."""

    target: Operand
    value: object

    keeps_stream_order = True

    def map_operands(self, new: Callable[[Operand], Operand]) -> Fill:
        return Fill(new(self.target), self.value)

    def map_params(self, new: NewValue) -> Fill:
        if not isinstance(self.value, Param):
            return self
        return Fill(self.target, new(self.value, lambda value, _: fill_value(value, self.target.arrays[0])))


@dataclass(slots=True, eq=False, repr=False)
class Until(Body):
    """A look at `flag` in every `every`-th step: where it is nonzero, that step is the run's last."""

    flag: Operand
    every: int

    def map_operands(self, new: Callable[[Operand], Operand]) -> Until:
        return Until(new(self.flag), self.every)


@dataclass(slots=True, eq=False, repr=False)
class Precondition(Body):
    """Something outside that must have happened before what comes after this, in a run's first step."""

    name: str

    only_waits = True
    waits_outside = True


@dataclass(slots=True, eq=False, repr=False)
class Postcondition(Body):
    """An event that each run gives: what comes before this is done, in its last step."""

    name: str


@dataclass(slots=True, eq=False, repr=False)
class Arrive(Body):
    """`count` arrivals at `barrier`, with `value` for its reduction; each may be a `Param`. No value: `NO_VALUE`."""

    barrier: Barrier | Param
    count: int | Param
    value: object

    NO_VALUE = object()

    def map_params(self, new: NewValue) -> Arrive:
        if not _any_param((self.barrier, self.count, self.value)):
            return self
        barrier, value = new(self.barrier, _as_barrier), new(self.value)
        return Arrive(barrier, new(self.count, _as_count), Arrive.NO_VALUE if value is None else value)


@dataclass(slots=True, eq=False, repr=False)
class Await(Body):
    """A wait for the phase of `barrier` that belongs to the step."""

    barrier: Barrier | Param

    only_waits = True
    waits_outside = True

    def map_params(self, new: NewValue) -> Await:
        return Await(new(self.barrier, _as_barrier)) if isinstance(self.barrier, Param) else self


@dataclass(slots=True, eq=False, repr=False)
class Acquire(Body):
    """A request for `reservation`, done when it is granted."""

    reservation: Reservation
    exclusive: bool

    waits_outside = True


@dataclass(slots=True, eq=False, repr=False)
class Release(Body):
    """Gives `reservation` back."""

    reservation: Reservation


@dataclass(slots=True, eq=False, repr=False)
class Nested(Body):
    """All of another graph, as one op.

    `params` gives values, or parameters of the outer graph, for the inner graph's; `preconditions` says, for each name
    that the inner graph declares, after what of the outer graph it holds.
    """

    graph: Graph
    params: dict[str, object]
    preconditions: dict[str, tuple[Source, ...]]


class Join(Body):
    """Nothing but a place in the order: comes after some ops, and before others."""

    __slots__ = ()


class Inserted(Body):
    """What a pass of the compiler adds to the ops of a graph; base of the classes that say what."""

    __slots__ = ()

    keeps_stream_order = True

    @property
    def period(self) -> int:
        """After how many steps it does the same."""
        return 1


def _any_param(args: Iterable[object]) -> bool:
    return any(isinstance(arg, Param) for arg in args)


def _as_kind(kind: type, value: Any, label: str) -> object:
    return as_scalar(value, kind, label)


def _as_count(value: Any, label: str) -> int:
    count = operator.index(value)
    if count < 1:
        raise ValueError(f"{label} must be at least 1 arrival, got {count}")
    return count


def _as_barrier(value: Any, label: str) -> Barrier:
    if not isinstance(value, Barrier):
        raise TypeError(f"{label} must be an ostinato.Barrier, got {value!r}")
    return value


def _mapped(args: Iterable[object], new: Callable[[Operand], Operand]) -> Iterator[object]:
    return (new(arg) if isinstance(arg, Operand) else arg for arg in args)
