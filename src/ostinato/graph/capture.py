"""Recording the task calls of a block."""

from __future__ import annotations

import gc
import inspect
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import Token
from functools import partial
from itertools import chain, islice
from types import FrameType, FunctionType, ModuleType, TracebackType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ostinato.errors import GraphError, TaskError, TracerError
from ostinato.graph.access import check_plain, variables_of
from ostinato.graph.arrays import WRITE, Array, root_of
from ostinato.graph.context import Guard, Recording, current, functions, is_of_libraries, recording
from ostinato.graph.graph import Graph
from ostinato.graph.op import After, Op
from ostinato.graph.operations import ReduceArgument
from ostinato.graph.param import REQUIRED, Combine, FreeParam, check_param
from ostinato.graph.recorder import refuse_placeholder
from ostinato.graph.ring import Ring
from ostinato.graph.task import name_of
from ostinato.graph.tracer import Traced
from ostinato.text import brief

_log = logging.getLogger("ostinato")

_BYTES = 4 << 20  # of all arrays together: a copy of them takes about a millisecond
_NAMES = 10_000  # looked at, among the locals and among the globals of the frame
_HAS_LOCALS = 1  # CO_OPTIMIZED: the code is that of a function
_UNSHARED = 3  # references to the dict of a frame's locals: the frame's, a variable's, an argument's


class Earlier:
    """The bytes of arrays as they were; each array comes after the name that messages call it by, if it has one."""

    __slots__ = ("_activity", "_held")

    def __init__(self, arrays: Iterable[tuple[str, Array]]) -> None:
        self._held: dict[int, tuple[str, Array, bytes]] = {}
        self._activity = _activity()
        if self._activity is None:  # runs write to arrays, as they may
            return
        left = _BYTES
        for name, array in arrays:
            if array.nbytes <= left and not array.dtype.hasobject and id(array) not in self._held:
                self._held[id(array)] = name, array, array.tobytes()
                left -= array.nbytes

    def changed(self, guard: Guard) -> str | None:
        """Return the name of a recorded array that holds something else now; None if none does, or a run may have."""
        views = set(map(id, guard.views))
        for name, array, held in self._held.values():
            if (guard.holds(array) or id(array) in views) and array.tobytes() != held:
                return (
                    (repr(name) if name else f"an array of shape {array.shape}")
                    if self._activity == _activity()
                    else None
                )
        return None


def find_named_arrays(frame: FrameType) -> Iterator[tuple[str, Array]]:
    """Yield the arrays, and those of rings, that variables of a frame name."""
    variables = _locals(frame)
    if frame.f_code.co_flags & _HAS_LOCALS:
        variables += islice(frame.f_globals.items(), _NAMES)
    for name, value in variables:
        if type(value) is np.ndarray:
            yield name, value
        elif type(value) is Ring:
            yield from ((name, each) for each in value.values if type(each) is np.ndarray)


def _locals(frame: FrameType) -> list[tuple[str, Any]]:
    """Return the local variables of a frame; of a module or a class body, those that it defines.

    Before Python 3.13 the frame of a function keeps the dict that it makes of them, and so keeps alive what is
    deleted later. So the dict is emptied, unless the function has got hold of it by `locals`.
    """
    variables = frame.f_locals
    found = list(islice(variables.items(), _NAMES))
    if frame.f_code.co_flags & _HAS_LOCALS and type(variables) is dict and sys.getrefcount(variables) == _UNSHARED:
        variables.clear()
    return found


def _activity() -> Any:
    """Return what differs if a program has run in between; None while one runs."""
    machines = sys.modules.get("ostinato.runtime.workers")
    return 0 if machines is None else machines.steps_run()


_NOTHING = (
    "{} recorded nothing. Only calls of tasks (functions decorated with @ostinato.task), ost.copy, ost.fill and other "
    "methods of a Graph are recorded; all other statements ran once, now. Decorate the functions that are to run in "
    "every step. A graph that is meant to be empty is ostinato.Graph()"
)
_READ_ONLY = ("read-only", "readonly", "read-write", "writable", "writeable")


class Capture:
    """The context manager that `capture` returns; good for one block.

    `function` is the name of the function whose call is recorded, with tracers in place of arrays; None for a block.
    """

    __slots__ = ("_collecting", "_earlier", "_function", "_token", "recording")

    def __init__(self, function: str | None = None) -> None:
        self._function = function
        self._collecting = False
        self._earlier: Earlier | None = None
        self._token: Token[Recording | None] | None = None
        self.recording: Recording | None = None

    def __enter__(self) -> Graph:
        if self.recording is not None:
            raise GraphError("this capture has been used; write `with capture() as graph:` for every block")
        if current() is not None:
            raise GraphError("captures do not nest: a capture is open in this thread or asyncio task already")
        # All that is recorded stays, so Python's cycle collector would look through it again and again and find
        # nothing: at a million ops that takes as long as the recording.
        self._collecting = gc.isenabled()
        gc.disable()
        graph, guard = Graph(), Guard()
        if self._function is None:
            named = list(find_named_arrays(sys._getframe(1)))
            self._earlier = Earlier(named)
            graph.name_arrays(named)
        calls = graph.start_recording(guard, self._function is not None)
        self.recording = Recording(graph, guard, self._function, calls)
        if self._function is not None:
            functions.append(self.recording)
        self._token = recording.set(self.recording)
        return graph

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self.recording is not None
        assert self.recording.guard is not None
        assert self._token is not None
        graph, guard = self.recording.graph, self.recording.guard
        held = guard.holds_anything
        changed = None if error is not None or self._earlier is None else self._earlier.changed(guard)
        self.recording.ended = True
        if self._function is not None:
            functions.remove(self.recording)
        if self._collecting:
            gc.enable()
        with suppress(ValueError):  # left in another context than it was entered in
            recording.reset(self._token)
        graph.stop_recording()
        guard.release()
        if error is None:
            if not len(graph) and graph.group is None:  # a rank may have nothing to do
                raise GraphError(_NOTHING.format(self._inside))
            if changed is not None:
                graph.discard()
                raise GraphError(
                    f"{changed} is not what it was when {self._inside} began: a statement wrote to the array before "
                    "the first call that uses it was recorded. Only task calls are recorded; make the statement a task "
                    "(ostinato.task), or use ost.copy or ost.fill, or move it out"
                )
            return
        graph.discard()
        if isinstance(error, GraphError):  # says itself what is wrong
            return
        if (
            held
            and isinstance(error, ValueError | TypeError | BufferError)
            and any(words in str(error).lower() for words in _READ_ONLY)
            and not _is_ours(traceback)
        ):
            raise GraphError(
                f"a statement inside {self._inside}{self._line(traceback)} wrote to a read-only array. Only task calls "
                "are recorded, and arrays that have been recorded are read-only until the block ends; make the "
                "statement a task (ostinato.task), or use Graph.copy or Graph.fill, or move it out of the block"
            ) from error
        if self._function is not None and isinstance(error, Exception) and "Tracer" in str(error):
            raise TracerError(
                f"a statement inside {self._inside}{self._line(traceback)} needs the elements of an array, and an "
                f"array has none while the function is recorded: {error}. Make the statement a task (ostinato.task)"
            ) from error

    def remember(self, arrays: Iterable[tuple[str, Array]]) -> None:
        """Find out at the end whether these arrays were written to, although they are read-only."""
        self._earlier = Earlier(arrays)

    @property
    def _inside(self) -> str:
        return "capture()" if self._function is None else f"{self._function}()"

    def _line(self, traceback: TracebackType | None) -> str:
        """Say which line a traceback comes from: of the block itself, or the innermost one that a user wrote."""
        found = traceback
        while self._function is not None and traceback is not None:
            if not is_of_libraries(traceback.tb_frame.f_code):
                found = traceback
            traceback = traceback.tb_next
        if found is None:
            return ""
        name = found.tb_frame.f_code.co_filename
        return f" (line {found.tb_lineno}{'' if self._function is None else f' of {os.path.basename(name)}'})"


def capture() -> Capture:
    """Record the task calls of a ``with`` block, in program order, as a `Graph`.

    Only the calls of this thread, or this asyncio task, are recorded. Captures do not nest. Until the block ends,
    NumPy arrays that have been recorded are read-only, so that a statement that would not be recorded raises. If the
    block is left by an exception, nothing remains recorded.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> @ost.task
    ... def double(x: ost.ReadWrite):
    ...     x *= 2
    >>> a = np.ones(4)
    >>> with ost.capture() as graph:
    ...     op = double(a)
    >>> graph.ops == (op,)
    True
    """
    return Capture()


def param(name: str, default: Any = REQUIRED, combine: Combine | None = None) -> Any:
    """Return the parameter `name`, a value that is given with each run; see `Graph.param`.

    Inside a capture it is that of the graph being captured. Elsewhere it becomes a parameter of each graph that it is
    used in.

    Examples
    --------
    >>> import ostinato as ost
    >>> @ost.task
    ... def show(value):
    ...     print(value)
    >>> with ost.capture() as graph:
    ...     op = show(ost.param("value", 1))
    >>> list(graph.params)
    ['value']
    >>> with ost.compile(show, ost.param("value", 1)) as program:
    ...     program.replay(value=2)
    2
    1
    """
    graph = current()
    if graph is not None:
        return graph.param(name, default, combine)
    check_param(name, combine)
    return FreeParam(name, default, combine)


def until(flag: Any, every: int = 1) -> Op:
    """End the run with the step in which `flag` is nonzero here; see `Graph.until`.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> found = np.zeros(1)
    >>> with ost.capture() as graph:
    ...     op = ost.until(found)
    >>> op.name
    'until'
    """
    graph = current()
    if graph is None:
        raise GraphError("ostinato.until() is for use inside capture(); on an explicit graph, call graph.until()")
    return graph.until(flag, every)


def copy(
    src: Any,
    dst: Any,
    after: After = (),
    on: Any = None,
    priority: int = 0,
    name: str | None = None,
    reduce: ReduceArgument | None = None,
    indices: Any = None,
    scatter: Any = None,
) -> Op | None:
    """Copy an array to another; see `Graph.copy`.

    Inside a capture, or a function that is being compiled, the copy is recorded. Elsewhere it is made at once, and
    `after`, `on`, `priority` and `name` have no meaning.

    Returns
    -------
    Op or None
        The op where the copy is recorded.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> a, b = np.arange(3.0), np.zeros(3)
    >>> ost.copy(a, b, indices=np.array([2, 1, 0]))
    >>> b
    array([2., 1., 0.])
    """
    graph = current()
    if graph is not None:
        return graph.copy(src, dst, after, on, priority, name, reduce, indices, scatter)
    for value in (src, dst, indices, scatter):
        refuse_placeholder(value, "copy")
    _run_at_once(Graph().copy(src, dst, reduce=reduce, indices=indices, scatter=scatter))
    return None


def fill(
    dst: Any, value: Any, after: After = (), on: Any = None, priority: int = 0, name: str | None = None
) -> Op | None:
    """Assign ``dst[...] = value``; see `Graph.fill`.

    Inside a capture, or a function that is being compiled, the assignment is recorded. Elsewhere it is made at once,
    and `after`, `on`, `priority` and `name` have no meaning.

    Returns
    -------
    Op or None
        The op where the assignment is recorded.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> a = np.zeros(3)
    >>> ost.fill(a[1:], 2.0)
    >>> a
    array([0., 2., 2.])
    """
    graph = current()
    if graph is not None:
        return graph.fill(dst, value, after, on, priority, name)
    for each in (dst, value):
        refuse_placeholder(each, "fill")
    _run_at_once(Graph().fill(dst, value))
    return None


def current_graph() -> Graph:
    """Return the graph that is being recorded, by `capture` or by `ostinato.compile`, for its other methods.

    Raises
    ------
    RuntimeError
        No graph is being recorded in this thread or asyncio task.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> barrier = ost.Barrier(1)
    >>> def step(x):
    ...     ost.current_graph().arrive(barrier, after=ost.fill(x, 1.0))
    >>> with ost.compile(step, np.zeros(3)) as program:
    ...     program.replay(2)
    2
    >>> barrier.phase
    2
    """
    graph = current()
    if graph is None:
        raise RuntimeError(
            "no graph is being recorded here; call this inside capture(), or in a function given to ostinato.compile"
        )
    return graph


def bind_run_at_once(run: Callable[[Op], object]) -> None:
    """Have `run` do what `copy` and `fill` record outside of recordings; `ostinato.api` does."""
    global _runs_at_once
    _runs_at_once = run


def _not_bound(op: Op) -> NoReturn:
    raise RuntimeError("import ostinato first")


_runs_at_once: Callable[[Op], object] = _not_bound


def _run_at_once(op: Op) -> None:
    try:
        _runs_at_once(op)
    except TaskError as error:
        raise (error.__cause__ or error) from None


def _is_ours(traceback: TracebackType | None) -> bool:
    """Whether an exception was raised by this package, which says itself what is wrong."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_globals.get("__name__", "").startswith("ostinato.")


_CHANGED = (
    "{0}() changed a {1} that holds arrays, and is among its arguments. The function is called once, with a copy of "
    "the {1}, so the change would be lost. Pass ostinato.ring(...) for arrays that take turns, and an array or an "
    "ostinato.param(...) for a number that changes; read a cached property once before compiling"
)


_ASSIGNED = (
    "%s() assigned to %s while it was recorded. The function is called once, so a program does not do so in every "
    "step. Use ostinato.ring(...) for arrays that take turns, ostinato.step for the number of the step, and an array "
    "for any other value that changes; program.verify() says whether the results differ"
)


_CARRIED = (
    "%s() made an array (shape %s, %s) that %r at %s reads before the step has written to it. The function is called "
    "once, so all steps use this array, and each finds in it what the step before left. Clear it in the step with "
    "ost.fill(array, 0), or pass it as an argument if it is to keep its values; program.verify() says whether the "
    "results differ"
)


class StepFunction(NamedTuple):
    """A function that was recorded, with its arguments as they were given: calling it does one step eagerly."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    names: Sequence[str]
    """What the function calls its positional arguments."""
    graph: Graph


def record_function(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> StepFunction:
    """Call a function once, with tracers in place of arrays, and return what it recorded."""
    if not callable(function):
        raise TypeError(f"the first argument must be a function that calls tasks, got {brief(function)}")
    check_plain("a step", function)
    title = name_of(function)
    names = _names(function, len(args))
    capture = Capture(title)
    with capture as graph:
        recording = capture.recording
        assert recording is not None
        assert recording.guard is not None
        traced = Traced(title, recording)
        passed = [traced.value(value, name) for value, name in zip(args, names, strict=True)]
        named = {key: traced.value(value, key) for key, value in kwargs.items()}
        for array in traced.arrays:
            recording.guard.hold(array)
        graph.name_arrays(traced.named)
        capture.remember(("", array) for array in traced.arrays)
        variables = list(_variables(function, names, args, kwargs))
        function(*passed, **named)
        changed = traced.changed()
        if changed is not None:
            raise GraphError(_CHANGED.format(title, changed.__name__))
        carried = _find_carried(graph, recording.guard, (array for _, array in traced.named))
        if carried is not None:
            op, array = carried
            _log.warning(_CARRIED, title, array.shape, array.dtype, op.name, op.call_site)
        assigned = [name for name, now, value in variables if _is_other(now(), value)]
        if assigned:
            _log.warning(_ASSIGNED, title, ", ".join(assigned))
    return StepFunction(function, args, dict(kwargs), names, graph)


def _find_carried(graph: Graph, guard: Guard, given: Iterable[Array]) -> tuple[Op, Array] | None:
    """Return an op that reads an array which the function has made, before the step writes to it, and the array.

    A plain loop would make a new array in every step. An array was made by the function if it was not `given`, and if
    only the recording refers to it after the function has returned.
    """
    known = {id(root_of(array)) for array in given}
    others = {key for key, array in guard.arrays.items() if not isinstance(array.base, np.ndarray)} - known
    made = _made_by_function(graph, guard, others) if others else {}
    first: dict[int, tuple[Op, bool]] = {}
    written: set[int] = set()
    for op in graph.ops if made else ():
        for operand in op.operands:
            key = 0 if operand.array is None else id(root_of(operand.array))
            if key in made:
                first.setdefault(key, (op, operand.mode != WRITE))
                if operand.mode & WRITE:
                    written.add(key)
    return next(((op, made[key]) for key, (op, reads) in first.items() if reads and key in written), None)


def _made_by_function(graph: Graph, guard: Guard, roots: set[int]) -> dict[int, Array]:
    """Return those of the `roots`, by their ids, to which, as to their views, only the recording refers."""
    operands = {id(each): each for op in graph.ops for each in op.operands}.values()
    fields = (each for operand in operands for each in (operand.value, operand.array))
    references: Counter[int] = Counter()
    arrays: dict[int, Array] = {0: np.empty(0)}  # this one has only the references that come from looking
    for field in chain(fields, guard.views, guard.arrays.values()):
        if isinstance(field, np.ndarray):
            references[id(field)] += 1
            arrays[id(field)] = field
    del field
    references.update(id(array.base) for array in arrays.values() if array.base is not None)
    looking, *counts = [sys.getrefcount(array) for array in arrays.values()]
    _, *looked_at = arrays.values()
    held = {
        id(root_of(array))
        for array, count in zip(looked_at, counts, strict=True)
        if count > references[id(array)] + looking
    }
    return {key: arrays[key] for key in roots - held}


def _is_other(now: object, value: object) -> bool:
    """Whether another array or ring stands there, or another number."""
    if isinstance(value, np.ndarray | Ring):
        return now is not value
    return now is not value and (type(now) is not type(value) or now != value)


def _variables(
    function: Any, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    """Yield the variables that a function may assign to, and attributes, that hold arrays, rings or numbers now.

    Each is a name, what returns the value, and the value.
    """
    inner = getattr(function, "__func__", function)
    owners = [("self", getattr(function, "__self__", function)), *zip(names, args, strict=True), *kwargs.items()]
    found: list[tuple[str, Callable[[], Any]]] = []
    for owner, value in owners:
        attributes = getattr(value, "__dict__", None)
        if type(attributes) is dict and not inspect.isroutine(value) and not isinstance(value, type | ModuleType):
            found += [(f"{owner}.{name}", partial(attributes.get, name)) for name in islice(attributes, _NAMES)]
    if isinstance(inner, FunctionType):
        found += variables_of(inner, inner.__code__.co_names)
    for name, now in found:
        value = now()
        if isinstance(value, np.ndarray | Ring | int | float | complex):
            yield name, now, value


def _names(function: Callable[..., Any], count: int) -> list[str]:
    """Return what a function calls its positional arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return [f"argument {index + 1}" for index in range(count)]
    names = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    rest = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), "args")
    return names[:count] + [f"{rest}[{index}]" for index in range(count - len(names))]
