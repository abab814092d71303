"""How the core runs each kind of body, on the host and on streams of devices: one class for each, registered once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato._core import Kind
from ostinato.compiler.inserted import InstanceCopy
from ostinato.devices.transfers import plan_fill
from ostinato.graph import body as bodies
from ostinato.graph.access import STREAM
from ostinato.graph.arrays import Operand, used_bytes
from ostinato.graph.body import Arrive, Body, Copy, Fill, NativeCall, PythonCall
from ostinato.graph.messages import Message
from ostinato.graph.param import STEP, Param

if TYPE_CHECKING:
    from ostinato.compiler.lower.devices import DeviceTables
    from ostinato.compiler.lower.host_transfers import HostTransfer
    from ostinato.compiler.lower.tables import Tables
    from ostinato.compiler.summary import Summary
    from ostinato.devices.device import Device
    from ostinato.graph.op import Op


class Lowering:
    """How the core runs a body; this one for bodies that say it themselves, by `Body.perform`, on the host only."""

    kind_of_all = Kind.PYTHON  # The kind, where it is one for all bodies of a class.

    def kind(self, body: Any) -> Kind:
        """Return how lanes run an op with this body; all calls of one task are run alike."""
        return self.kind_of_all

    def holds_gil(self, body: Any, kind: Kind) -> bool:
        """Whether lanes that run it so hold Python's global interpreter lock."""
        return kind is Kind.PYTHON

    def add(self, tables: Tables, op: Op, body: Any) -> None:
        """Add what the op calls, and on which arrays, to the tables of a plan."""
        tables.add_python(op.index, body.perform, body.operands, ())

    def issue(self, tables: DeviceTables, op: Op, body: Any, device: Device) -> tuple[Any, ...]:
        """Return what the op puts on its stream of a device, in the form that the core takes."""
        raise NotImplementedError(f"{type(body).__name__} has no lowering for streams of devices")


_REGISTERED: dict[type[Body], Lowering] = {Body: Lowering()}
_Class = TypeVar("_Class", bound=type[Lowering])


def lowering(*bodies: type[Body]) -> Callable[[_Class], _Class]:
    """Register the lowering of one or more classes of bodies, and of those derived from them."""

    def register(cls: _Class) -> _Class:
        _REGISTERED.update(dict.fromkeys(bodies, cls()))
        return cls

    return register


def lowering_of(body: Body) -> Lowering:
    """Return the lowering of a body."""
    found = _REGISTERED.get(type(body))
    if found is None:
        found = next(_REGISTERED[base] for base in type(body).__mro__ if base in _REGISTERED)
        _REGISTERED[type(body)] = found
    return found


def kinds_of(summary: Summary) -> npt.NDArray[np.uint8]:
    """Return how the core runs each op."""
    return summary.by_call(lambda op: lowering_of(op.body).kind(op.body), np.uint8)


@lowering(NativeCall)
class _Native(Lowering):
    kind_of_all = Kind.NATIVE

    def add(self, tables: Tables, op: Op, body: NativeCall) -> None:
        tables.call(op.index, body.task.address, body.task.user_address)
        for value, kind in zip(body.args, body.task.kinds, strict=True):
            if type(value) is not Operand:
                tables.add_scalar(op.index, value, kind)
        tables.add_operands(op.index, op.operands)

    def issue(self, tables: DeviceTables, op: Op, body: NativeCall, device: Device) -> tuple[Any, ...]:
        self.add(tables, op, body)
        scalars = [value for value in body.args if not isinstance(value, Operand)]
        return "native", next((at for at, value in enumerate(scalars) if value is STREAM), -1)


@lowering(PythonCall)
class _Python(Lowering):
    def kind(self, body: PythonCall) -> Kind:
        return Kind.EXTERNAL if body.blocking else Kind.PYTHON

    def holds_gil(self, body: PythonCall, kind: Kind) -> bool:
        return not (body.releases_gil or kind is Kind.EXTERNAL)

    def add(self, tables: Tables, op: Op, body: PythonCall) -> None:
        number = tables.add_python(op.index, body.function, body.args, body.keywords)
        if body.blocking:
            tables.wait_outside(op.index, "blocking", number)

    def issue(self, tables: DeviceTables, op: Op, body: PythonCall, device: Device) -> tuple[Any, ...]:
        tables.add_python(op.index, device.in_turn(body.function), body.args, body.keywords)
        if body.launch_only and not any(arg is STEP for arg in body.args):
            positions = tuple(at for at, value in enumerate(body.args) if value is STREAM)
            return "captured", device.stream, positions
        return ("python",)


@lowering(bodies.Until)
class _Until(Lowering):
    kind_of_all = Kind.UNTIL

    def add(self, tables: Tables, op: Op, body: bodies.Until) -> None:
        from ostinato.compiler.lower.host_transfers import words  # here: most graphs do not stop by a flag

        bits = _telling_bits(body.flag.arrays[0].dtype)
        tables.call(op.index, _core.builtin_task("until"))
        tables.add_words([body.every, len(bits), *words(bits)])
        tables.add_operands(op.index, op.operands)


def _host_transfer(body: Copy | Fill) -> HostTransfer:
    from ostinato.compiler.lower.host_transfers import host_transfer  # here: most graphs neither copy nor fill

    return host_transfer(body)


@lowering(Copy, Fill)
class _Transfer(Lowering):
    def kind(self, body: Copy | Fill) -> Kind:
        return Kind.PYTHON if _host_transfer(body).native is None else Kind.NATIVE

    def add(self, tables: Tables, op: Op, body: Copy | Fill) -> None:
        how = _host_transfer(body)
        if isinstance(body, Fill) and isinstance(body.value, Param):
            tables.add_filled(body.value, body.target.arrays[0])
        if how.native is None:
            assert how.function is not None
            tables.add_python(op.index, how.function, how.args, ())
        else:
            tables.call(op.index, _core.builtin_task(how.native))
            tables.add_words(how.scalars)
            tables.add_operands(op.index, how.operands)

    def issue(self, tables: DeviceTables, op: Op, body: Copy | Fill, device: Device) -> tuple[Any, ...]:
        targets = [tables.array_of(body.target, phase) for phase in tables.phases_of(op)]
        if isinstance(body, Copy):
            sources = [tables.array_of(body.source, phase) for phase in tables.phases_of(op)]
            return "copy", [tables.plan_copy([pair], device) for pair in zip(sources, targets, strict=True)]
        tables.work_on(*targets)
        value = np.asarray(body.value).reshape(-1)[0]
        patterns = [plan_fill(target, value) for target in targets]
        assert all(each is not None for each in patterns)
        return "fill", patterns


@lowering(bodies.Join)
class _Nothing(Lowering):
    kind_of_all = Kind.NOTHING

    def add(self, tables: Tables, op: Op, body: Body) -> None:
        pass

    def issue(self, tables: DeviceTables, op: Op, body: Any, device: Device) -> tuple[Any, ...]:
        return ("nothing",)


@lowering(bodies.Inserted)
class _Inserted(_Nothing):
    kind_of_all = Kind.EXTERNAL


@lowering(InstanceCopy)
class _InstanceCopy(_Inserted):
    def issue(self, tables: DeviceTables, op: Op, body: InstanceCopy, device: Device) -> tuple[Any, ...]:
        phases = (body.pairs[phase % body.period] for phase in tables.phases_of(op))
        return "copy", [tables.plan_between_instances(pairs, device) for pairs in phases]


@lowering(bodies.Precondition)
class _Precondition(Lowering):
    kind_of_all = Kind.PRECONDITION
    name = "precondition"

    def add(self, tables: Tables, op: Op, body: Body) -> None:
        tables.add_condition(op.index, self.name)


@lowering(bodies.Postcondition)
class _Postcondition(_Precondition):
    kind_of_all = Kind.POSTCONDITION
    name = "postcondition"


class _External(Lowering):
    kind_of_all = Kind.EXTERNAL


@lowering(bodies.Await)
class _Await(_External):
    def add(self, tables: Tables, op: Op, body: bodies.Await) -> None:
        tables.wait_outside(op.index, "await", *tables.barrier(body.barrier))


@lowering(Arrive)
class _Arrive(_External):
    def holds_gil(self, body: Arrive, kind: Kind) -> bool:
        return body.value is not Arrive.NO_VALUE

    def add(self, tables: Tables, op: Op, body: Arrive) -> None:
        what = *tables.barrier(body.barrier), *tables.count(body.count), *tables.value(body.value)
        tables.wait_outside(op.index, "arrive", *what)


@lowering(bodies.Acquire)
class _Acquire(_External):
    def add(self, tables: Tables, op: Op, body: bodies.Acquire) -> None:
        holding = tables.holding(body.reservation)
        tables.wait_outside(op.index, "acquire", body.reservation._core, holding, body.exclusive)


@lowering(bodies.Release)
class _Release(_External):
    def add(self, tables: Tables, op: Op, body: bodies.Release) -> None:
        tables.wait_outside(op.index, "release", body.reservation._core, tables.holding(body.reservation))


@lowering(Message)
class _Message(_External):
    def add(self, tables: Tables, op: Op, body: Message) -> None:
        tables.wait_outside(op.index, "send" if body.sends else "recv", tables.channel(body))
        tables.add_operands(op.index, op.operands)


def _telling_bits(dtype: np.dtype[Any]) -> bytes:
    """The bits of which none is set in zero and any in another number: not the signs, and no padding."""
    zero = np.zeros(1, dtype)
    signs = (-zero).astype(dtype) if dtype.kind in "fc" else zero
    return bytes(np.where(used_bytes(dtype), ~signs.view(np.uint8), 0).astype(np.uint8))
