"""Tasks written in Python and compiled to native code by Numba."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, overload

import numpy as np

from ostinato.errors import TaskError
from ostinato.graph.access import Read, ReadWrite, Write, annotated_mode, signature_of
from ostinato.graph.arrays import Array, as_ndarray
from ostinato.graph.at_once import KernelCalls, call_kernel
from ostinato.graph.body import NativeCall
from ostinato.graph.context import current
from ostinato.graph.converted import Converted
from ostinato.graph.formal import Formal, filled_in, plain
from ostinato.graph.kernel_entry import ArrayType, CompileError, compile_entry
from ostinato.graph.native import NativeTask
from ostinato.graph.operand import READ, READ_WRITE, WRITE, Operand
from ostinato.graph.param import REQUIRED, Param, Step
from ostinato.graph.recordable import Recordable, importable_name, refuse_placeholder
from ostinato.graph.recorder import Recorder, native_refusal
from ostinato.graph.scalar import as_scalar
from ostinato.graph.stream import is_stream
from ostinato.one_line import brief

__all__ = ["Kernel", "kernel"]

_MARKERS = {READ: Read, WRITE: Write, READ_WRITE: ReadWrite}


class Kernel(Recordable):
    """A function of arrays and scalars that is compiled for each combination of argument types; made by `kernel`."""

    takes_names: ClassVar[bool] = False

    def __init__(self, function: Callable[..., Any], name: str | None, local_names: Mapping[str, object]) -> None:
        self.signature = signature_of(function)
        declared = []
        for parameter in self.signature.parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                raise TypeError(f"parameter {parameter.name!r} of a kernel is not positional; a C function's all are")
            declared.append(annotated_mode(parameter.annotation, function, local_names))
            if is_stream(declared[-1][1]):
                raise TypeError(
                    f"parameter {parameter.name!r} of a kernel cannot be ost.Stream: kernels run on the CPU; a task, "
                    "or a native one, starts work on a device"
                )
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name or function.__name__
        self._plain = plain(self.signature.parameters.values())
        self._names = tuple(self.signature.parameters)
        self._modes = tuple(mode for mode, _ in declared)
        self._scalars = tuple(kind if kind in (int, float) else None for _, kind in declared)
        self.calls = KernelCalls(tuple(mode or kind for mode, kind in zip(self._modes, self._scalars, strict=True)))
        self._compiled: dict[tuple[object, ...], NativeTask] = {}

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        try:
            graph = current()
            if graph is not None:
                return graph.record(self, args, kwargs, sys._getframe(1))
            return self._call_at_once(args, kwargs)
        except CompileError as error:
            raise TypeError(str(error)) from None  # without the frames between: users need their own line

    def _call_at_once(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        args = self._complete(args, kwargs)
        types: list[ArrayType | type] = []
        for place, (value, mode) in enumerate(zip(args, self._modes, strict=True)):
            refuse_placeholder(value, self.name)
            types.append(self._array_type(as_ndarray(value), place) if mode else self._scalar_type(value, place))
        self._for_types(tuple(types)).run(args)

    __call__: Callable[..., Any] = call_kernel

    def _failed(self, code: int) -> None:
        """Raise what a call raises whose function returned this code."""
        raise TaskError(f"native task {self.name!r} failed: it returned {code}")

    def __repr__(self) -> str:
        return f"<ostinato kernel {self.name!r}>"

    def __reduce__(self) -> str:
        return importable_name(self)  # like functions

    def bind(
        self, recorder: Recorder, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[NativeCall, tuple[Operand, ...]]:
        values = list(self._complete(args, kwargs))
        types: list[ArrayType | type] = []
        for place, (value, mode) in enumerate(zip(values, self._modes, strict=True)):
            if not mode:
                if not isinstance(value, Step):
                    value = values[place] = recorder.plain_value(value, self.label, place)
                types.append(self._scalar_type(value, place))
                continue
            operand = recorder.native[mode].get(id(value))
            if operand is None:
                operand = recorder.native_operand(value, mode, self.label, place)
            types.append(ArrayType.of(operand.array) if operand.array is not None else _common(operand.arrays))
        return self._for_types(tuple(types)).bind(recorder, tuple(values), {})

    def body_of(self, args: tuple[object, ...], kwargs: Mapping[str, object], known: dict[object, Any]) -> NativeCall:
        args = self._complete(args, kwargs)
        types: list[ArrayType | type] = []
        for place, (value, mode) in enumerate(zip(args, self._modes, strict=True)):
            if isinstance(value, Operand) and mode:
                kept = known.get((id(value), ArrayType))
                if kept is None:
                    kind = self._array_type(value.arrays[0] if value.arrays else None, place)
                    kind = kind if value.ring is None else _common(value.arrays)
                    kept = known[id(value), ArrayType] = value, kind
                types.append(kept[1])
            elif isinstance(value, Param) and not isinstance(value, Converted):
                types.append(self._scalars[place] or self._open_type(value, args, place))
            else:
                types.append(self._scalar_type(value, place))
        return self._for_types(tuple(types)).body_of(args, {}, known)

    def _open_type(self, param: Param, args: Sequence[object], place: int) -> type:
        """Return the type for any number that a run may give to a Python function."""
        if not any(isinstance(each, Operand) and _writes_integers(each) for each in args):
            return float
        if param.default is REQUIRED or param.combine is not None:  # with floats, large integers would be others
            raise TypeError(f"{self.label(place)} is not known before the program runs: annotate it int or float")
        return self._scalar_type(param, place)

    def formals(self) -> tuple[Formal, ...]:
        return tuple(
            Formal(each.name, self.label(place), self._modes[place], each.kind, each.default)
            for place, each in enumerate(self.signature.parameters.values())
        )

    def check_config(self, name: str, value: object) -> None:
        place = self._names.index(name)
        kind = self._scalar_type(value, place)
        as_scalar(value, kind, self.label(place))

    @property
    def compiled(self) -> tuple[NativeTask, ...]:
        """The native tasks made of it so far, one for each combination of argument types."""
        return tuple(self._compiled.values())

    def label(self, place: int) -> str:
        """Say what the argument at a place is."""
        return f"parameter {self._names[place]!r} of {self.called}"

    def _complete(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        if kwargs or len(args) != len(self._modes):
            values = filled_in(self._plain, args, kwargs) if self._plain else None
            if values is not None:
                return values
            try:
                bound = self.signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self.called}: {error}") from None
            bound.apply_defaults()
            return bound.args
        return args

    def _array_type(self, array: Array | None, place: int) -> ArrayType:
        if array is None:
            raise TypeError(f"{self.label(place)} must be an array, got a token")
        refusal = native_refusal(array)
        if refusal is not None:
            raise TypeError(f"{self.label(place)}: {refusal}")
        return ArrayType.of(array)

    def _scalar_type(self, value: object, place: int) -> type:
        declared = self._scalars[place]
        if declared is not None:
            return declared
        if isinstance(value, Converted):
            return value.kind
        if isinstance(value, Param):
            # What a function makes of default and given value, or a value not known yet, counts as a float.
            value = value.default if value.default is not REQUIRED and value.combine is None else 0.0
        if isinstance(value, int | np.integer | np.bool_ | Step):
            return int
        if isinstance(value, float | np.floating):
            return float
        raise TypeError(
            f"{self.label(place)} must be a number unless annotated ost.Read, ost.Write or ost.ReadWrite, "
            f"got {brief(value)}"
        )

    def _for_types(self, types: tuple[ArrayType | type, ...]) -> NativeTask:
        compiled = self._compiled.get(types)
        if compiled is None:
            readonly = tuple(mode == READ for mode in self._modes)
            address, keep = compile_entry(self.function, types, readonly)
            access = tuple(_MARKERS[mode] if mode else kind for mode, kind in zip(self._modes, types, strict=True))
            compiled = self._compiled[types] = NativeTask(address, access, self.name, keep=(keep,), kernel=self)
            self.calls.add(types, address)
        return compiled


@overload
def kernel(function: Callable[..., Any], /) -> Kernel: ...
@overload
def kernel(*, name: str | None = None) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(function: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """Make a native task of a Python function of arrays and scalars, compiled by Numba.

    Parameters annotated `Read`, `Write` or `ReadWrite` are arrays, as for `task`. A parameter annotated ``int`` or
    ``float`` is such a scalar; one without annotation is what is passed, and a float where that is known only when
    the program runs. The function is compiled when it is first called, or captured, with arguments of certain types,
    without liberties in floating-point arithmetic. What it returns is dropped. If it raises, the op fails.

    Needs Numba: ``pip install ostinato[numba]``.

    Parameters
    ----------
    name
        The name in messages and traces; by default the function's.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> @ost.kernel
    ... def scale(src: ost.Read, dst: ost.Write, factor):
    ...     for i in range(src.size):
    ...         dst[i] = src[i] * factor
    >>> a, b = np.ones(3), np.zeros(3)
    >>> scale(a, b, 0.5)
    >>> b
    array([0.5, 0.5, 0.5])
    """
    if function is not None:
        if not inspect.isfunction(function):
            raise TypeError(f"@kernel must decorate a Python function, got {brief(function)}; pass options by keyword")
        return Kernel(function, None, sys._getframe(1).f_locals)

    def decorate(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, name, sys._getframe(1).f_locals)

    return decorate


def _writes_integers(operand: Operand) -> bool:
    return bool(operand.mode & WRITE) and any(array.dtype.kind in "iu" for array in operand.arrays)


def _common(arrays: tuple[Array, ...]) -> ArrayType:
    """Return the type that fits all arrays of a ring element."""
    types = [ArrayType.of(array) for array in arrays]
    layouts = {kind.layout for kind in types}
    aligned = all(kind.aligned for kind in types)
    return types[0]._replace(layout=layouts.pop() if len(layouts) == 1 else "A", aligned=aligned)
