"""Tasks: Python functions that declare what they do with their arrays."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

import numpy as np

from ostinato.devices.array import DeviceArray
from ostinato.graph.access import (
    ACCESS,
    Access,
    Formal,
    StreamParameter,
    annotated_mode,
    check_plain,
    declared_modes,
    fill_in,
    is_stream,
    make_formals,
    plain,
    signature_of,
    stream_parameter,
)
from ostinato.graph.arrays import READ, WRITE, Operand, as_ndarray
from ostinato.graph.body import PythonCall
from ostinato.graph.containers import (
    PLAIN,
    Container,
    Path,
    Token,
    holding,
    is_constant,
    is_container,
    is_value,
    map_leaves,
    opaque_refusal,
    pack,
    refusal_of,
    walk,
)
from ostinato.graph.context import current
from ostinato.graph.eager import Use, call_python, call_task
from ostinato.graph.recorder import Recordable, Recorder, importable_name, refuse_placeholder
from ostinato.text import brief, one_line

if TYPE_CHECKING:
    from ostinato.devices.device import Stream


class PythonTask(Recordable):
    """A Python callable with one access mode for each positional argument, 0 for those that are no arrays.

    The stream of a device is not among these arguments: `stream` says where the callable takes it. `pure` says that it
    does nothing but what its arguments show, so that it may be called to be measured or compared.
    """

    optional: Mapping[str, object] = {}
    """Parameters that declare an access, and have a default that is no array; then a call may leave out the array."""

    __slots__ = (
        "blocking",
        "function",
        "launch_only",
        "modes",
        "modes_at_once",
        "modes_by_name",
        "name",
        "pure",
        "releases_gil",
        "stream",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        modes: tuple[int, ...],
        name: str,
        releases_gil: bool = False,
        blocking: bool = False,
        launch_only: bool = False,
        stream: StreamParameter | None = None,
        pure: bool = True,
    ) -> None:
        self.function = function
        self.modes = modes
        self.name = name
        self.releases_gil = releases_gil
        self.blocking = blocking
        self.launch_only = launch_only
        self.stream = stream
        self.pure = pure
        if blocking and stream is not None:
            raise TypeError(
                f"{one_line(name)}() gets a stream, on which it starts work without waiting: it is not blocking=True"
            )

    def bind(
        self, recorder: Recorder, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[PythonCall, tuple[Operand, ...]]:
        modes = self.modes
        keywords: tuple[str, ...] = ()
        if kwargs or len(args) != len(modes) or self.optional:
            args, keywords, modes = self.complete(args, kwargs)
        found = recorder.calls.bind(args, modes, native=False)
        if found is not None:
            arguments, accesses = found
            if self.stream is not None:
                arguments, keywords = self.stream.with_stream(arguments, keywords)
            return PythonCall(self, arguments, keywords), accesses
        packed = False
        values: list[Any] = []
        operands: list[Any] = []
        calls = recorder.calls
        for value, mode in zip(args, modes, strict=True):
            if mode:
                operand: Operand | Container | None = calls.find(value, mode)
                if operand is None:
                    operand = recorder.argument(value, mode, self.label, len(values))
                    packed = packed or type(operand) is Container
                operands.append(operand)
                values.append(operand)
            else:
                if type(value) not in PLAIN:
                    value = recorder.plain_value(value, self.label, len(values))
                values.append(value)
        arguments = tuple(values)
        accesses = arguments if len(operands) == len(values) else tuple(operands)
        if self.stream is not None:
            arguments, keywords = self.stream.with_stream(arguments, keywords)
        if packed:
            call = PythonCall.of(self, arguments, keywords)
            return call, tuple(leaf for each in operands for leaf in walk(each) if type(leaf) is Operand)
        return PythonCall(self, arguments, keywords), accesses

    def body_of(self, args: tuple[object, ...], kwargs: Mapping[str, object], known: dict[object, Any]) -> PythonCall:
        modes, keywords, values = self.modes, tuple(kwargs), (*args, *kwargs.values())
        if keywords or len(args) != len(modes):
            modes = self.modes_for(len(args), keywords)
        for index, (value, mode) in enumerate(zip(values, modes, strict=True)):
            given = {leaf.mode for leaf in walk(value) if type(leaf) is Operand} or {0}
            if given != {mode} and not (mode and is_value(value)):  # that of an optional parameter
                raise TypeError(
                    f"{self.label(index)} must be {ACCESS[mode]}, got {brief(value)} from the call recorded"
                )
        if self.stream is not None:
            values, keywords = self.stream.with_stream(values, keywords)
        packed = any(type(value) is Container for value in values)
        return PythonCall.of(self, values, keywords) if packed else PythonCall(self, values, keywords)

    def modes_for(self, count: int, keywords: tuple[str, ...]) -> tuple[int, ...]:
        """Return the modes of a call with so many positional values, and with these keywords."""
        return self.complete((None,) * count, dict.fromkeys(keywords))[2]

    def with_defaults(
        self, args: tuple[object, ...], keywords: tuple[str, ...]
    ) -> tuple[tuple[object, ...], tuple[str, ...]]:
        """Return the values and keywords of a recorded call with those that Python would fill in at the call."""
        return args, keywords

    def formals(self) -> tuple[Formal, ...]:
        return make_formals(self.modes, self.label)

    def complete(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[str, ...], tuple[int, ...]]:
        """Return the positional then the keyword values of a call, the keywords, and a mode for each value."""
        if self.stream is not None:
            self.stream.refuse_given(self.name, args, kwargs)
        if kwargs:
            raise TypeError(f"{self.called} takes no keyword arguments, since access= is given by position")
        raise TypeError(f"{self.called} takes {len(self.modes)} arguments by its access=, but {len(args)} were given")

    def label(self, index: int) -> str:
        """Return what messages call the argument at an index."""
        return f"argument {index + 1} of {self.called}"


def name_of(function: Callable[..., Any]) -> str:
    """Return the name that a callable goes by."""
    return str(getattr(function, "__name__", type(function).__name__))


def modes_of(access: Sequence[object]) -> tuple[int, ...]:
    """Return the modes of ``access=``: an entry that is no access marker is a scalar or a plain object.

    The stream is no argument, and has none.
    """
    return tuple(entry.mode if isinstance(entry, Access) else 0 for entry in access if not is_stream(entry))


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class _NoStream:
    """What no parameter for a stream takes, and every access does, which type checkers see as `Any`."""


class Calling(Generic[P, R]):
    """What ``__call__`` of a task is to type checkers, by the first parameter of its function.

    An overloaded method would not do: type checkers try the overload without the first parameter, too, where that is
    `Any` and an argument is missing. Of the overloads of `__get__` they take the first that the task itself fits.
    """

    @overload
    def __get__(self, task: Task[Concatenate[_NoStream, Q], R], owner: Any = None) -> Callable[P, Any]: ...
    @overload
    def __get__(self, task: Task[Concatenate[Stream, Q], R], owner: Any = None) -> Callable[Q, Any]: ...
    @overload
    def __get__(self, task: object, owner: Any = None) -> Callable[P, Any]: ...  # it has no parameters by position
    def __get__(self, task: object, owner: Any = None) -> Any:
        raise NotImplementedError  # tasks have a method of this name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Tasks may be passed where functions are taken."""


class Task(PythonTask, Generic[P, R]):
    """A function that runs at once when called, and is recorded when called inside a capture; made by `task`."""

    def __init__(
        self,
        function: Callable[P, R],
        name: str | None = None,
        releases_gil: bool = False,
        blocking: bool = False,
        launch_only: bool = False,
        local_names: Mapping[str, object] | None = None,
        access: Mapping[str, Any] | None = None,
        pure: bool = True,
    ) -> None:
        check_plain("a task", function)
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        signature = signature_of(function)
        declared = {
            each.name: annotated_mode(each.annotation, function, local_names) for each in signature.parameters.values()
        }
        title = name or name_of(function)
        parameter, stream = stream_parameter(title, signature, {key: each for key, (_, each) in declared.items()})
        self._parameters = tuple(each for each in signature.parameters.values() if each is not parameter)
        self.__signature__ = signature.replace(parameters=self._parameters)  # as it is called
        self.access = dict(access or {})
        annotated = {each.name: declared[each.name][0] for each in self._parameters}
        self._mode_of = declared_modes(title, self.access, annotated)
        positional_kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        self._positional = tuple(each for each in self._parameters if each.kind in positional_kinds)
        self._plain = plain(self._parameters)
        self._shapes: dict[tuple[int, tuple[str, ...]], tuple[int, ...]] = {}  # modes of calls that were looked at
        self.optional = {
            each.name: each.default
            for each in self._parameters
            if self._mode_of[each.name] and each.default is not each.empty and is_value(each.default)
        }
        modes = tuple(self._mode_of[parameter.name] for parameter in self._positional)
        super().__init__(function, modes, title, releases_gil, blocking, launch_only, stream, pure)
        self.modes_at_once = None if stream is not None else modes
        self.modes_by_name = {
            each.name: self._mode_of[each.name]
            for each in self._parameters
            if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        }

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        graph = current()
        if graph is not None:
            return graph.record(self, args, kwargs, sys._getframe(1))
        return self._call_at_once(args, kwargs)

    __call__: Calling[P, R] = call_task  # type: ignore[assignment]

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<ostinato task {self.name!r}>"

    def __reduce__(self) -> str:
        return importable_name(self)  # like functions

    def complete(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[str, ...], tuple[int, ...]]:
        values = fill_in(self._plain, args, kwargs) if self._plain else None
        if values is not None:
            return values, (), self._without_defaults(values, (), self.modes)
        if self.stream is not None:
            self.stream.refuse_given(self.name, args, kwargs)
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.called}: {error}") from None
        bound.apply_defaults()
        positional, named = bound.args, bound.kwargs
        values, keywords = (*positional, *named.values()), tuple(named)
        return values, keywords, self._without_defaults(values, keywords, self._modes_of(len(positional), named))

    def _without_defaults(
        self, values: tuple[Any, ...], keywords: tuple[str, ...], modes: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Return the modes of a call; a default that is no array, such as None, is a plain value."""
        if not self.optional:
            return modes
        names = [each.name for each in self._positional[: len(values) - len(keywords)]]
        names += [""] * (len(values) - len(keywords) - len(names)) + [*keywords]
        nothing = object()
        return tuple(
            0 if self.optional.get(name, nothing) is value else mode
            for name, value, mode in zip(names, values, modes, strict=True)
        )

    def modes_for(self, count: int, keywords: tuple[str, ...]) -> tuple[int, ...]:
        modes = self._shapes.get((count, keywords))
        if modes is None:
            try:
                self.__signature__.bind(*(None,) * count, **dict.fromkeys(keywords))
            except TypeError as error:
                raise TypeError(f"{self.called}: {error}") from None
            modes = self._shapes[count, keywords] = self._modes_of(count, keywords)
        return modes

    def _modes_of(self, count: int, keywords: Iterable[str]) -> tuple[int, ...]:
        rest = (self._mode_of_rest(Parameter.VAR_POSITIONAL),) * (count - len(self.modes))
        named = (self._mode_of.get(key, self._mode_of_rest(Parameter.VAR_KEYWORD)) for key in keywords)
        return (*self.modes[:count], *rest, *named)

    def label(self, index: int) -> str:
        if index < len(self._positional):
            return f"parameter {self._positional[index].name!r} of {self.called}"
        return super().label(index)

    def with_defaults(
        self, args: tuple[object, ...], keywords: tuple[str, ...]
    ) -> tuple[tuple[object, ...], tuple[str, ...]]:
        return (args, keywords) if self._plain or keywords else self.complete(args, {})[:2]

    def plain_form(self) -> tuple[tuple[Any, ...], bool] | None:
        return None if self.optional or self.stream is not None else (self.modes, False)

    def formals(self) -> tuple[Formal, ...]:
        return tuple(
            Formal(
                each.name,
                f"parameter {each.name!r} of {self.called}",
                self._mode_of[each.name],
                each.kind,
                each.default,
            )
            for each in self._parameters
        )

    def _call_at_once(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run in the calling thread, on a device, or with copies of arrays of devices."""
        arguments, keywords = self.passed(args, kwargs)
        if self.stream is not None:
            arguments, keywords = self.stream.with_stream(arguments, keywords)
        function: Callable[..., Any] = self.function
        if any(type(value) is Container for value in arguments):
            arguments, packing = pack(arguments, keywords)
            function, keywords = packing.called(self.name, function), ()
        if self.stream is not None or any(type(value) is Use for value in arguments):
            return call_python(self.name, function, arguments, keywords)
        count = len(arguments) - len(keywords)
        return function(*arguments[:count], **dict(zip(keywords, arguments[count:], strict=True)))

    def passed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        """Return what stands for the positional, then the keyword values of a call at once, and the keywords."""
        values, keywords = (*args, *kwargs.values()), tuple(kwargs)
        if self.stream is not None:
            values, keywords, modes = self.complete(args, kwargs)
        else:  # wrong arguments are left to the function: it says best what is wrong
            modes = self._without_defaults(values, keywords, self._modes_of(len(args), keywords))
        pairs = enumerate(zip(values, modes, strict=True))
        return tuple([self._passed(value, mode, index) for index, (value, mode) in pairs]), keywords

    def _passed(self, value: Any, mode: int, index: int) -> Any:
        """Return what stands for an argument in a call at once: what a replay would pass, or a `Use` of an array."""
        if type(value) in PLAIN and not mode:
            return value
        refuse_placeholder(value, self.name)
        if isinstance(value, Token):
            if not mode:
                raise TypeError(f"{self.label(index)} is a token, but the task declares no access for it")
            return value.value
        if not mode:
            return value
        if is_container(value):
            taken = holding(value)
            return self._passed_container(value, taken, mode, index) if taken else value
        if self.stream is not None or isinstance(value, DeviceArray):
            array = as_ndarray(value)
            if array is not None:
                if mode & WRITE and not array.flags.writeable:
                    raise ValueError(f"{self.label(index)} is written, but the array passed is read-only")
                return Use(value, array, mode)
        if isinstance(value, np.ndarray):
            if type(value) is not np.ndarray:
                as_ndarray(value)  # raises for a masked array
            if mode == READ and value.flags.writeable:
                value = value.view(np.ndarray)
                value.flags.writeable = False
            return value if type(value) is np.ndarray else value.view(np.ndarray)
        why = None if as_ndarray(value) is not None else refusal_of(value)
        if why is not None:
            raise TypeError(f"{self.label(index)} {why}")
        if holding(value):
            raise TypeError(f"{self.label(index)} {opaque_refusal(value)}")
        return value

    def _passed_container(self, value: object, taken: frozenset[int], mode: int, index: int) -> object:
        """Return a container with what stands for each array in it; the container itself where that changes nothing."""
        changed = False

        def leaf(part: object, path: Path) -> object:
            nonlocal changed
            if is_constant(part):
                return part
            passed = self._passed(part, mode, index)
            changed |= passed is not part
            return passed

        found = map_leaves(value, self.label(index), lambda part, path: id(part) in taken, leaf)
        return found if changed else value

    def _mode_of_rest(self, kind: object) -> int:
        """The mode of what goes into ``*args`` or ``**kwargs``; 0 for one argument too many: the call says so."""
        return next((self._mode_of[each.name] for each in self._parameters if each.kind is kind), 0)


class _Options(TypedDict, total=False):
    """What `task` takes besides the function."""

    name: str | None
    releases_gil: bool
    blocking: bool
    launch_only: bool
    access: Mapping[str, Any] | None
    pure: bool


@overload
def task(function: Callable[P, R], /, **options: Unpack[_Options]) -> Task[P, R]: ...
@overload
def task(**options: Unpack[_Options]) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    releases_gil: bool = False,
    blocking: bool = False,
    launch_only: bool = False,
    access: Mapping[str, Any] | None = None,
    pure: bool = True,
) -> Any:
    """Make a task of a function.

    Parameters annotated `Read`, `Write` or `ReadWrite` are arrays that the function uses so; ``*args: Read`` stands
    for any number of them. All others are scalars or plain objects. `Write` promises to overwrite the whole array.
    Arrays that are only read are passed read-only.

    A list, tuple, dict or dataclass of arrays may be passed, too, nested to any depth: the access holds for each array
    in it. A call is recorded with what the container holds then. Every replay of it makes a new container, so a task
    writes to the arrays and leaves the container as it is. Any other object, passed where an access is declared, is a
    token: ops that name the same one are ordered as if it were an array; see `token`.

    A parameter annotated `Stream` receives the stream of a device; calls leave it out. The task runs on that device,
    starts its work on the stream, and returns without waiting for it. Arrays reach it in the memory of the device.

    Called outside a capture, a task runs at once, and on a device until its work is done. Inside ``with capture():``
    the call is recorded, and returns an `Op`.

    Parameters
    ----------
    name
        The name in messages and traces; by default the function's.
    releases_gil
        Says that the function spends its time without Python's global interpreter lock.
    blocking
        Says that the function may wait for events, runs and other things: it then runs on a thread of its own.
    launch_only
        Says that the function does nothing but start work on its stream that depends on its arguments only. It is then
        not called in every step: what it starts is captured, and started again. Of a list or another object that is
        passed and is no parameter, later changes are not seen. On a CPU it changes nothing.
    access
        Accesses by the name of the parameter, such as ``{"src": ost.Read}``: the same as annotations, for functions
        whose annotations say something else. ``Annotated[np.ndarray, ost.Read]`` says both.
    pure
        False says that the function does more than its arguments show, such as writing to a file. Then only replays,
        spawns and calls of yours call it: it is not called to be measured.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> @ost.task
    ... def scale(src: ost.Read, dst: ost.Write, factor=2.0):
    ...     np.multiply(src, factor, out=dst)
    >>> a, b = np.ones(3), np.zeros(3)
    >>> scale(a, b, 0.5)
    >>> b
    array([0.5, 0.5, 0.5])
    >>> with ost.capture() as graph:
    ...     op = scale(b, a)
    >>> op.name, len(graph)
    ('scale', 1)
    """
    if function is not None:
        if not callable(function):
            raise TypeError(f"@task must decorate a function, got {brief(function)}; pass options by keyword")
        return Task(function, name, releases_gil, blocking, launch_only, sys._getframe(1).f_locals, access, pure)

    def decorate(function: Callable[P, R]) -> Task[P, R]:
        return Task(function, name, releases_gil, blocking, launch_only, sys._getframe(1).f_locals, access, pure)

    return decorate
