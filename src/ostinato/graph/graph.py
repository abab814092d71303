"""The graph of one step: its ops in program order, and the dependences that were given."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType, MethodType
from typing import TYPE_CHECKING, Any, cast

from ostinato.errors import GraphError
from ostinato.graph.body import Body, Until
from ostinato.graph.call_site import CallSite, user_frame
from ostinato.graph.guard import Guard
from ostinato.graph.op import Op, Previous
from ostinato.graph.operand import READ, Operand
from ostinato.graph.param import REQUIRED, Combine, Param
from ostinato.graph.recordable import Recordable
from ostinato.graph.recorder import Recorder
from ostinato.graph.ring import Ring, ring
from ostinato.graph.task import PythonTask, modes_of, name_of
from ostinato.graph.transfer import copy_body, fill_body

if TYPE_CHECKING:
    from ostinato.runtime.program import Program

__all__ = ["Graph"]

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
    stop
        The op made by `until`, or None.

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

    def __init__(self, infer: bool = True) -> None:
        self.infer = bool(infer)
        self.explicit_edges: list[tuple[int, int, int]] = []
        self.stop: Op | None = None
        self._recorder = Recorder()
        self._ops: list[Op] = []
        self._sites: dict[tuple[int, int], CallSite] = {}

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops, in program order."""
        return tuple(self._ops)

    @property
    def params(self) -> Mapping[str, Param]:
        """The parameters by name."""
        return self._recorder.params

    @property
    def given_edges(self) -> list[tuple[Op, Op, int]]:
        """The dependences given by ``after=`` and `edge`: an op, the op that comes after it, the distance in steps."""
        return [(self._ops[src], self._ops[dst], distance) for src, dst, distance in self.explicit_edges]

    @property
    def edges(self) -> list[tuple[Op, Op, int]]:
        """All dependences, given and inferred: an op, the op that comes after it, the distance in steps."""
        from ostinato.compile.dependences import dependences

        found = dependences(self)
        triples = zip(found.src.tolist(), found.dst.tolist(), found.distance.tolist(), strict=True)
        return [(self._ops[src], self._ops[dst], distance) for src, dst, distance in triples]

    def __len__(self) -> int:
        return len(self._ops)

    def __bool__(self) -> bool:
        return True  # a graph without ops is a graph

    def __repr__(self) -> str:
        return f"<Graph of {len(self)} ops>"

    def task(
        self,
        fn: object,
        *args: Any,
        after: Op | Previous | Iterable[Op | Previous] = (),
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
            such as None, for a scalar or a plain object.
        """
        if isinstance(fn, MethodType):  # a task that is a method
            function, instance = cast(object, fn.__func__), fn.__self__
            if isinstance(function, Recordable):
                fn, args = function, (instance, *args)
        if isinstance(fn, Recordable):
            if access is not None:
                raise TypeError(f"{fn.name}() says itself how it uses its arguments; leave out access=")
            called: Recordable = fn
        elif not callable(fn):
            raise TypeError(f"a task is a callable, not {type(fn).__name__}")
        elif access is None:
            raise TypeError(f"{fn!r} is no task, so give access=, with one entry per argument, or decorate it")
        else:
            called = PythonTask(fn, modes_of(access), name_of(fn), False)
        return self.record(called, args, {}, user_frame(), name, after, on, priority)

    def copy(
        self,
        src: Any,
        dst: Any,
        after: Op | Previous | Iterable[Op | Previous] = (),
        on: Any = None,
        priority: int = 0,
        name: str | None = None,
        reduce: str | None = None,
        indices: Any = None,
        scatter: Any = None,
    ) -> Op:
        """Add a copy of an array to another of the same shape, converting as `numpy.copyto` does.

        Overlapping arrays are handled as if the source had been copied first.

        Parameters
        ----------
        src, dst
            Arrays or elements of rings.
        after, on, priority, name
            As for `task`.
        reduce
            ``"+"``, ``"*"``, ``"min"`` or ``"max"``: combine the source into `dst` instead of overwriting it.
        indices
            Gather along the first axis: ``dst[i] = src[indices[i]]``. The indices are read, and checked, in every step.
        scatter
            Scatter along the first axis: ``dst[scatter[i]] = src[i]``.
        """
        body, operands = copy_body(self._recorder, src, dst, reduce, indices, scatter)
        return self._add(body, operands, user_frame(), name or "copy", after, on, priority)

    def fill(
        self,
        dst: Any,
        value: Any,
        after: Op | Previous | Iterable[Op | Previous] = (),
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
        body, operands = fill_body(self._recorder, dst, value)
        return self._add(body, operands, user_frame(), name or "fill", after, on, priority)

    def until(self, flag: Any, every: int = 1) -> Op:
        """Add a look at `flag` in every `every`-th step: if it is nonzero then, that step is the run's last.

        No op of a later step starts before it is known. A graph has at most one.
        """
        every = operator.index(every)
        if every < 1:
            raise ValueError(f"every= counts steps from 1, {every} is less")
        if self.stop is not None:
            raise GraphError(f"the graph has an until() already, at {self.stop.call_site}; it can have one")
        operand = self._recorder.array_operand(flag, READ, _until_label, 0)
        array = operand.arrays[0]
        if array.size != 1:
            raise GraphError(f"the flag of until() is an array of one element, not of shape {array.shape}")
        if array.dtype.kind not in "biufc":
            raise GraphError(f"the flag of until() is a number or a bool, not {array.dtype}")
        self.stop = self._add(Until(operand, every), (operand,), user_frame(), "until", (), None, 0)
        return self.stop

    def param(self, name: str, default: Any = REQUIRED, combine: Combine | None = None) -> Any:
        """Return the parameter `name`: a value given with each run, usable as a scalar or plain argument.

        All mentions of a name are one parameter. One of them may carry the default, and one `combine`, a function of
        two arguments: with it, the task gets ``combine(default, given)``.
        """
        return self._recorder.params.mention(name, default, combine)

    def ring(self, *arrays: Any) -> Ring:
        """Let arrays of one shape and dtype take turns; the same as `ostinato.ring`."""
        return ring(*arrays)

    def edge(self, src: Op, dst: Op, distance: int = 0) -> None:
        """Let `dst` come after `src` of the same step, or of the step `distance` steps before."""
        distance = operator.index(distance)
        if distance < 0:
            raise ValueError(f"the distance of an edge counts steps back from 0, {distance} is less")
        if distance > _FARTHEST:
            raise ValueError(f"an edge reaches back {_FARTHEST} steps at most, not {distance}")
        self._check_own(src)
        self._check_own(dst)
        if src is dst and distance == 0:
            raise GraphError(f"{src!r} cannot come after itself in one step; the distance must be 1 or more")
        self.explicit_edges.append((src.index, dst.index, distance))

    def compile(
        self, machine: Any = None, *, runs: str = "pipelined", lanes: int | None = None, costs: Any = None
    ) -> Program:
        """Compile to a program for a machine.

        Parameters
        ----------
        machine
            The machine; None for the default one of the process.
        runs
            ``"pipelined"``: runs go in the order of submission, overlapping as far as accesses allow.
        lanes
            At most so many threads' worth.
        costs
            How long ops take: None for what is known, or a mapping from op or task to seconds.
        """
        if self.is_recording:
            raise GraphError("this graph is still being captured; compile it after the block")
        from ostinato.runtime.program import compile_graph

        return compile_graph(self, machine, runs=runs, lanes=lanes, costs=costs)

    @property
    def is_recording(self) -> bool:
        """Whether a capture that records here is open."""
        return self._recorder.guard is not None

    def start_recording(self, guard: Guard) -> None:
        """Have what is recorded protected by the guard of a capture."""
        self._recorder.guard = guard

    def stop_recording(self) -> None:
        """End what `start_recording` began."""
        self._recorder.guard = None

    def record(
        self,
        task: Recordable,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: FrameType,
        name: str | None = None,
        after: Op | Previous | Iterable[Op | Previous] = (),
        on: Any = None,
        priority: int = 0,
    ) -> Op:
        """Add a call of a task, made in `frame`; what tasks do when they are called inside a capture."""
        body, operands = task.bind(self._recorder, args, kwargs)
        return self._add(body, operands, frame, name or task.name, after, on, priority)

    def discard(self) -> None:
        """Forget everything recorded; what an exception inside a capture does."""
        self._ops.clear()
        self.explicit_edges.clear()
        self.stop = None
        self._recorder = Recorder()

    def _add(
        self,
        body: Body,
        operands: tuple[Operand, ...],
        frame: FrameType,
        name: str,
        after: Op | Previous | Iterable[Op | Previous],
        on: Any,
        priority: int,
    ) -> Op:
        place = (id(frame.f_code), frame.f_lasti)
        site = self._sites.get(place)
        if site is None:
            site = self._sites[place] = CallSite(frame)  # keeps the code, and so its id
        if on is not None and not isinstance(on, str) and not hasattr(on, "name"):
            raise TypeError(f"on= is a processor, its name or a kind, not {type(on).__name__}")
        index = len(self._ops)
        if after != ():
            edges = [(src, index, distance) for src, distance in self._sources(after)]
            self.explicit_edges.extend(edges)
        op = Op(self, index, name, site, body, operands, on, priority and operator.index(priority))
        self._ops.append(op)
        return op

    def _sources(self, after: Op | Previous | Iterable[Op | Previous]) -> list[tuple[int, int]]:
        """Return the index and the distance of each op in ``after=``."""
        sources = []
        for entry in (after,) if isinstance(after, Op | Previous) else after:
            op, distance = (entry.op, entry.distance) if isinstance(entry, Previous) else (entry, 0)
            self._check_own(op)
            sources.append((op.index, distance))
        return sources

    def _check_own(self, op: object) -> None:
        if not isinstance(op, Op):
            raise TypeError(f"an edge joins ops, {op!r} is none")
        if op.graph is not self or op.index >= len(self._ops) or self._ops[op.index] is not op:
            raise GraphError(f"{op!r} belongs to another graph")


def _until_label(place: int) -> str:
    return "the flag of until()"
