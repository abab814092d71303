"""A signature in files, for a process that can import its variants: its memory, and a pickle of the rest."""

from __future__ import annotations

import mmap
import os
import pickle
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from ostinato.checking.copies import Allocation, allocations
from ostinato.errors import describe_error
from ostinato.graph.arrays import Operand
from ostinato.graph.body import NativeCall, PythonCall
from ostinato.graph.kernel import Kernel
from ostinato.graph.op import Op
from ostinato.graph.param import Converted, Param
from ostinato.graph.recorder import Recordable
from ostinato.graph.task import PythonTask, Task
from ostinato.graph.variant import Variant
from ostinato.runtime.memory import extent_of
from ostinato.runtime.sequential import AsCaptured
from ostinato.tune.graphs.identity import importable, source_of
from ostinato.tune.graphs.workload import at_step_0
from ostinato.tune.worker.functions import found

if TYPE_CHECKING:
    from ostinato.graph.arrays import Array
    from ostinato.graph.context import CallSite
    from ostinato.tune.graphs.signature import Signature


_MOST_BYTES = 1 << 30
_PAGE = 4096


class Stale(Exception):
    """What was imported here is not what was sent."""


class Unsendable(Exception):
    """Why a signature cannot be given to another process."""


@dataclass(frozen=True)
class Received:
    """A signature in the worker: ops to compare on, the first of which is timed; variants, the default first."""

    ops: tuple[Op, ...]
    variants: tuple[Variant, ...]
    rtol: float


class Payload:
    """A signature that can be given to another process; raises `Unsendable` if that could not make the same of it."""

    def __init__(self, signature: Signature, rtol: float) -> None:
        self._variants = [_Implementation.of(variant) for variant in signature.variants]
        self._ops = [at_step_0(op) for op in signature.checked]
        self._rtol = rtol
        self._operands = list({id(operand): operand for op in self._ops for operand in op.operands}.values())
        for operand in self._operands:
            if operand.arrays and operand.arrays[0].dtype.hasobject:
                raise Unsendable("an array holds Python objects")
            if operand.arrays and not isinstance(operand.value, np.ndarray):
                raise Unsendable(f"an argument is an array of another library, a {type(operand.value).__name__}")
        self._originals = allocations(self._ops, AsCaptured(), whole=False)
        size = sum(original.high - original.low for original in self._originals)
        if size > _MOST_BYTES:
            raise Unsendable(f"its arrays take {size} bytes, more than are sent to another process")

    def write(self, directory: str) -> None:
        """Write it to files in a directory; raise `Unsendable` if an argument cannot be pickled."""
        begins: list[int] = []
        with open(os.path.join(directory, "memory"), "wb") as file:
            for original in self._originals:
                # Alike within a page, as copies are.
                file.seek(file.tell() + (original.low - file.tell()) % _PAGE)
                begins.append(file.tell())
                file.write(original.bytes)  # type: ignore[arg-type]
        with open(os.path.join(directory, "signature"), "wb") as file:
            try:
                _Pickler(file, self._operands, self._originals, begins).dump(
                    ([_Call.of(op) for op in self._ops], self._variants, self._rtol)
                )
            except Unsendable:
                raise
            except Exception as error:  # pickling runs code of the user's
                raise Unsendable(f"an argument cannot be pickled: {describe_error(error)}") from None


def receive(directory: str) -> Received:
    """Return the signature whose files are in a directory; raise `Stale` if a variant is not what was sent."""
    memory: Any = b""
    path = os.path.join(directory, "memory")
    if os.path.getsize(path):
        with open(path, "rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    with open(os.path.join(directory, "signature"), "rb") as file:
        unpickler = _Unpickler(file)
        unpickler.memory = memory
        calls, implementations, rtol = unpickler.load()
    variants = tuple(each.variant() for each in implementations)
    return Received(tuple(call.op(variants[0]) for call in calls), variants, rtol)


@dataclass(frozen=True)
class _Call:
    """What an op calls its task with."""

    name: str
    call_site: str
    operands: tuple[Operand, ...]
    args: tuple[object, ...]
    keywords: tuple[str, ...]

    @staticmethod
    def of(op: Op) -> _Call:
        body = op.body
        if isinstance(body, PythonCall):
            return _Call(op.name, str(op.call_site), op.operands, *body.arguments())
        assert isinstance(body, NativeCall)
        args = tuple(
            Converted(arg, kind) if isinstance(arg, Param) else arg
            for arg, kind in zip(body.args, body.task.kinds, strict=True)
        )
        return _Call(op.name, str(op.call_site), op.operands, args, ())

    def op(self, default: Variant) -> Op:
        positional = len(self.args) - len(self.keywords)
        named = dict(zip(self.keywords, self.args[positional:], strict=True))
        body = default.task.body_of(self.args[:positional], named, {})
        return Op(cast("Any", None), 0, self.name, cast("CallSite", self.call_site), body, self.operands)


@dataclass(frozen=True)
class _Implementation:
    """A variant whose task, or the function of that, can be imported."""

    importable: str
    kind: str
    options: dict[str, Any]
    about: tuple[str, str | None, dict[str, Any], dict[str, Any]]
    source: str | None  # of what is in memory here

    @staticmethod
    def of(variant: Variant) -> _Implementation:
        name = importable(variant)
        if name is None:
            raise Unsendable(_why_not_importable(variant))
        task = variant.task
        kind = ""
        options: dict[str, Any] = {}
        if isinstance(task, PythonTask):
            kind, options = "task", {"releases_gil": task.releases_gil, "blocking": task.blocking}
            if not isinstance(task, Task):
                kind, options = "access", {"modes": task.modes, **options}
            elif task.access:
                options["access"] = task.access
        elif isinstance(task, Kernel):
            kind = "kernel"
        about = variant.name, variant.on, dict(variant.config), dict(variant.passed)
        return _Implementation(name, kind, {"name": task.name, **options}, about, source_of(variant))

    def variant(self) -> Variant:
        variant = Variant(self._task(), *self.about)
        if source_of(variant) != self.source:
            module = self.importable.partition(":")[0]
            raise Stale(f"{module} is not what another process imports: it, or its file, was changed since")
        return variant

    def _task(self) -> Recordable:
        task = found(self.importable)
        if isinstance(task, Recordable):
            return task
        makers: dict[str, Any] = {"task": Task, "access": PythonTask, "kernel": Kernel}
        more: dict[str, Any] = {"local_names": {}} if self.kind == "kernel" else {}
        made: Recordable = makers[self.kind](task, **self.options, **more)
        return made


def _why_not_importable(variant: Variant) -> str:
    function = getattr(variant.task, "function", None)
    module, qualified = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module == "__main__":
        return f"{variant.label} is defined in __main__"
    if "<locals>" in qualified:
        return f"{variant.label} is defined inside a function"
    return f"{variant.label} cannot be imported by a name"


_MEMORY = object()  # stands for the file with the arrays' bytes


class _Pickler(pickle.Pickler):
    """Pickles values; the bytes of operands' arrays are in a file, at `begins` of the allocations."""

    def __init__(
        self, file: BinaryIO, operands: Sequence[Operand], originals: Sequence[Allocation], begins: Sequence[int]
    ) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._arrays = {id(operand.value): operand.arrays[0] for operand in operands if operand.arrays}
        self._lows = [original.low for original in originals]
        self._begins = begins

    def persistent_id(self, value: Any) -> str | None:
        return "memory" if value is _MEMORY else None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Operand):
            return Operand, (value.value, value.value if value.arrays else None, None, value.mode)
        if isinstance(value, np.ndarray) and id(value) in self._arrays:
            return self._reduce_array(self._arrays[id(value)])
        if isinstance(value, type | FunctionType) and value.__module__ == "__main__":
            raise Unsendable(f"an argument needs {value.__qualname__}, which is defined in __main__")
        return NotImplemented

    def _reduce_array(self, array: Array) -> Any:
        if not array.size:
            return np.empty, (array.shape, array.dtype)
        index = bisect_right(self._lows, extent_of(array).low) - 1
        begin = self._begins[index] + array.ctypes.data - self._lows[index]
        return np.ndarray, (array.shape, array.dtype, _MEMORY, begin, array.strides)


class _Unpickler(pickle.Unpickler):
    memory: Any

    def persistent_load(self, about: object) -> Any:
        return self.memory
