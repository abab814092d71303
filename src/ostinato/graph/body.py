"""What an op does, by kind: plain values for the passes and the runtime to read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
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

__all__ = [
    "Acquire",
    "Arrive",
    "Await",
    "Body",
    "Copy",
    "Fill",
    "Inserted",
    "Join",
    "NativeCall",
    "Nested",
    "Postcondition",
    "Precondition",
    "PythonCall",
    "Release",
    "Until",
]


class NewValue(Protocol):
    """Gives what stands for an argument: itself, or where it is a parameter another one, or a value."""

    def __call__(self, arg: Any, convert: Callable[[Any, str], Any] | None = None) -> Any:
        """Return it; `convert` takes a value, and what messages call it."""


class Body:
    """What an op does: base of all classes that say so. Passes ask a body what they need, and know none by name.

    How the core runs a body, `ostinato.compiler.lower.lowerings` says, by its class.
    """

    __slots__ = ()

    only_waits: ClassVar[bool] = False
    """Whether it does nothing but wait for something outside of its program."""
    works_elsewhere: ClassVar[bool] = False
    """Whether, where a thread waits for it, no core does its work meanwhile."""

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

    __slots__ = ("args", "task")

    task: PythonTask | NativeTask
    args: tuple[object, ...]

    @property
    def takes_stream(self) -> bool:
        """Whether it puts its work on the stream of a device."""
        return self.task.stream is not None

    @property
    def keeps_stream_order(self) -> bool:
        """Whether an op that runs on a device puts its work on the stream that it is given, and nowhere else."""
        return self.takes_stream


class PythonCall(_Call):
    """A call of a Python function, that of `task`.

    `args` are the positional, then the keyword values, in the order of a vectorcall; `keywords` names the latter.
    Each is an `Operand`, a `Param`, `STEP`, `STREAM`, or a plain object that is passed as it is. Where arguments are
    containers, `args` are what these hold, `packing` says how the arguments are made of it, and `keywords` is empty.
    """

    __slots__ = ("keywords", "packing")

    works_elsewhere = True

    task: PythonTask

    def __init__(
        self,
        task: PythonTask,
        args: tuple[object, ...],
        keywords: tuple[str, ...] = (),
        packing: Packing | None = None,
    ) -> None:
        self.task = task
        self.args = args
        self.keywords = keywords
        self.packing = packing

    @classmethod
    def of(cls, task: PythonTask, values: tuple[object, ...], keywords: tuple[str, ...]) -> PythonCall:
        """Return a call with values among which there are containers."""
        leaves, packing = pack(values, keywords)
        return cls(task, leaves, (), packing)

    def with_args(self, args: Iterable[object]) -> PythonCall:
        """Return the same call with other `args`."""
        return PythonCall(self.task, tuple(args), self.keywords, self.packing)

    def map_operands(self, new: Callable[[Operand], Operand]) -> PythonCall:
        """Return the same on the operands that `new` gives for its own."""
        return self.with_args(_mapped(self.args, new))

    def map_params(self, new: NewValue) -> PythonCall:
        """Return the same with what `new` gives in place of its parameters; itself if it has none."""
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
        """Whether it waits for something outside of its program: an event, a phase, a reservation, a blocking task."""
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


class NativeCall(_Call):
    """A call of a C function.

    Each of `args` is an `Operand`, or for a scalar a float, an int, a `Param`, `STEP`, or `STREAM` for its handle.
    """

    __slots__ = ()

    task: NativeTask

    def __init__(self, task: NativeTask, args: tuple[object, ...]) -> None:
        self.task = task
        self.args = args

    def map_operands(self, new: Callable[[Operand], Operand]) -> NativeCall:
        """Return the same on the operands that `new` gives for its own."""
        return NativeCall(self.task, tuple(_mapped(self.args, new)))

    def map_params(self, new: NewValue) -> NativeCall:
        """Return the same with what `new` gives in place of its parameters; itself if it has none."""
        if not _any_param(self.args):
            return self
        pairs = zip(self.args, self.task.kinds, strict=True)
        return NativeCall(self.task, tuple(new(arg, partial(_as_kind, kind)) for arg, kind in pairs))

    def given(self) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the values as the call gave them, without the stream; there are no keywords."""
        return split(self.args, ())


class Copy(Body):
    """A copy of `source` into `target`, combined by `reduce`, gathered by `indices`, scattered by `scatter`."""

    __slots__ = ("indices", "reduce", "scatter", "source", "target")

    def __init__(
        self,
        source: Operand,
        target: Operand,
        reduce: Reduction | None = None,
        indices: Operand | None = None,
        scatter: Operand | None = None,
    ) -> None:
        self.source = source
        self.target = target
        self.reduce = reduce
        self.indices = indices
        self.scatter = scatter

    @property
    def keeps_stream_order(self) -> bool:
        """Whether an op that runs on a device puts its work on the stream that it is given, and nowhere else."""
        return True

    def map_operands(self, new: Callable[[Operand], Operand]) -> Copy:
        """Return the same on the operands that `new` gives for its own."""
        indices, scatter = (each and new(each) for each in (self.indices, self.scatter))
        return Copy(new(self.source), new(self.target), self.reduce, indices, scatter)


class Fill(Body):
    """An assignment to all of `target`: of a `Param`, or of an array of its dtype that broadcasts to its shape."""

    __slots__ = ("target", "value")

    def __init__(self, target: Operand, value: object) -> None:
        self.target = target
        self.value = value

    @property
    def keeps_stream_order(self) -> bool:
        """Whether an op that runs on a device puts its work on the stream that it is given, and nowhere else."""
        return True

    def map_operands(self, new: Callable[[Operand], Operand]) -> Fill:
        """Return the same on the operands that `new` gives for its own."""
        return Fill(new(self.target), self.value)

    def map_params(self, new: NewValue) -> Fill:
        """Return the same with what `new` gives in place of its parameters; itself if it has none."""
        if not isinstance(self.value, Param):
            return self
        return Fill(self.target, new(self.value, lambda value, _: fill_value(value, self.target.arrays[0])))


class Until(Body):
    """A look at `flag` in every `every`-th step: where it is nonzero, that step is the run's last."""

    __slots__ = ("every", "flag")

    def __init__(self, flag: Operand, every: int) -> None:
        self.flag = flag
        self.every = every

    def map_operands(self, new: Callable[[Operand], Operand]) -> Until:
        """Return the same on the operands that `new` gives for its own."""
        return Until(new(self.flag), self.every)


class Precondition(Body):
    """Something outside that must have happened before what comes after this, in a run's first step."""

    __slots__ = ("name",)

    only_waits = True

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def waits_outside(self) -> bool:
        """Whether it waits for something outside of its program: an event, a phase, a reservation, a blocking task."""
        return True


class Postcondition(Body):
    """An event that each run gives: what comes before this is done, in its last step."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Arrive(Body):
    """`count` arrivals at `barrier`, with `value` for its reduction; each may be a `Param`. No value: `NO_VALUE`."""

    __slots__ = ("barrier", "count", "value")

    NO_VALUE = object()

    def __init__(self, barrier: Barrier | Param, count: int | Param, value: object) -> None:
        self.barrier = barrier
        self.count = count
        self.value = value

    def map_params(self, new: NewValue) -> Arrive:
        """Return the same with what `new` gives in place of its parameters; itself if it has none."""
        if not _any_param((self.barrier, self.count, self.value)):
            return self
        barrier, value = new(self.barrier, _as_barrier), new(self.value)
        return Arrive(barrier, new(self.count, _as_count), Arrive.NO_VALUE if value is None else value)


class Await(Body):
    """A wait for the phase of `barrier` that belongs to the step."""

    __slots__ = ("barrier",)

    only_waits = True

    def __init__(self, barrier: Barrier | Param) -> None:
        self.barrier = barrier

    def map_params(self, new: NewValue) -> Await:
        """Return the same with what `new` gives in place of its parameters; itself if it has none."""
        return Await(new(self.barrier, _as_barrier)) if isinstance(self.barrier, Param) else self

    @property
    def waits_outside(self) -> bool:
        """Whether it waits for something outside of its program: an event, a phase, a reservation, a blocking task."""
        return True


class Acquire(Body):
    """A request for `reservation`, done when it is granted."""

    __slots__ = ("exclusive", "reservation")

    def __init__(self, reservation: Reservation, exclusive: bool) -> None:
        self.reservation = reservation
        self.exclusive = exclusive

    @property
    def waits_outside(self) -> bool:
        """Whether it waits for something outside of its program: an event, a phase, a reservation, a blocking task."""
        return True


class Release(Body):
    """Gives `reservation` back."""

    __slots__ = ("reservation",)

    def __init__(self, reservation: Reservation) -> None:
        self.reservation = reservation


class Nested(Body):
    """All of another graph, as one op.

    `params` gives values, or parameters of the outer graph, for the inner graph's; `preconditions` says, for each name
    that the inner graph declares, after what of the outer graph it holds.
    """

    __slots__ = ("graph", "params", "preconditions")

    def __init__(self, graph: Graph, params: dict[str, object], preconditions: dict[str, tuple[Source, ...]]) -> None:
        self.graph = graph
        self.params = params
        self.preconditions = preconditions


class Join(Body):
    """Nothing but a place in the order: comes after some ops, and before others."""

    __slots__ = ()


class Inserted(Body):
    """What a pass of the compiler adds to the ops of a graph; base of the classes that say what."""

    __slots__ = ()

    @property
    def keeps_stream_order(self) -> bool:
        """Whether an op that runs on a device puts its work on the stream that it is given, and nowhere else."""
        return True

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
