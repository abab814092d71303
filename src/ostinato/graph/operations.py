"""Operations that graphs record beside calls of tasks: copies, conditions, barriers, nested graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ostinato.arguments import ReductionName, integer
from ostinato.errors import GraphError
from ostinato.events import Barrier, Reservation
from ostinato.graph.access import ACCESS
from ostinato.graph.arrays import READ, READ_WRITE, WRITE, Array, Operand, drop_leading, fill_value, is_array
from ostinato.graph.body import Arrive, Copy, Fill, Nested, Postcondition, Precondition
from ostinato.graph.op import Source
from ostinato.graph.param import REQUIRED, NoValue, Param, Step
from ostinato.graph.recorder import Recordable, Recorder, native_refusal
from ostinato.graph.ring import Ring, RingElement
from ostinato.graph.task import PythonTask, name_of
from ostinato.text import brief, one_line

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph
    from ostinato.graph.op import Op

ReduceArgument: TypeAlias = ReductionName | Callable[..., Any]
"""What ``reduce=`` takes."""


class Reduction:
    """Combines element by element.

    Messages and reports call it `name`. It is `built_in` if it is one of ours, and none that a user wrote.
    """

    name: str
    built_in = False

    def check(self, source: np.dtype[Any], target: np.dtype[Any]) -> None:
        """Raise if elements of these types cannot be combined."""
        _check_dtypes(source, target)

    def combine(self, target: Array, source: Array) -> None:
        """Combine an array into another of its shape. They do not overlap."""
        raise NotImplementedError

    def scatter(self, target: Array, indices: Array, source: Array) -> None:
        """Combine each row of `source` into the row of `target` at its index, one after the other.

        Raises `IndexError` if an index is out of range. Nothing was combined then.
        """
        raise NotImplementedError


class _ByUfunc(Reduction):
    def __init__(self, ufunc: np.ufunc, name: str, built_in: bool) -> None:
        self.name = name
        self.built_in = built_in
        self._ufunc = ufunc
        if (ufunc.nin, ufunc.nout, ufunc.signature) != (2, 1, None):
            raise TypeError(f"reduce= of copy() must combine two elements to one, got {ufunc!r}")

    def check(self, source: np.dtype[Any], target: np.dtype[Any]) -> None:
        super().check(source, target)
        into = np.empty(0, target)
        try:
            self._ufunc(into, np.empty(0, source), out=into, casting="same_kind")
        except TypeError as error:
            raise TypeError(f"{source} cannot be combined into {target} by {self.name!r}: {error}") from None

    def combine(self, target: Array, source: Array) -> None:
        self._ufunc(target, source, out=target, casting="same_kind")

    def scatter(self, target: Array, indices: Array, source: Array) -> None:
        self._ufunc.at(target, indices, source.astype(target.dtype, casting="same_kind"))


class _ByFunction(Reduction):
    """By a Python function of two elements, which returns what becomes of them."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.name = f"by {one_line(name_of(function))}"
        self._function = function

    def check(self, source: np.dtype[Any], target: np.dtype[Any]) -> None:
        pass  # what it returns is checked

    def combine(self, target: Array, source: Array) -> None:
        function = self._function
        found = [function(target[index], source[index]) for index in np.ndindex(target.shape)]
        for value in found:
            self._check_value(value, target.dtype)
        for index, value in zip(np.ndindex(target.shape), found, strict=True):
            target[index] = value

    def scatter(self, target: Array, indices: Array, source: Array) -> None:
        for index, row in zip(_in_range(indices, len(target)).tolist(), range(len(source)), strict=True):
            self.combine(target[index, ...], source[row, ...])

    def _check_value(self, value: object, dtype: np.dtype[Any]) -> None:
        if dtype.hasobject or dtype.names is not None:
            return
        number = isinstance(value, bool | int | float | complex)  # that has no size of its own
        own = np.result_type(dtype, value) if number else np.asarray(value).dtype  # type: ignore[arg-type]
        if not np.can_cast(own, dtype, "same_kind"):
            raise TypeError(
                f"the function given as reduce= must return a value for an array of {dtype}, got {value!r}; to combine "
                "arrays in place, declare a task: combine(dst: ost.ReadWrite, src: ost.Read)"
            )


class _ByTask(Reduction):
    """By a task of two arrays, which combines the second into the first, element by element."""

    def __init__(self, task: Recordable) -> None:
        self.name = f"by {one_line(task.name)}"
        self._task: Any = task
        required = [each for each in task.formals() if each.default is Parameter.empty]
        modes = [each.mode for each in required]
        if modes != [READ_WRITE, READ]:
            raise TypeError(
                f"a task given as reduce= of copy() must be combine(dst: ost.ReadWrite, src: ost.Read), got {task!r}, "
                f"whose parameters are {', '.join(ACCESS[mode] for mode in modes) or 'none'}"
            )
        if getattr(task, "stream", None) is not None:
            raise TypeError(
                f"a task given as reduce= of copy() must run on the host, got {task!r}, which takes a stream"
            )
        if isinstance(task, PythonTask) and (task.blocking or not task.pure):
            raise TypeError(f"a task given as reduce= of copy() must be pure and must not wait, got {task!r}")

    def check(self, source: np.dtype[Any], target: np.dtype[Any]) -> None:
        super().check(source, target)
        refusal = None if isinstance(self._task, PythonTask) else native_refusal(np.empty(0, target))
        if refusal is not None:
            raise GraphError(f"reduce= of copy() is {self._task!r}: {refusal}")

    def combine(self, target: Array, source: Array) -> None:
        self._task(target, source.astype(target.dtype, casting="same_kind", copy=False))

    def scatter(self, target: Array, indices: Array, source: Array) -> None:
        indices = _in_range(indices, len(target))
        for rows in _rounds(indices):
            part = target[indices[rows]]
            self.combine(part, source[rows])
            target[indices[rows]] = part


def _in_range(indices: Array, count: int) -> Array:
    """Return indices counted from the front."""
    wrong = (indices < -count) | (indices >= count)
    if wrong.any():
        raise IndexError(f"index {indices[wrong][0]} is out of bounds for axis 0 with size {count}")
    return np.where(indices < 0, indices + count, indices).astype(np.intp)


def _rounds(indices: Array) -> list[Array]:
    """Return the rows of the first mentions of all indices, then of the second ones, and so on."""
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, np.bool_)
    at = np.arange(len(ordered))
    mention = np.empty(len(ordered), np.intp)
    mention[order] = at - np.maximum.accumulate(np.where(begins, at, 0)) if len(ordered) else at
    by_mention = np.argsort(mention, kind="stable")
    return np.split(by_mention, np.cumsum(np.bincount(mention))[:-1]) if len(ordered) else []


_BUILT_IN = {
    name: _ByUfunc(ufunc, name, True)
    for name, ufunc in (("+", np.add), ("*", np.multiply), ("min", np.minimum), ("max", np.maximum))
}


def reduction_of(reduce: object, source: np.dtype[Any], target: np.dtype[Any]) -> Reduction:
    """Return what ``reduce=`` means for arrays of these types; raise where it means nothing, or cannot be done."""
    found: Reduction
    if isinstance(reduce, str):
        if reduce not in _BUILT_IN:
            raise ValueError(
                f"reduce= of copy() must be one of {', '.join(map(repr, _BUILT_IN))} or a function, got {reduce!r}"
            )
        found = _BUILT_IN[reduce]
    elif isinstance(reduce, np.ufunc):
        found = next((each for each in _BUILT_IN.values() if each._ufunc is reduce), None) or _ByUfunc(
            reduce, f"by {reduce.__name__}", False
        )
    elif isinstance(reduce, Recordable):
        found = _ByTask(reduce)
    elif callable(reduce):
        found = _ByFunction(reduce)
    else:
        raise TypeError(
            f"reduce= of copy() must be one of {', '.join(map(repr, _BUILT_IN))} or a function, got {reduce!r}"
        )
    found.check(source, target)
    return found


def copy_body(
    recorder: Recorder, source: object, target: object, reduce: object, indices: object, scatter: object
) -> tuple[Copy, tuple[Operand, ...]]:
    """Return the body and the operands of a copy, having checked that it can be done."""
    names = ["src", "dst"]
    names += ["indices"] * (indices is not None) + ["scatter"] * (scatter is not None)

    def label(index: int) -> str:
        return f"{names[index]} of copy()"

    partial = reduce is not None or scatter is not None
    src = recorder.array_operand(source, READ, label, 0)
    dst = recorder.array_operand(target, READ_WRITE if partial else WRITE, label, 1)
    index = [
        recorder.array_operand(value, READ, label, names.index(name))
        for name, value in (("indices", indices), ("scatter", scatter))
        if value is not None
    ]
    _check_shapes(src, dst, *(index if indices is not None else [None, *index]))
    dtypes = src.arrays[0].dtype, dst.arrays[0].dtype
    if reduce is None:
        _check_dtypes(*dtypes)
    reduction = None if reduce is None else reduction_of(reduce, *dtypes)
    gather, spread = (index[0] if indices is not None else None), (index[-1] if scatter is not None else None)
    return Copy(src, dst, reduction, gather, spread), (src, dst, *index)


def fill_body(recorder: Recorder, target: object, value: Any) -> tuple[Fill | Copy, tuple[Operand, ...]]:
    """Return the body and the operands of a fill; from an array it is a copy, so that every step reads the array."""
    dst = recorder.array_operand(target, WRITE, _fill_label, 0)
    array = dst.arrays[0]
    if isinstance(value, Param):
        return Fill(dst, recorder.own_param(value, _fill_label, 1)), (dst,)
    if isinstance(value, RingElement) or is_array(value):
        src = recorder.array_operand(value, READ, _fill_label, 1)
        spread = _broadcast(src, array.shape)
        _check_dtypes(src.arrays[0].dtype, array.dtype)
        return Copy(spread, dst), (spread, dst)
    return Fill(dst, fill_value(value, array)), (dst,)


def _fill_label(index: int) -> str:
    return f"{('dst', 'value')[index]} of fill()"


def _check_shapes(src: Operand, dst: Operand, indices: Operand | None = None, scatter: Operand | None = None) -> None:
    from_shape, to_shape = src.arrays[0].shape, dst.arrays[0].shape
    if indices is None and scatter is None:
        if from_shape != to_shape:
            raise GraphError(f"copy() needs arrays of one shape, but src is {from_shape} and dst {to_shape}")
        return
    if not from_shape or not to_shape or from_shape[1:] != to_shape[1:]:
        raise GraphError(
            f"copy() with indices= or scatter= needs arrays that differ only in their first axis, "
            f"but src is {from_shape} and dst {to_shape}"
        )
    for name, operand in (("indices", indices), ("scatter", scatter)):
        given = None if operand is None else operand.arrays[0]
        if given is not None and (given.ndim != 1 or given.dtype.kind not in "iu"):
            raise GraphError(
                f"{name} of copy() must be an array of integers in one dimension, got {given.shape}, {given.dtype}"
            )
    moved = from_shape[0] if indices is None else indices.arrays[0].shape[0]
    rows = to_shape[0] if scatter is None else scatter.arrays[0].shape[0]
    if moved != rows:
        raise GraphError(
            f"copy() moves {moved} entries along the first axis to {rows} places: the length of indices= is that of "
            "dst, the length of scatter= that of src, and given both they are equal"
        )


def _check_dtypes(source: np.dtype[Any], target: np.dtype[Any]) -> None:
    if not np.can_cast(source, target, "same_kind"):
        raise TypeError(f"an array of {source} cannot be copied to one of {target}: numpy.copyto would refuse, too")


def _broadcast(operand: Operand, shape: tuple[int, ...]) -> Operand:
    views = tuple(np.broadcast_to(drop_leading(view, shape), shape) for view in operand.arrays)
    if operand.ring is None:
        return Operand(operand.value, views[0], None, READ)
    return Operand(operand.value, None, RingElement(operand.ring.ring, operand.ring.offset, views), READ)


def postcondition_body(
    name: str, known: Mapping[str, Op], sources: Sequence[Source], ops: Sequence[Op]
) -> Postcondition:
    """Return the body of a postcondition, having checked that its name is new and that it comes after something."""
    body = Postcondition(new_name("postcondition", name, known))
    if not sources:
        raise GraphError(f"postcondition {name!r} comes after nothing; give the ops that it stands for as after=")
    for source in sources:
        check_not_outside(name, ops[source.op])
    return body


def check_not_outside(name: str, source: Op) -> None:
    """Raise if a postcondition would come after a precondition: nothing of the graph would be between them."""
    if isinstance(source.body, Precondition):
        raise GraphError(
            f"postcondition {name!r} cannot come after precondition {source.body.name!r}, at {source.call_site}: it "
            "tells of ops. Whoever waits for it can wait for the event that is given as the precondition"
        )


def new_name(what: str, name: str, known: Mapping[str, Op]) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a {what} must be a str, got {brief(name)}")
    if not name:
        raise GraphError(f"the name of a {what} must not be empty")
    if name in known:
        raise GraphError(f"the graph has a {what} {name!r} already, at {known[name].call_site}; choose another name")
    return name


def arrive_body(recorder: Recorder, barrier: object, count: Any, value: Any) -> Arrive:
    """Return the body of arrivals at a barrier."""
    known = barrier_of(recorder, barrier, "arrive")
    if isinstance(count, Param):
        count = recorder.own_param(count, _arrive_label, 1)
        if count.default is not REQUIRED and count.combine is None:
            integer("count of arrive()", count.default, 1)
    else:
        count = integer("count of arrive()", count, 1)
    if value is None:
        return Arrive(known, count, Arrive.NO_VALUE)
    if isinstance(value, np.ndarray):
        value = value.copy()  # a value, not memory that others write to
    elif isinstance(value, Step):
        raise TypeError("value= of arrive() is given once for all steps or with each run, not by ostinato.step")
    else:
        value = recorder.plain_value(value, _arrive_label, 2)
    if isinstance(known, Barrier) and not known.reduces and not isinstance(value, Param):
        raise ValueError("value= of arrive() is for a barrier that reduces; make it with Barrier(arrivals, reduce=...)")
    return Arrive(known, count, value)


def barrier_of(recorder: Recorder, barrier: object, method: str) -> Barrier | Param:
    if isinstance(barrier, Barrier):
        return barrier
    if not isinstance(barrier, Param):
        raise TypeError(f"barrier of {method}() must be an ostinato.Barrier or a parameter, got {brief(barrier)}")
    barrier = recorder.own_param(barrier, lambda _: f"barrier of {method}()", 0)
    if barrier.default is not REQUIRED and barrier.combine is None and not isinstance(barrier.default, Barrier):
        raise TypeError(
            f"the default of {barrier.name!r}, the barrier of {method}(), must be an ostinato.Barrier, "
            f"got {barrier.default!r}"
        )
    return barrier


def reservation_of(reservation: object, method: str) -> Reservation:
    if not isinstance(reservation, Reservation):
        raise TypeError(f"reservation of {method}() must be an ostinato.Reservation, got {brief(reservation)}")
    return reservation


def _arrive_label(index: int) -> str:
    return f"{('barrier', 'count', 'value')[index]} of arrive()"


def nested_body(
    outer: Graph,
    recorder: Recorder,
    inner: Graph,
    params: Mapping[str, Any],
    preconditions: Mapping[str, tuple[Source, ...]],
) -> Nested:
    """Return the body of a nested graph, having checked that it can be nested."""
    if any(graph is outer for graph in graphs_in(inner)):
        raise GraphError("a graph cannot contain itself, neither directly nor inside another that it contains")
    if inner.is_recording:
        raise GraphError("the inner graph is still being captured; nest it after the block")
    other = stop_in(inner)
    own = None if other is None else stop_in(outer)
    if own is not None and other is not None:
        raise GraphError(
            f"a graph has at most one until(), nested graphs included, but there is one at {own.call_site} and, in "
            f"the graph that is nested, one at {other.call_site}"
        )
    values = dict(params)
    for name, value in values.items():
        values[name] = _value(recorder, name, value)
    nested = Nested(inner, values, dict(preconditions))
    check_given(nested)
    return nested


def check_given(nested: Nested) -> None:
    """Raise unless a nested graph is given exactly what it declares."""
    inner = nested.graph
    _check_names("preconditions", nested.preconditions, inner.preconditions, inner.preconditions)
    required = [name for name, param in inner.params.items() if param.default is REQUIRED]
    _check_names("params", nested.params, inner.params, required)


def graphs_in(graph: Graph) -> Iterator[Graph]:
    """Yield a graph and those nested in it, at any depth, each once."""
    seen = {id(graph)}
    waiting = [graph]
    while waiting:
        found = waiting.pop()
        yield found
        for inner in found.nested:
            if id(inner) not in seen:
                seen.add(id(inner))
                waiting.append(inner)


def stop_in(graph: Graph) -> Op | None:
    """Return the op of `Graph.until`, of the graph or of one nested in it."""
    return next((found.stop for found in graphs_in(graph) if found.stop is not None), None)


def _value(recorder: Recorder, name: str, value: object) -> object:
    """Return what is recorded of a value for a parameter of a nested graph."""
    if isinstance(value, Param):
        return recorder.own_param(value, lambda _: f"parameter {name!r} of subgraph()", 0)
    if isinstance(value, NoValue | Ring):
        raise TypeError(
            f"parameter {name!r} of subgraph() must be a value, the same in all steps, or a parameter, got {value!r}"
        )
    return value


def _check_names(argument: str, given: Iterable[str], known: Iterable[str], required: Iterable[str]) -> None:
    given, known = set(given), list(known)
    what = {"params": "parameter", "preconditions": "precondition"}[argument]
    unknown = given.difference(known)
    if unknown:
        names = ", ".join(map(repr, known)) or "none"
        raise GraphError(f"the nested graph has no {what} {min(unknown, key=str)!r}; it has {names}")
    missing = [name for name in required if name not in given]
    if missing:
        raise GraphError(f"the nested graph declares {what} {missing[0]!r}, so give it in {argument}=")
