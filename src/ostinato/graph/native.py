"""Tasks written in C."""

from __future__ import annotations

import _ctypes
import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ostinato.errors import TaskError
from ostinato.graph.access import ACCESS, STREAM, Access, Formal, find_stream, is_stream, make_formals
from ostinato.graph.arrays import HOST, WRITE, Operand, as_ndarray, memory_of
from ostinato.graph.body import NativeCall
from ostinato.graph.context import current
from ostinato.graph.eager import Use, call_c, call_native_task
from ostinato.graph.param import Param, Step, as_scalar, check_default, exact_scalar
from ostinato.graph.recorder import NO_TOKENS, Recordable, Recorder, native_refusal, refuse_placeholder
from ostinato.text import brief

if TYPE_CHECKING:
    from ostinato.graph.kernel import Constant, Kernel


class Pointer(NamedTuple):
    """A function's address, the name it goes by, its own user data, and what keeps it alive."""

    address: int
    name: str | None = None
    user: int = 0
    keep: object = None


def function_address(fn: object) -> Pointer:
    """Return where a C function is."""
    pointer = _function_pointer(fn)
    if pointer is None:
        raise TypeError(
            "fn must be a ctypes or cffi function pointer, a numba cfunc, "
            f"a scipy.LowLevelCallable, a capsule, or an address, got {fn!r}"
        )
    if not 0 < pointer.address < 2**64:
        raise ValueError(f"the address of a function must be positive and fit 64 bits, got {pointer.address}")
    return pointer


def user_address(user: object) -> tuple[int, object]:
    """Return the address of `user`, 0 for None, and what keeps it alive."""
    if user is None:
        return 0, None
    if isinstance(user, int) and not isinstance(user, bool):
        if not 0 <= user < 2**64:
            raise ValueError(f"user must be an address, got {user}")
        return user, None
    array = as_ndarray(user)
    if array is not None and memory_of(array) != HOST:
        raise TypeError("user must be an address or a buffer of the host, got an array of a device: pass its handle")
    if array is None:
        raise TypeError(f"user must be an address or a buffer, got {brief(user)}")
    if not array.flags.forc:
        raise ValueError("user must be a contiguous buffer, got a strided one")
    return array.__array_interface__["data"][0], (user, array)


def _function_pointer(fn: Any) -> Pointer | None:
    if isinstance(fn, int) and not isinstance(fn, bool):
        return Pointer(fn)
    if isinstance(fn, _ctypes.CFuncPtr):
        return Pointer(ctypes.cast(fn, ctypes.c_void_p).value or 0, getattr(fn, "__name__", None))
    if type(fn).__name__ == "PyCapsule":
        return _capsule_pointer(fn)
    if _is_instance(fn, "scipy._lib._ccallback", "LowLevelCallable"):
        inner = _function_pointer(fn.function)
        capsule = tuple.__getitem__(fn, 0)  # its own indexing is closed
        return _capsule_pointer(capsule)._replace(name=None if inner is None else inner.name, keep=fn)
    if _is_instance(fn, "numba.core.ccallback", "CFunc"):
        return Pointer(fn.address, fn._pyfunc.__name__, keep=fn)
    if _is_instance(fn, "_cffi_backend", "_CDataBase"):
        return _cffi_pointer(fn)
    return None


def _is_instance(fn: object, module: str, name: str) -> bool:
    """Whether `fn` is of a class of a package that may not be installed; if it is, the module has been imported."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(fn, kind)


def _cffi_pointer(fn: Any) -> Pointer:
    ffi = sys.modules["_cffi_backend"].FFI()
    declared = ffi.typeof(fn)
    if declared.kind not in ("function", "pointer"):
        raise TypeError(f"fn must be a pointer to a function, got a cffi {declared.cname}")
    return Pointer(int(ffi.cast("uintptr_t", fn)))


def _capsule_pointer(capsule: object) -> Pointer:
    name = _capsule_name(capsule)
    return Pointer(_capsule_address(capsule, name) or 0, user=_capsule_context(capsule) or 0, keep=capsule)


_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.argtypes = (ctypes.py_object,)
_capsule_name.restype = ctypes.c_char_p
_capsule_address = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_address.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule_address.restype = ctypes.c_void_p
_capsule_context = ctypes.pythonapi.PyCapsule_GetContext
_capsule_context.argtypes = (ctypes.py_object,)
_capsule_context.restype = ctypes.c_void_p


RAISED = "raised an exception; compiled code does not say which one, but its Python function, __wrapped__, does"
"""How a kernel failed, for messages."""


class NativeTask(Recordable):
    """A C function as a task; made by `native`.

    Attributes
    ----------
    name
        The name in messages and traces.
    address
        The address of the function.
    user_address
        The address that it gets as `user`; 0 for none.
    access
        One entry per argument: an access marker, `float` or `int`; and `Stream`, which takes no argument.
    kinds
        By entry of it, a mode, or the type of a scalar. The stream is an int: its handle.
    stream
        Where it takes the stream of a device; None if it does not.
    kernel
        The kernel that it was compiled from; None for others.
    """

    __slots__ = (
        "__weakref__",
        "_given",
        "access",
        "address",
        "constants",
        "keep_alive",
        "kernel",
        "kinds",
        "name",
        "stream",
        "user_address",
    )

    takes_names: ClassVar[bool] = False

    def __init__(
        self,
        address: int,
        access: tuple[Any, ...],
        name: str,
        user_address: int = 0,
        keep: tuple[object, ...] = (),
        kernel: Kernel | None = None,
    ) -> None:
        self.address = address
        self.access = access
        self.name = name
        self.user_address = user_address
        self.kernel = kernel
        self.constants: list[Constant] = []  # what a kernel's code has in it
        self.kinds = tuple(_kind(entry, index) for index, entry in enumerate(access))
        self.stream = find_stream(name, access)
        self._given = tuple(kind for kind, entry in zip(self.kinds, access, strict=True) if not is_stream(entry))
        self.keep_alive = keep  # what the two addresses point into

    __call__: Callable[..., Any] = call_native_task

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise TypeError(f"{self.called} takes no keyword arguments, since access is given by position")
        graph = current()
        if graph is not None:
            return graph.record(self, args, {}, sys._getframe(1))
        self.run(args)
        return None

    def __repr__(self) -> str:
        return f"<ostinato native task {self.name!r}>"

    def run(self, args: tuple[Any, ...]) -> None:
        """Call the function now, in step 0."""
        self._check_count(args)
        passed: list[Any] = []
        for index, (value, kind) in enumerate(zip(args, self._given, strict=True)):
            refuse_placeholder(value, self.name)
            label = self.label(index)
            if isinstance(kind, type):
                passed.append(as_scalar(value, kind, label))
                continue
            array = as_ndarray(value)
            if array is None:
                raise TypeError(f"{label} must be an array, got {brief(value)}: {NO_TOKENS}")
            refusal = native_refusal(array)
            if refusal is not None:
                raise TypeError(f"{label}: {refusal}")
            if kind & WRITE and not array.flags.writeable:
                raise ValueError(f"{label} is written, but the array passed is read-only")
            passed.append(Use(value, array, kind))
        if self.stream is not None:
            passed.insert(self.stream.position, STREAM)
        code = call_c(self.name, self.address, self.user_address, passed)
        if code != 0:
            if self.kernel is not None:
                raise TaskError(f"kernel {self.name!r} failed: it {RAISED}")
            raise TaskError(f"native task {self.name!r} failed: it returned {code}")

    def bind(
        self, recorder: Recorder, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[NativeCall, tuple[Operand, ...]]:
        arguments, accesses = recorder.calls.bind(args, self._given, native=True) or self._bind_each(recorder, args)
        if self.stream is not None:
            arguments, _ = self.stream.with_stream(arguments, ())
        return NativeCall(self, arguments), accesses

    def _bind_each(self, recorder: Recorder, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Operand, ...]]:
        """Return what a call records, and its operands; raise if an argument is not what it must be."""
        self._check_count(args)
        values: list[Any] = []
        operands: list[Operand] = []
        for value, kind in zip(args, self._given, strict=True):
            if type(kind) is int:
                operand = recorder.native_operand(value, kind, self.label, len(values))
                operands.append(operand)
                values.append(operand)
            elif type(value) is kind and kind is float:
                values.append(value)
            else:
                values.append(self._scalar(recorder, value, kind, len(values)))
        return tuple(values), tuple(operands)

    def body_of(self, args: tuple[object, ...], kwargs: Mapping[str, object], known: dict[object, Any]) -> NativeCall:
        self._check_count(args)
        values = list(args)
        for index, (value, kind) in enumerate(zip(args, self._given, strict=True)):
            if isinstance(kind, type):
                if not (type(value) is float is kind):
                    values[index] = self._recorded_scalar(value, kind, index)
            elif not isinstance(value, Operand) or value.mode != kind:
                raise TypeError(
                    f"{self.label(index)} must be {ACCESS[kind]}, got {brief(value)} from the call recorded"
                )
            elif known.get(id(value)) is not value:
                self._check_memory(value, index)
                known[id(value)] = value
        if self.stream is not None:
            values.insert(self.stream.position, STREAM)
        return NativeCall(self, tuple(values))

    def plain_form(self) -> tuple[tuple[Any, ...], bool] | None:
        return None if self.stream is not None else (self._given, True)

    def formals(self) -> tuple[Formal, ...]:
        return make_formals([0 if isinstance(kind, type) else kind for kind in self._given], self.label)

    @property
    def source(self) -> Recordable:
        return self if self.kernel is None else self.kernel

    def label(self, index: int) -> str:
        """Return what messages call the argument at an index."""
        return f"argument {index + 1} of {self.called}"

    def _scalar(self, recorder: Recorder, value: object, kind: Any, index: int) -> object:
        if isinstance(value, Param | Step):
            if isinstance(value, Param):
                value = recorder.own_param(value, self.label, index)
            check_default(value, kind, self.label(index))
            return value
        return as_scalar(value, kind, self.label(index))

    def _check_memory(self, operand: Operand, index: int) -> None:
        """Raise unless C code can make sense of it."""
        if not operand.arrays:
            raise TypeError(f"{self.label(index)} must be an array, got a token")
        refusal = native_refusal(operand.arrays[0])
        if refusal is not None:
            raise TypeError(f"{self.label(index)}: {refusal}")

    def _recorded_scalar(self, value: object, kind: Any, index: int) -> object:
        if isinstance(value, Param | Step):
            check_default(value, kind, self.label(index))
            return value
        return exact_scalar(value, kind, self.label(index))

    def _check_count(self, args: tuple[Any, ...]) -> None:
        if len(args) != len(self._given):
            if self.stream is not None:
                self.stream.refuse_given(self.name, args, {})
            raise TypeError(f"{self.called} takes {len(self._given)} arguments by its access, {len(args)} were given")


def native(fn: object, access: Sequence[Any], *, name: str | None = None, user: object = None) -> NativeTask:
    """Make a task of a C function, whose signature is in ``ostinato.h``: ``int32_t f(const ost_call *call)``.

    Parameters
    ----------
    fn
        A function pointer of ctypes or cffi, a Numba ``CFunc``, a ``scipy.LowLevelCallable``, a capsule, or an
        address. It is kept alive; a bare address must stay valid.
    access
        One entry per argument: `Read`, `Write` or `ReadWrite` for an array, `float` or `int` for a scalar. An entry
        `Stream` stands for no argument: there the function gets the handle of the device's stream, as ``i64``.
    name
        The name in messages and traces; by default the function's, where it has one.
    user
        What the function gets as ``call->user``: an address, or a buffer, which is kept alive. By default the user
        data of a ``LowLevelCallable``, or the context of a capsule.

    Returns
    -------
    NativeTask
        Called outside a capture it runs at once, without the global interpreter lock, and raises `TaskError` if it
        does not return 0. Called inside one, it is recorded.
    """
    if isinstance(access, str | Access) or not isinstance(access, Sequence):
        raise TypeError(f"access must be a tuple with one entry per argument, as in (ost.Read, float), got {access!r}")
    entries = tuple(access)
    pointer = function_address(fn)
    given, keep = user_address(user)
    title = name or pointer.name or f"native_{pointer.address:x}"
    return NativeTask(pointer.address, entries, title, given or pointer.user, (fn, pointer.keep, keep))


def _kind(entry: object, index: int) -> Any:
    if isinstance(entry, Access):
        return entry.mode
    if entry is float or entry is int:
        return entry
    if is_stream(entry):
        return int
    raise TypeError(
        f"entry {index + 1} of access is {entry!r}; an array is ost.Read, ost.Write or ost.ReadWrite, "
        "a scalar is float or int, the stream of a device ost.Stream"
    )
