"""Tasks written in Python and compiled to native code by Numba."""

from __future__ import annotations

import dis
import functools
import inspect
import linecache
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, overload

import numpy as np

from ostinato.errors import TaskError
from ostinato.graph.access import (
    Formal,
    Read,
    ReadWrite,
    Write,
    annotated_mode,
    check_plain,
    fill_in,
    is_stream,
    plain,
    signature_of,
    variables_of,
)
from ostinato.graph.arrays import READ, READ_WRITE, WRITE, Array, Operand, as_ndarray
from ostinato.graph.body import NativeCall
from ostinato.graph.context import current
from ostinato.graph.eager import KernelCalls, call_kernel
from ostinato.graph.native import RAISED, NativeTask
from ostinato.graph.param import REQUIRED, Converted, Param, Step, as_scalar
from ostinato.graph.recorder import (
    NO_TOKENS,
    Recordable,
    Recorder,
    importable_name,
    native_refusal,
    refuse_placeholder,
)
from ostinato.text import brief

# Offsets and sizes, in bytes, of what ostinato.h declares.
_CALL_ARRAYS, _CALL_SCALARS = 0, 8
_ARRAY_DATA, _ARRAY_SHAPE, _ARRAY_STRIDES, _ARRAY_SIZE = 0, 16, 24, 32
_SCALAR_SIZE = 8

_log = logging.getLogger("ostinato")

_LOCATION = re.compile(r'File "(.+)", line (\d+)')
_FRAMES = ("During: ", "File ", "  raised from ", "Failed in nopython mode", "<source missing", "def ", "    ", "@")
_MOST_LINES = 4


class CompileError(TypeError):
    """Numba cannot compile a kernel."""


class ArrayType(NamedTuple):
    """What code is compiled for.

    The layout is ``"C"`` or ``"F"`` of a contiguous array; ``"c"`` where the elements along the last axis are adjacent,
    as in a part of a C array's rows; ``"f"`` where those along the first axis are; else ``"A"``.
    """

    dtype: np.dtype[Any]
    ndim: int
    layout: str
    aligned: bool

    @classmethod
    def of(cls, array: Array) -> ArrayType:
        """Return the type of an array."""
        flags = array.flags
        if flags.c_contiguous:
            layout = "C"
        elif flags.f_contiguous:
            layout = "F"
        else:  # of one dimension at least
            layout = "c" if array.strides[-1] == array.itemsize else "f" if array.strides[0] == array.itemsize else "A"
        return cls(array.dtype, array.ndim, layout, flags.aligned)

    @property
    def adjacent(self) -> int | None:
        """The axis along which elements are adjacent; None if that is not known."""
        return {"C": self.ndim - 1, "F": 0, "c": self.ndim - 1, "f": 0}.get(self.layout) if self.ndim else None


def compile_entry(
    function: Callable[..., Any], types: tuple[ArrayType | type, ...], readonly: tuple[bool, ...]
) -> tuple[int, object]:
    """Compile a function for argument types; return the address of the C function, and what keeps it alive.

    Raises
    ------
    TypeError
        If Numba cannot compile it.
    """
    numba = _numba()
    loaders = []
    arrays = scalars = 0
    for kind, fixed in zip(types, readonly, strict=True):
        if isinstance(kind, ArrayType):
            loaders.append(_array_loader(arrays, _numba_array(kind, fixed), kind))
            arrays += 1
        else:
            loaders.append(_scalar_loader(scalars, numba.float64 if kind is float else numba.int64))
            scalars += 1
    names: dict[str, Any] = {"kernel": numba.njit(function, pipeline_class=_pipeline(tuple(loaders)))}
    source = (
        "def entry(call):\n"
        "    try:\n"
        f"        kernel({', '.join(['call'] * len(types))})\n"
        "    except Exception:\n"
        "        return 1\n"
        "    return 0\n"
    )
    exec(source, names)
    try:
        compiled = numba.cfunc(numba.int32(numba.types.voidptr), nopython=True)(names["entry"])
    except (numba.core.errors.NumbaError, NotImplementedError) as error:
        _log.debug("Numba cannot compile kernel %r", function.__name__, exc_info=error)
        raise CompileError(_reason(function, str(error))) from None  # what Numba says takes pages
    return compiled.address, compiled


def _reason(function: Callable[..., Any], said: str) -> str:
    """Return in a few lines why Numba cannot compile a kernel."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in said.splitlines()]
    found = next((match for match in map(_LOCATION.match, lines) if match and match[1] != "<string>"), None)
    source = linecache.getline(function.__code__.co_filename, int(found[2])).strip() if found else ""
    where = f" in line {found[2]} of {os.path.basename(found[1])}: {source}" if found else ""
    if "Cannot modify readonly array" in said:
        written = next(
            (name for name in re.findall(r"\w+", source) if name in function.__code__.co_varnames), "an array"
        )
        return (
            f"kernel {function.__name__!r} writes to {written!r}, which is declared ost.Read,{where}\n"
            "Declare the parameter ost.Write or ost.ReadWrite"
        )
    told = [line for line in lines if line.strip(" ^") and not line.startswith(_FRAMES)]
    return f"Numba cannot compile kernel {function.__name__!r}{where}\n" + "\n".join(told[:_MOST_LINES])


def _numba() -> Any:
    try:
        import numba
        import numba.core.errors
    except ImportError as error:
        raise ImportError("kernels are compiled by Numba, which is missing: pip install 'ostinato[numba]'") from error
    return numba


def _numba_array(kind: ArrayType, readonly: bool) -> Any:
    from numba import types
    from numba.core.errors import NumbaError
    from numba.np.numpy_support import from_dtype

    try:
        element = from_dtype(kind.dtype)
    except (NotImplementedError, NumbaError) as error:
        raise TypeError(f"Numba has no arrays of {kind.dtype}") from error
    if kind.layout in "cf":
        return _adjacent_array()(element, kind.ndim, kind.adjacent, kind.dtype.itemsize, readonly, kind.aligned)
    return types.Array(element, kind.ndim, kind.layout, readonly=readonly, aligned=kind.aligned)


@functools.cache
def _adjacent_array() -> Any:
    """Return the class of Numba types of arrays whose elements along one axis are adjacent, but which have gaps.

    Numba compiles functions that a kernel calls for the types of what it passes. Where such a function begins, the
    stride of that axis becomes a constant, so that its loops are vectorized too. All else is as for any strides: what
    Numba derives from such an array, such as a slice, has Numba's own type.
    """
    from numba import types
    from numba.core.cgutils import intp_t
    from numba.core.datamodel.models import ArrayModel
    from numba.core.errors import NumbaTypeError
    from numba.extending import lower_cast, register_model

    class AdjacentArray(types.Array):  # type: ignore[misc]
        def __init__(self, dtype: Any, ndim: int, axis: int, itemsize: int, readonly: bool, aligned: bool) -> None:
            self.given = dtype, ndim, axis, itemsize, readonly, aligned
            name = f"adjacent array({dtype}, {ndim}d, axis {axis}, readonly={readonly}, aligned={aligned})"
            super().__init__(dtype, ndim, "A", readonly=readonly, name=name, aligned=aligned)

        @property
        def key(self) -> Any:
            return self.given

        @property
        def mangling_args(self) -> Any:
            return type(self).__name__, list(self.given)

        def __reduce__(self) -> Any:  # Numba's caches in files keep the types of functions
            return _make_adjacent, self.given

    @register_model(AdjacentArray)
    class Model(ArrayModel):  # type: ignore[misc]
        def from_argument(self, builder: Any, value: Any) -> Any:
            _, _, axis, itemsize, _, _ = self.fe_type.given
            array = super().from_argument(builder, value)
            return builder.insert_value(array, intp_t(itemsize), [self.get_field_position("strides"), axis])

    @lower_cast(types.Array, AdjacentArray)  # type: ignore[untyped-decorator]
    def refuse(context: Any, builder: Any, known: Any, wanted: Any, value: Any) -> Any:
        # Numba converts one layout "A" to another. Without this, it would run code compiled for adjacent elements.
        raise NumbaTypeError(f"a function compiled for {wanted} cannot be passed {known}")

    return AdjacentArray


def _make_adjacent(*given: Any) -> Any:
    return _adjacent_array()(*given)


def _pipeline(loaders: tuple[Any, ...]) -> Any:
    """Return Numba's pipeline for a function that is passed the ``ost_call`` as each argument.

    The function itself loads its arguments. Strides that are constants in a loader are then constants where the
    function's loops are optimized; inlining a function that was optimized without them would come too late.
    """
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.untyped_passes import FixupArgs

    class Pipeline(CompilerBase):  # type: ignore[misc]
        def define_pipelines(self) -> list[Any]:
            passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
            passes.add_pass_after(_load_arguments(), FixupArgs)
            passes.finalize()
            return [passes]

    Pipeline.loaders = loaders
    return Pipeline


@functools.cache
def _load_arguments() -> type:
    """Return the pass that replaces each argument of a function by a call of its loader."""
    from numba.core import ir, ir_utils
    from numba.core.compiler_machinery import FunctionPass, register_pass

    @register_pass(mutates_CFG=False, analysis_only=False)
    class LoadArguments(FunctionPass):  # type: ignore[misc]
        _name = "ostinato_load_arguments"

        def __init__(self) -> None:  # abstract in the base class
            super().__init__()

        def run_pass(self, state: Any) -> bool:
            old = state.func_ir
            for block in old.blocks.values():
                body = []
                for statement in block.body:
                    if isinstance(statement, ir.Assign) and isinstance(statement.value, ir.Arg):
                        where, argument = statement.loc, statement.value
                        call = ir.Var(block.scope, f"$call.{argument.index}", where)
                        load = ir.Var(block.scope, f"$load.{argument.index}", where)
                        loader = state.pipeline.loaders[argument.index]
                        body.append(ir.Assign(argument, call, where))
                        body.append(ir.Assign(ir.Global(f"load_{argument.index}", loader, where), load, where))
                        statement = ir.Assign(ir.Expr.call(load, (call,), (), where), statement.target, where)
                    body.append(statement)
                block.body = body
            definitions = ir_utils.build_definitions(old.blocks)
            state.func_ir = ir.FunctionIR(
                old.blocks, old.is_generator, old.func_id, old.loc, definitions, old.arg_count, old.arg_names
            )
            return True

    return LoadArguments


def _scalar_loader(index: int, numba_type: Any) -> Any:
    """Return a function for compiled code that reads scalar `index` of an ``ost_call``."""
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def load(typing_context: Any, call: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            scalars = _load(builder, args[0], _CALL_SCALARS, args[0].type)
            return _load(builder, scalars, index * _SCALAR_SIZE, context.get_value_type(numba_type))

        return numba_type(call), generate

    return load


def _array_loader(index: int, numba_type: Any, kind: ArrayType) -> Any:
    """Return a function for compiled code that makes an array of array `index` of an ``ost_call``."""
    from numba.core import cgutils
    from numba.extending import intrinsic
    from numba.np.arrayobj import make_array, populate_array

    @intrinsic  # type: ignore[untyped-decorator]
    def load(typing_context: Any, call: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer, word = args[0].type, cgutils.intp_t
            element_pointer = context.get_data_type(numba_type.dtype).as_pointer()
            description = index * _ARRAY_SIZE
            arrays = _load(builder, args[0], _CALL_ARRAYS, pointer)
            shape = _load(builder, arrays, description + _ARRAY_SHAPE, pointer)
            strides = _load(builder, arrays, description + _ARRAY_STRIDES, pointer)
            itemsize = kind.dtype.itemsize
            array = make_array(numba_type)(context, builder)
            populate_array(
                array,
                data=_load(builder, arrays, description + _ARRAY_DATA, element_pointer),
                shape=[_load(builder, shape, 8 * axis, word) for axis in range(kind.ndim)],
                strides=[
                    word(itemsize) if axis == kind.adjacent else _load(builder, strides, 8 * axis, word)
                    for axis in range(kind.ndim)
                ],
                itemsize=itemsize,
                meminfo=None,
            )
            return array._getvalue()

        return numba_type(call), generate

    return load


def _load(builder: Any, base: Any, offset: int, kind: Any) -> Any:
    """Read a value of an LLVM type, `offset` bytes behind a pointer."""
    from numba.core import cgutils

    address = builder.gep(builder.bitcast(base, cgutils.voidptr_t), [cgutils.intp_t(offset)])
    return builder.load(builder.bitcast(address, kind.as_pointer()))


_MARKERS = {READ: Read, WRITE: Write, READ_WRITE: ReadWrite}


class Constant(NamedTuple):
    """A value that compiled code has in it, because the function finds it in a global or an enclosing function."""

    name: str
    value: Any
    now: Callable[[], Any]
    """Returns what the function would find today."""

    @property
    def changed(self) -> bool:
        """Whether the function would find another value today."""
        return not _is_same(self.now(), self.value)


def _constants(function: Any) -> list[Constant]:
    """Return the numbers and arrays that Numba makes constants of."""
    global_names = {each.argval for each in dis.get_instructions(function) if each.opname == "LOAD_GLOBAL"}
    values = ((name, now(), now) for name, now in variables_of(function, sorted(global_names)))
    return [
        Constant(name, value.copy() if isinstance(value, np.ndarray) else value, now)
        for name, value, now in values
        if isinstance(value, int | float | complex | np.generic | tuple | np.ndarray)
    ]


def _is_same(a: object, b: object) -> bool:
    if a is b:
        return True
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_is_same, a, b))
    return type(a) is type(b) and bool(a == b)


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
        check_plain("a kernel", function)
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name or function.__name__
        self._plain = plain(self.signature.parameters.values())
        self._names = tuple(self.signature.parameters)
        self._modes = tuple(mode for mode, _ in declared)
        self._scalars = tuple(kind if kind in (int, float) else None for _, kind in declared)
        self.calls = self._no_calls()
        self._checked: Any = None
        self._compiled: dict[tuple[object, ...], NativeTask] = {}

    def _no_calls(self) -> KernelCalls:
        return KernelCalls(tuple(mode or kind for mode, kind in zip(self._modes, self._scalars, strict=True)))

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
        for index, (value, mode) in enumerate(zip(args, self._modes, strict=True)):
            refuse_placeholder(value, self.name)
            if not mode:
                types.append(self._scalar_type(value, index))
                continue
            array = as_ndarray(value)
            if array is None:
                raise TypeError(f"{self.label(index)} must be an array, got {brief(value)}: {NO_TOKENS}")
            types.append(self._array_type(array, index))
        self._for_types(tuple(types)).run(args)

    __call__: Callable[..., Any] = call_kernel

    def _failed(self, code: int) -> None:
        """Raise what a call raises whose function returned this code."""
        raise TaskError(f"kernel {self.name!r} failed: it {RAISED}")

    def __repr__(self) -> str:
        return f"<ostinato kernel {self.name!r}>"

    def __reduce__(self) -> str:
        return importable_name(self)  # like functions

    def bind(
        self, recorder: Recorder, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[NativeCall, tuple[Operand, ...]]:
        values = list(self._complete(args, kwargs))
        types: list[ArrayType | type] = []
        for index, (value, mode) in enumerate(zip(values, self._modes, strict=True)):
            if not mode:
                if not isinstance(value, Step):
                    value = values[index] = recorder.plain_value(value, self.label, index)
                types.append(self._scalar_type(value, index))
                continue
            operand = recorder.native_operand(value, mode, self.label, index)
            types.append(ArrayType.of(operand.array) if operand.array is not None else _common(operand.arrays))
        return self._for_types(tuple(types)).bind(recorder, tuple(values), {})

    def body_of(self, args: tuple[object, ...], kwargs: Mapping[str, object], known: dict[object, Any]) -> NativeCall:
        args = self._complete(args, kwargs)
        types: list[ArrayType | type] = []
        for index, (value, mode) in enumerate(zip(args, self._modes, strict=True)):
            if isinstance(value, Operand) and mode:
                kept = known.get((id(value), ArrayType))
                if kept is None:
                    kind = self._array_type(value.arrays[0] if value.arrays else None, index)
                    kind = kind if value.ring is None else _common(value.arrays)
                    kept = known[id(value), ArrayType] = value, kind
                types.append(kept[1])
            elif isinstance(value, Param) and not isinstance(value, Converted):
                types.append(self._scalars[index] or self._open_type(value, args, index))
            else:
                types.append(self._scalar_type(value, index))
        return self._for_types(tuple(types)).body_of(args, {}, known)

    def _open_type(self, param: Param, args: Sequence[object], index: int) -> type:
        """Return the type for any number that a run may give to a Python function."""
        if not any(isinstance(each, Operand) and _writes_integers(each) for each in args):
            return float
        if param.default is REQUIRED or param.combine is not None:  # with floats, large integers would be others
            raise TypeError(f"{self.label(index)} is not known before the program runs: annotate it int or float")
        return self._scalar_type(param, index)

    def formals(self) -> tuple[Formal, ...]:
        return tuple(
            Formal(each.name, self.label(index), self._modes[index], each.kind, each.default)
            for index, each in enumerate(self.signature.parameters.values())
        )

    def check_config(self, name: str, value: object) -> None:
        index = self._names.index(name)
        kind = self._scalar_type(value, index)
        as_scalar(value, kind, self.label(index))

    @property
    def compiled(self) -> tuple[NativeTask, ...]:
        """The native tasks made of it so far, one for each combination of argument types."""
        return tuple(self._compiled.values())

    def out_of_bounds(self, args: Sequence[Any]) -> bool:
        """Run the function with these arrays and numbers, and return whether an index is outside of an array.

        Compiled code that checks indices takes several times as long. It raises in place of using such an index.
        """
        if self._checked is None:
            self._checked = _numba().njit(self.function, boundscheck=True)
        try:
            self._checked(*args)
        except IndexError as error:
            return str(error) == "index is out of bounds"  # Numba's words; others are the function's own
        except Exception:  # of the function itself, or of Numba: what runs without checks tells
            return False
        return False

    def label(self, index: int) -> str:
        """Return what messages call the argument at an index."""
        return f"parameter {self._names[index]!r} of {self.called}"

    def _complete(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        if kwargs or len(args) != len(self._modes):
            values = fill_in(self._plain, args, kwargs) if self._plain else None
            if values is not None:
                return values
            try:
                bound = self.signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self.called}: {error}") from None
            bound.apply_defaults()
            return bound.args
        return args

    def _array_type(self, array: Array | None, index: int) -> ArrayType:
        if array is None:
            raise TypeError(f"{self.label(index)} must be an array, got a token")
        refusal = native_refusal(array)
        if refusal is not None:
            raise TypeError(f"{self.label(index)}: {refusal}")
        return ArrayType.of(array)

    def _scalar_type(self, value: object, index: int) -> type:
        declared = self._scalars[index]
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
            f"{self.label(index)} must be a number, an int or a float, unless annotated ost.Read, ost.Write or "
            f"ost.ReadWrite, got {brief(value)}"
        )

    def _for_types(self, types: tuple[ArrayType | type, ...]) -> NativeTask:
        if any(
            not isinstance(each.value, np.ndarray) and each.changed
            for task in self._compiled.values()
            for each in task.constants
        ):
            self._compiled.clear()  # programs keep what they were compiled with
            self.calls = self._no_calls()
            self._checked = None
        compiled = self._compiled.get(types)
        if compiled is None:
            readonly = tuple(mode == READ for mode in self._modes)
            address, keep = compile_entry(self.function, types, readonly)
            access = tuple(_MARKERS[mode] if mode else kind for mode, kind in zip(self._modes, types, strict=True))
            compiled = self._compiled[types] = NativeTask(address, access, self.name, keep=(keep,), kernel=self)
            compiled.constants = _constants(self.function)
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

    Compiled code does not check indices: one that is out of bounds reads or overwrites other memory. ``verify`` finds
    this in the kernel, but not in functions that it calls. Globals, and variables of enclosing functions, are constants
    of the compiled code: pass what changes.

    Needs Numba: ``pip install 'ostinato[numba]'``.

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
    common = "".join(sorted(layouts))
    layout = common if len(layouts) == 1 else {"Cc": "c", "Ff": "f"}.get(common, "A")
    return types[0]._replace(layout=layout, aligned=all(kind.aligned for kind in types))
