"""The graph of one step: its ops in program order, and the dependences that were given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import FrameType, MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any, cast

from ostinato.arguments import Runs, integer, priority_of
from ostinato.devices.registry import address_of
from ostinato.errors import GraphError
from ostinato.graph.access import find_stream
from ostinato.graph.arrays import READ, Array, Operand, root_of
from ostinato.graph.body import Acquire, Await, Body, Postcondition, Precondition, Release, Until
from ostinato.graph.context import Guard, user_frame
from ostinato.graph.op import After, Op, Port, Source, check_target, source_of, sources_of
from ostinato.graph.operations import (
    ReduceArgument,
    arrive_body,
    barrier_of,
    check_not_outside,
    copy_body,
    fill_body,
    graphs_in,
    nested_body,
    new_name,
    postcondition_body,
    reservation_of,
    stop_in,
)
from ostinato.graph.param import REQUIRED, Combine, Param
from ostinato.graph.recorder import Recordable, Recorder
from ostinato.graph.ring import Ring, ring
from ostinato.graph.task import PythonTask, modes_of, name_of
from ostinato.graph.tracer import untrace, untrace_all
from ostinato.text import brief, counted

if TYPE_CHECKING:
    from ostinato._core import CallRecorder
    from ostinato.events import Barrier, Reservation
    from ostinato.graph.messages import Group

_OF_RECORDING = {
    *("add_op", "discard", "has", "is_recording", "nested", "record", "start_recording", "stop", "stop_recording"),
    *("array_names", "explicit_edges", "given_edges", "name_arrays", "port_edges", "postconditions", "preconditions"),
    *("group", "join", "sees_all_tiles"),
}
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_FARTHEST = 2**16  # lanes keep a history of four times as many steps once something has failed


class Graph:
    """One step of a program, as ops in program order.

    Ops come from calls inside ``with capture() as graph:``, and from the methods below; both mix freely. A compiled
    program is a snapshot: what is added later is not in it.

    Parameters
    ----------
    infer
        Whether dependences follow from what ops access. If not, only those given by ``after=`` and `edge` hold.

    Attributes
    ----------
    infer
        As above.
    params
        The parameters by name.
    explicit_edges
        The dependences given, as (index of the earlier op, index of the later op, distance in steps).
    port_edges
        Those on a postcondition of a nested graph: (index of the nested graph's op, name of the postcondition, index of
        the later op, distance in steps).
    preconditions, postconditions
        Their ops by name.
    nested
        The graphs that are nested in this one, as the keys of a dict.
    stop
        The op made by `until`, or None.
    array_names
        What variables called arrays when they were recorded, by the address of the array: for pictures.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> a, b = np.ones(4), np.zeros(4)
    >>> graph = ost.Graph()
    >>> first = graph.fill(a, 2.0)
    >>> second = graph.copy(a, b, after=first)
    >>> [op.name for op in graph.ops]
    ['fill', 'copy']
    """

    sees_all_tiles = False
    """Whether tiles of other ranks are recorded, too, where only those nearby are asked for."""

    def __init__(self, infer: bool = True) -> None:
        self.infer = bool(infer)
        self.explicit_edges: list[tuple[int, int, int]] = []
        self.port_edges: list[tuple[int, str, int, int]] = []
        self.preconditions: dict[str, Op] = {}
        self.postconditions: dict[str, Op] = {}
        self.nested: dict[Graph, None] = {}
        self.stop: Op | None = None
        self.array_names: dict[int, tuple[str, ...]] = {}
        self._traced = False
        self._ops: list[Op] = []
        self._recorder = Recorder(self, self._ops)

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops, in program order."""
        return tuple(self._ops)

    @property
    def params(self) -> Mapping[str, Param]:
        """The parameters by name."""
        return self._recorder.params

    @property
    def group(self) -> Group | None:
        """The ranks that it has messages between, or whose arrays it uses; None where it has neither."""
        return self._recorder.group

    @property
    def given_edges(self) -> list[tuple[Op, Op, int]]:
        """The dependences given by ``after=`` and `edge`: an op, the op that comes after it, the distance in steps."""
        edges = [*self.explicit_edges, *((src, dst, distance) for src, _, dst, distance in self.port_edges)]
        return [(self._ops[src], self._ops[dst], distance) for src, dst, distance in edges]

    if TYPE_CHECKING:  # `ostinato.api` adds these: what they return lies above graphs

        def compile(
            self,
            machine: Any = None,
            *,
            runs: Runs = "pipelined",
            lanes: int | None = None,
            costs: Any = None,
            adapt: bool = True,
            ranks: Any = None,
        ) -> Any: ...

        def tune(
            self,
            machine: Any = None,
            *,
            store: Any = None,
            budget: Any = None,
            rtol: float = 0.0,
            everything: bool = False,
            progress: Any = None,
            fleet: Any = None,
        ) -> Any: ...

        @property
        def edges(self) -> list[tuple[Op, Op, int]]: ...

        def draw(self, path: str | os.PathLike[str]) -> None: ...

        def to_dot(self) -> str: ...

    def __dir__(self) -> list[str]:  # for completion: what recording uses is not for users
        return [name for name in super().__dir__() if name not in _OF_RECORDING]

    def __len__(self) -> int:
        return len(self._ops)

    def __bool__(self) -> bool:
        return True  # a graph without ops is a graph

    def __repr__(self) -> str:
        return f"<Graph of {counted(len(self), 'op')}>"

    def task(
        self,
        fn: object,
        *args: Any,
        after: After = (),
        on: Any = None,
        priority: int = 0,
        name: str | None = None,
        access: Sequence[Any] | None = None,
    ) -> Op:
        """Add a call of a task.

        Parameters
        ----------
        fn
            A task, or any callable together with `access`.
        args
            Its arguments.
        after
            Ops that come before this one, besides those that follow from accesses; see also `previous`.
        on
            A processor, its name (``"cpu:0"``) or a kind (``"cpu"``). A named processor always binds.
        priority
            Higher is more urgent.
        name
            The op's name, by default the task's.
        access
            For a callable that is no task, one entry per argument: `Read`, `Write`, `ReadWrite`, or anything else,
            such as None, for a scalar or a plain object. An entry `Stream` stands for no argument: there the callable
            gets the stream of the device.
        """
        args = tuple(map(untrace, args))
        if isinstance(fn, MethodType):  # a task that is a method
            function, instance = cast(object, fn.__func__), fn.__self__
            if isinstance(function, Recordable):
                fn, args = function, (instance, *args)
        if isinstance(fn, Recordable):
            if access is not None:
                raise TypeError(f"{fn.called} says itself how it uses its arguments; leave out access=")
            called: Recordable = fn
        elif not callable(fn):
            raise TypeError(f"a task must be callable, got {brief(fn)}")
        elif access is None:
            raise TypeError(f"fn must be a task, or come with access=, one entry per argument, got {fn!r}")
        else:
            title = name_of(fn)
            called = PythonTask(fn, modes_of(access), title, stream=find_stream(title, access))
        return self.record(called, args, {}, user_frame(), name, after, on, priority)

    def add_op(
        self,
        make: Callable[[Recorder], tuple[Body, tuple[Operand, ...]]],
        name: str,
        after: After = (),
        on: Any = None,
        priority: int = 0,
    ) -> Op:
        """Add an op of any kind: for modules that add kinds of operations.

        `make` returns the body and its operands, given what turns arguments into operands.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> from ostinato.graph.body import Fill
        >>> def zero(recorder):
        ...     target = recorder.array_operand(x, 2, lambda index: "the array", 0)
        ...     return Fill(target, np.zeros(1)), (target,)
        >>> x, graph = np.ones(3), ost.Graph()
        >>> graph.add_op(zero, "zero").name
        'zero'
        """
        body, operands = make(self._recorder)
        return self._add(body, operands, user_frame(), name, sources_of(self, after), on, priority)

    def copy(
        self,
        src: Any,
        dst: Any,
        after: After = (),
        on: Any = None,
        priority: int = 0,
        name: str | None = None,
        reduce: ReduceArgument | None = None,
        indices: Any = None,
        scatter: Any = None,
    ) -> Op:
        """Add a copy of an array to another of the same shape, converting as `numpy.copyto` does.

        Overlapping arrays are handled as if the source had been copied first. Of Python objects, references are copied.

        Parameters
        ----------
        src, dst
            Arrays or elements of rings.
        after, on, priority, name
            As for `task`.
        reduce
            Combine the source into `dst`, element by element, instead of overwriting it: ``"+"``, ``"*"``, ``"min"``,
            ``"max"``; a function of two elements, ``dst[i] = reduce(dst[i], src[i])``, such as a NumPy ufunc; or a
            native task, a kernel or a Python task ``combine(dst: ReadWrite, src: Read)`` of arrays.
        indices
            Gather along the first axis: ``dst[i] = src[indices[i]]``. The indices are read, and checked, in every step.
        scatter
            Scatter along the first axis: ``dst[scatter[i]] = src[i]``. Where an index occurs several times, the last
            one counts; with `reduce` all of them do, in their order.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> words, longest = np.array(["a", "abc", "ab"], object), np.array(["", ""], object)
        >>> graph = ost.Graph()
        >>> op = graph.copy(words, longest, reduce=lambda a, b: max(a, b, key=len), scatter=np.array([0, 1, 0]))
        >>> with graph.compile() as program:
        ...     program.replay()
        1
        >>> longest.tolist()
        ['ab', 'abc']
        """
        src, dst, indices, scatter = map(untrace, (src, dst, indices, scatter))
        make = partial(copy_body, source=src, target=dst, reduce=reduce, indices=indices, scatter=scatter)
        return self.add_op(make, name or "copy", after, on, priority)

    def fill(
        self,
        dst: Any,
        value: Any,
        after: After = (),
        on: Any = None,
        priority: int = 0,
        name: str | None = None,
    ) -> Op:
        """Add an assignment ``dst[...] = value``.

        Parameters
        ----------
        dst
            An array or an element of a ring.
        value
            A scalar, a sequence, a parameter, or an array, which is then read in every step.
        after, on, priority, name
            As for `task`.
        """
        body, operands = fill_body(self._recorder, untrace(dst), untrace(value))
        return self._add(body, operands, user_frame(), name or "fill", sources_of(self, after), on, priority)

    def until(self, flag: Any, every: int = 1) -> Op:
        """Add a look at `flag` in every `every`-th step: if it is nonzero then, that step is the run's last.

        No op of a later step starts before it is known. A graph has at most one, graphs nested in it included.
        """
        every = integer("every", every, 1)
        stop = stop_in(self)
        if stop is not None:
            raise GraphError(f"the graph has an until() already, at {stop.call_site}; it can have one")
        operand = self._recorder.array_operand(untrace(flag), READ, lambda index: "the flag of until()", 0)
        array = operand.arrays[0]
        if array.size != 1:
            raise GraphError(f"the flag of until() must be an array of one element, got shape {array.shape}")
        if array.dtype.kind not in "biufc":
            raise GraphError(f"the flag of until() must be a number or a bool, got {array.dtype}")
        self.stop = self._add(Until(operand, every), (operand,), user_frame(), "until")
        return self.stop

    def arrive(self, barrier: Barrier | Param, count: Any = 1, value: Any = None, after: After = ()) -> Op:
        """Add arrivals at a barrier.

        In step k of the program they belong to phase p + k, p the barrier's phase at compile; at a barrier given with
        the run, to the phase then current for the run's first step, and so on.

        Parameters
        ----------
        barrier
            The barrier, or a parameter.
        count
            How many arrivals, or a parameter.
        value
            What they add to the barrier's reduction, or a parameter; None for nothing. Of an array it is a copy.
        after
            As for `task`.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> barrier, a = ost.Barrier(1), np.zeros(3)
        >>> graph = ost.Graph()
        >>> op = graph.arrive(barrier, after=graph.fill(a, 1.0))
        """
        body = arrive_body(self._recorder, barrier, count, value)
        return self._add(body, (), user_frame(), "arrive", sources_of(self, after))

    def wait(self, barrier: Barrier | Param, after: After = ()) -> Op:
        """Add a wait for the phase of a barrier that `arrive` in the same step would belong to."""
        return self._add(
            Await(barrier_of(self._recorder, barrier, "wait")), (), user_frame(), "wait", sources_of(self, after)
        )

    def acquire(self, reservation: Reservation, exclusive: bool = True, after: After = ()) -> Op:
        """Add a request for a reservation; what comes after it runs once it is granted.

        Within a program, the requests and releases of one reservation happen in program order, step after step.
        """
        body = Acquire(reservation_of(reservation, "acquire"), bool(exclusive))
        return self._add(body, (), user_frame(), "acquire", sources_of(self, after))

    def release(self, reservation: Reservation, after: After = ()) -> Op:
        """Add giving a reservation back. This happens even where what it comes after failed, or was cancelled."""
        body = Release(reservation_of(reservation, "release"))
        return self._add(body, (), user_frame(), "release", sources_of(self, after))

    def precondition(self, name: str) -> Op:
        """Add something outside that must have happened: an event given under this name with each run.

        What comes after the op waits for it, in the run's first step. The op itself comes after nothing.
        """
        body = Precondition(new_name("precondition", name, self.preconditions))
        op = self.preconditions[name] = self._add(body, (), user_frame(), name)
        return op

    def postcondition(self, name: str, after: After) -> Op:
        """Add an event that each run gives under this name, in ``run.posts``: `after` is done in its last step.

        Nothing in the graph comes after the op.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> a, b, graph = np.zeros(2), np.zeros(2), ost.Graph()
        >>> ready = graph.precondition("input ready")
        >>> first = graph.copy(a, b, after=ready)
        >>> free = graph.postcondition("input free", after=first)
        """
        sources = sources_of(self, after)
        body = postcondition_body(name, self.postconditions, sources, self._ops)
        op = self.postconditions[name] = self._add(body, (), user_frame(), name, sources)
        return op

    def subgraph(
        self,
        graph: Graph,
        params: Mapping[str, Any] = _NOTHING,
        preconditions: Mapping[str, After] = _NOTHING,
        after: After = (),
    ) -> Op:
        """Add all of another graph, as one op.

        Parameters
        ----------
        graph
            The graph; any number of times, in any number of graphs.
        params
            By name, what its parameters are: values, or parameters of this graph.
        preconditions
            By name, the ops that each of its preconditions stands for; all of them, an empty tuple for none.
        after
            As for `task`: what all of its ops come after.

        Returns
        -------
        Op
            Its ``posts[name]`` stands in ``after=`` for one of the inner graph's postconditions.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> a, b, inner = np.zeros(2), np.zeros(2), ost.Graph()
        >>> filled = inner.fill(a, inner.param("value", 1.0), after=inner.precondition("go"))
        >>> filled = inner.postcondition("filled", after=filled)
        >>> graph = ost.Graph()
        >>> op = graph.subgraph(inner, {"value": 2.0}, {"go": ()})
        >>> copied = graph.copy(a, b, after=op.posts["filled"])
        """
        if not isinstance(graph, Graph):
            raise TypeError(f"graph must be an ostinato.Graph, got {brief(graph)}")
        sources = {name: tuple(sources_of(self, ops)) for name, ops in dict(preconditions).items()}
        body = nested_body(self, self._recorder, graph, params, sources)
        if graph.group is not None:
            self.join(graph.group)
        op = self._add(body, (), user_frame(), "subgraph", sources_of(self, after))
        if graph not in self.nested:
            self.nested[graph] = None
            for each in graphs_in(graph):
                self._recorder.hold_arrays_of(each._ops)
        return op

    def param(self, name: str, default: Any = REQUIRED, combine: Combine | None = None) -> Any:
        """Return the parameter `name`: a value given with each run, usable as a scalar or plain argument.

        All mentions of a name are one parameter. One of them may carry the default, and one `combine`, a function of
        two arguments: with it, the task gets ``combine(default, given)``.
        """
        return self._recorder.params.mention(name, default, combine)

    def ring(self, *arrays: Any) -> Ring:
        """Let arrays of one shape and dtype take turns; the same as `ostinato.ring`."""
        return ring(*arrays)

    def edge(self, src: Op | Port, dst: Op, distance: int = 0) -> None:
        """Let `dst` come after `src` of the same step, or of the step `distance` steps before."""
        distance = integer("distance", distance, 0, _FARTHEST)
        source = source_of(self, src, distance)
        check_target(self, dst)
        if source.op == dst.index and distance == 0:
            raise GraphError(f"{dst!r} cannot come after itself in one step; the distance must be 1 or more")
        if isinstance(dst.body, Postcondition):
            check_not_outside(dst.name, self._ops[source.op])
        self._add_edges((source,), dst.index)

    @property
    def is_recording(self) -> bool:
        """Whether a capture that records here is open."""
        return self._recorder.guard is not None

    def start_recording(self, guard: Guard, traced: bool = False) -> CallRecorder | None:
        """Have what is recorded protected by the guard of a capture; `traced` if tracers stand for arrays.

        Returns what records calls without `record`; None where that must see their arguments.
        """
        self._recorder.start(guard)
        self._traced = traced
        return None if traced else self._recorder.calls

    def stop_recording(self) -> None:
        """End what `start_recording` began."""
        self._recorder.stop()

    def name_arrays(self, named: Iterable[tuple[str, Array]]) -> None:
        """Remember what variables call arrays, in pictures; views of a part have no name of their own."""
        for name, array in named:
            root = root_of(array)
            if array.size == root.size:
                place = address_of(root)
                known = self.array_names.get(place, ())
                self.array_names[place] = known if name in known else (*known, name)

    def record(
        self,
        task: Recordable,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: FrameType,
        name: str | None = None,
        after: After = (),
        on: Any = None,
        priority: int = 0,
    ) -> Op:
        """Add a call of a task, made in `frame`; what tasks do when they are called inside a capture."""
        if self._traced:
            args = untrace_all(args)
            kwargs = {key: untrace(value) for key, value in kwargs.items()} if kwargs else kwargs
        if not kwargs and name is None and after == () and on is None and type(priority) is int and not priority:
            op: Op | None = self._recorder.calls.record(task, args, frame)
            if op is not None:
                return op
        body, operands = task.bind(self._recorder, args, kwargs)
        sources = sources_of(self, after) if after != () else ()
        return self._add(body, operands, frame, name or task.name, sources, on, priority)

    def join(self, group: Group) -> None:
        """Let these ranks compile and replay it together, whether it has messages on this rank or not."""
        self._recorder.join(group)

    def discard(self) -> None:
        """Forget everything recorded; what an exception inside a capture does."""
        for each in (self._ops, self.explicit_edges, self.port_edges):
            each.clear()
        for table in (self.preconditions, self.postconditions, self.nested):
            table.clear()
        self.stop = None
        self._recorder = Recorder(self, self._ops)

    def has(self, op: Op) -> bool:
        """Whether an op is one of this graph's."""
        return op.graph is self and op.index < len(self._ops) and self._ops[op.index] is op

    def _add(
        self,
        body: Body,
        operands: tuple[Operand, ...],
        frame: FrameType,
        name: str,
        sources: Sequence[Source] = (),
        on: Any = None,
        priority: int = 0,
    ) -> Op:
        site = self._recorder.calls.site_of(frame)
        if on is not None and not isinstance(on, str) and not hasattr(on, "name"):
            raise TypeError(f"on must be a processor, its name or a kind, got {brief(on)}")
        if type(priority) is not int or priority:
            priority = priority_of(priority)
        op = Op(self, len(self._ops), name, site, body, operands, on, priority)
        if sources:
            self._add_edges(sources, op.index)
        self._ops.append(op)
        return op

    def _add_edges(self, sources: Iterable[Source], target: int) -> None:
        for index, post, distance in sources:
            if post is None:
                self.explicit_edges.append((index, target, distance))
            else:
                self.port_edges.append((index, post, target, distance))
