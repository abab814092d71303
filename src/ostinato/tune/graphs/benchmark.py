"""One variant of an op as a callable that is timed, on the host or on a device, and compared with the default."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ostinato import _core
from ostinato.compiler.costs import cost_as_given
from ostinato.compiler.flatten import replace_params
from ostinato.compiler.ir import Node
from ostinato.compiler.lower.lowerings import kinds_of
from ostinato.compiler.lower.tables import lower_nodes
from ostinato.compiler.summary import Summary, summarize
from ostinato.devices.array import empty
from ostinato.devices.registry import address_of
from ostinato.errors import DeviceError, GraphError, TaskError
from ostinato.graph.arrays import Operand
from ostinato.graph.body import Fill, NativeCall, PythonCall
from ostinato.graph.graph import Graph
from ostinato.graph.op import Op
from ostinato.graph.param import REQUIRED, Param, as_scalar
from ostinato.graph.variant import CPU
from ostinato.runtime.memory import extent_of
from ostinato.runtime.outcome import outcome
from ostinato.runtime.program import compile_graph
from ostinato.tune.graphs.workload import Unmeasurable, Workload, copy_object
from ostinato.tune.worker.channel import end_if_forked
from ostinato.tune.worker.functions import described
from ostinato.view.activity import unobserved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostinato.checking.copies import Replacements
    from ostinato.devices.device import Device
    from ostinato.graph.body import Body
    from ostinato.graph.variant import Variant
    from ostinato.runtime.machine import Machine
    from ostinato.runtime.program import Program
    from ostinato.tune.graphs.signature import Signature


_now = time.perf_counter

_IN_A_ROW = 16
"""Calls in a step of the program that is timed: what a step costs by itself is a part of what a quick task takes."""

_MOST_CALLS = 1 << 20
_TIMES = 3


class _AsItIs:
    """What stands for a variant where there are none: copies and fills."""

    name = label = ""

    def body(self, default: Body) -> Body:
        return default

    def refusal(self, default: Body) -> None:
        return None


def variants_in(signature: Signature) -> tuple[Variant, ...]:
    """Return the variants of a signature, or what stands for the op itself where it is no call of a task."""
    return signature.variants or (cast("Variant", _AsItIs()),)


class Failure(Exception):
    """What a task raised, in words; so that faults of the measuring are not taken for its own."""


class MemoryFailure(Failure, MemoryError):
    """The same, where there was too little memory."""


def failure_of(error: BaseException) -> Failure:
    """Return what is raised for what a task raised."""
    full = isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__
    return (MemoryFailure if full else Failure)(described(error))


class Benchmark:
    """One variant on a workload's arguments, timed as the tuner's workers time theirs.

    A call runs it on the calling thread, by the core, as in a program of one lane: many times if it is quick. Variants
    that are not called at the same time can share a workload. Raises `Unmeasurable` if the variant cannot take the
    arguments, or if a parameter has no default.
    """

    __slots__ = ("_body", "_calibrated", "_machine", "_program", "_replacements", "_steps", "_unroll", "_workload")

    sample = 100e-6
    """Seconds that it runs for a sample at least: what a replay costs by itself is less than a hundredth of it."""

    long = 1e-3
    """Seconds; a call that takes longer is a sample by itself."""

    def __init__(self, workload: Workload, variant: Variant, machine: Machine) -> None:
        op = workload.op
        refusal = variant.refusal(op.body)
        body = variant.body(op.body)
        if body is None:
            raise Unmeasurable(f"{variant.label} cannot take the arguments of the call at {op.call_site}: {refusal}")
        self._body = _without_parameters(op, body)
        self._workload = workload
        self._machine = machine
        self._program: Any = None
        self._replacements: Replacements | None = None  # those of the program
        self._calibrated = False
        self._unroll = self._steps = 1

    def __call__(self) -> Benchmark:
        """Run it as often as `calls_per_sample` says; raise `Failure` if the task fails."""
        if not self._calibrated:
            if self._calibrate() > self.long:
                return self  # it has just been run, and not for nothing
            if self._workload.changes:
                self._put_back()
        self._run(self._steps)
        return self

    @property
    def calls_per_sample(self) -> int:
        return self._steps * self._unroll

    @property
    def before_sample(self) -> object:
        return self._put_back if self._workload.changes else None

    def once(self) -> None:
        """Run it once, in step 0, on arguments as they were captured; arrays to overwrite hold a pattern before."""
        self._renew()
        program = self._new_program(1)
        try:
            self._replay(program, 1)
        finally:
            program.close()

    def close(self) -> None:
        """Let go of the program; calling it makes another."""
        if self._program is not None:
            self._program.close()
            self._program = self._replacements = None

    def _calibrate(self) -> float:
        """Find out how often it is called for one sample; return the seconds of one call."""
        self._renew()
        self._run(1)  # it may compile, and caches are cold
        once = self._seconds(1)
        if once < self.sample:
            try:
                self._find_count(once)
            except Failure:
                if not self._workload.changes:
                    raise
                # One call after the other need not be possible: it may take things from where there are few.
                self._unroll = self._steps = 1
                self.close()
        self._calibrated = True
        return once

    def _find_count(self, once: float) -> None:
        self._unroll = min(_IN_A_ROW, math.ceil(self.sample / max(once, 1e-9)))
        self.close()
        steps, seconds = 1, self._seconds(1)
        while seconds < self.sample / 2 and steps * self._unroll < _MOST_CALLS:
            steps *= 2
            seconds = self._seconds(steps)
        self._steps = max(1, math.ceil(steps * self.sample / seconds))
        self._seconds(self._steps)

    def _seconds(self, steps: int) -> float:
        """Return what steps take; the least of a few times, where they are short: something may come in between."""
        least = math.inf
        for _ in range(_TIMES):
            if self._workload.changes:
                self._put_back()
            self._renew_program()
            begin = _now()
            self._run(steps)
            least = min(least, _now() - begin)
            if least > self.long:
                break
        return least

    def _run(self, steps: int) -> None:
        self._renew_program()
        self._replay(self._program, steps)

    def _renew(self) -> None:
        self._workload.renew()

    def _put_back(self) -> None:
        self._workload.put_back()

    def _renew_program(self) -> None:
        """Make a program on the workload's present copies, unless there is one."""
        if self._program is None or self._replacements is not self._workload.replacements:
            self.close()
            self._program = self._new_program(self._unroll)
            self._replacements = self._workload.replacements

    def _new_program(self, count: int) -> Any:
        """Return a program of so many calls in a row."""
        nodes = (Node(self._workload.op, index, self._body, recorded=self._body) for index in range(count))
        summary = summarize(tuple(nodes))
        schedule = _in_a_row(summary)
        lowered = lower_nodes(summary, schedule, count, self._workload.replacements)
        return _core.Program(self._machine.workers.core, schedule, lowered.plan, "pipelined")

    def _replay(self, program: Any, steps: int) -> None:
        try:
            ended = program.replay(steps, 0, True, None, None, None, False)
        finally:
            end_if_forked()
        if type(ended) is int:
            return
        run = cast("_core.Run", ended)
        end = outcome(run, [self._workload.op] * self._unroll)
        run.forget()
        if isinstance(end, BaseException):
            raise end if isinstance(end, KeyboardInterrupt) else failure_of(end.__cause__ or end)


def _without_parameters(op: Op, body: Body) -> Body:
    """Return a body with the defaults of its parameters in their place."""
    if isinstance(body, Fill) and isinstance(body.value, Param):
        filling = Node(op, 0, body, recorded=body)
        return replace_params(filling, {body.value.name: _default_of(body.value, None)})
    if not isinstance(body, PythonCall | NativeCall) or not any(isinstance(arg, Param) for arg in body.args):
        return body
    kinds = body.task.kinds if isinstance(body, NativeCall) else (None,) * len(body.args)
    changed = copy.copy(body)
    changed.args = tuple(
        _default_of(arg, kind) if isinstance(arg, Param) else arg for arg, kind in zip(body.args, kinds, strict=True)
    )
    return changed


def _default_of(param: Param, kind: Any) -> object:
    value = param.value_in({})
    if value is REQUIRED:
        raise Unmeasurable(f"parameter {param.name!r} has no default to measure with")
    if isinstance(kind, type):
        return as_scalar(value, kind, f"parameter {param.name!r}")
    return copy_object(value, {}, param.name)


def _in_a_row(summary: Summary) -> _core.Schedule:
    """Return a schedule of one lane, in which nothing waits."""
    count = len(summary.ops)
    nothing = np.empty(0, np.int32)
    return _core.Schedule.build(
        lane_begin=np.array([0, count], np.int64),
        lane_ops=np.arange(count, dtype=np.int32),
        affinity=np.zeros(1, np.int32),
        pinned=np.zeros(1, np.uint8),
        kind=kinds_of(summary),
        wait_begin=np.zeros(count + 1, np.int64),
        wait_op=nothing,
        wait_distance=nothing,
        published=np.zeros(count, np.uint8),
        pred_begin=np.zeros(count + 1, np.int64),
        pred_op=nothing,
        pred_distance=nothing,
        periods=np.ones(1, np.int32),
        until_op=-1,
        until_every=1,
        largest_distance=1,
        n_posts=0,
        n_holdings=0,
    )


def benchmark_of(workload: Workload, variant: Variant, machine: Machine, device: Device | None) -> Benchmark:
    """Return what is timed of a variant: on a device where it is for its kind, or takes a stream; else on the CPU."""
    if device is None or not (variant.takes_stream or variant.on not in (None, CPU)):
        return Benchmark(workload, variant, machine)
    return DeviceBenchmark(workload, variant, machine, device)


class DeviceBenchmark(Benchmark):
    """A variant on copies of a workload's arguments in the memory of a device.

    Nothing is copied between host and device while it is timed. A sample lasts from the issue of the first call until
    the device is done with the last one; it has so many calls that the way to the device and back is a small part of
    it. Raises `Unmeasurable` as `Benchmark` does, for arrays of Python objects, and if the device is full.
    """

    __slots__ = ("_device", "_memory", "_stale")

    sample = 5e-3
    long = 50e-3

    def __init__(self, workload: Workload, variant: Variant, machine: Machine, device: Device) -> None:
        super().__init__(workload, variant, machine)
        if any(operand.arrays and operand.arrays[0].dtype.hasobject for operand in workload.op.operands):
            raise Unmeasurable("an array holds Python objects, which have no place in the memory of a device")
        self._device = device
        self._memory: _Memory | None = None
        self._stale = True  # what the device has is not what the workload's copies hold

    def once(self) -> None:
        super().once()
        assert self._memory is not None
        with _report_device_errors():
            self._memory.download()

    def close(self) -> None:
        super().close()
        self._memory = None

    def _renew(self) -> None:
        super()._renew()
        self._stale = True

    def _put_back(self) -> None:
        super()._put_back()
        self._stale = True
        if self._program is not None:
            self._renew_program()

    def _renew_program(self) -> None:
        super()._renew_program()
        self._upload()

    def _upload(self) -> None:
        replacements = self._workload.replacements
        if self._memory is None or self._memory.replacements is not replacements:
            try:
                self._memory = _Memory(replacements, self._device)
            except DeviceError as error:  # which is no fault of the variant: arrays of a program may leave no room
                raise Unmeasurable(f"copies of its arguments cannot be made on {self._device.name}: {error}") from None
            self._stale = True
        if self._stale:
            with _report_device_errors():
                self._memory.upload()
            self._stale = False

    def _new_program(self, count: int) -> Program:
        self._upload()
        assert self._memory is not None
        op, memory = self._workload.op, self._memory
        operands = {id(operand): memory.operand(operand) for operand in op.operands}
        body = copy.copy(self._body)
        assert isinstance(body, PythonCall | NativeCall)
        body.args = tuple(
            (operands.get(id(arg)) or memory.operand(arg)) if isinstance(arg, Operand) else arg for arg in body.args
        )
        graph = Graph(infer=False)
        uses = tuple(operands[id(operand)] for operand in op.operands)
        for _ in range(count):
            graph.add_op(lambda _: (body, uses), op.name, on=self._device.name)
        try:
            with unobserved():
                return compile_graph(graph, self._machine, lanes=1, adapt=False, costing=cost_as_given({}))
        except GraphError as error:
            raise Failure(str(error)) from None

    def _replay(self, program: Program, steps: int) -> None:
        try:
            program.replay(steps)
        except TaskError as error:
            raise failure_of(error.__cause__ or error) from None
        finally:
            end_if_forked()


@contextmanager
def _report_device_errors() -> Iterator[None]:
    """Raise failures of a device as those of a variant."""
    try:
        yield
    except DeviceError as error:
        raise failure_of(error) from None


class _Memory:
    """Memory of a device that stands for copies of a workload's arguments."""

    def __init__(self, replacements: Replacements, device: Device) -> None:
        self.replacements = replacements
        self._device = device
        self._blocks = []
        for block in replacements.memory.plain:
            low, high = extent_of(block)
            self._blocks.append((low, high, block, empty(device, high - low, np.uint8)))

    def upload(self) -> None:
        """Copy all to the device."""
        for _, _, block, there in self._blocks:
            there.set(block)

    def download(self) -> None:
        """Copy all back."""
        for _, _, block, there in self._blocks:
            block[...] = there.get()

    def operand(self, operand: Operand) -> Operand:
        """Return what stands for an operand of the workload's op, or for one that a variant made of one."""
        if not operand.arrays:
            return Operand(self.replacements.value(operand.value), None, None, operand.mode)
        array = self.replacements.substitute(operand.arrays[0])
        if array.size:
            address = address_of(array)
            low, block = next((low, block) for low, high, _, block in self._blocks if low <= address < high)
            there = block.allocation.array(array.shape, array.dtype, address - low, array.strides)
        else:
            there = empty(self._device, array.shape, array.dtype)
        return Operand(there, there.proxy, None, operand.mode)


_MOST_KEPT = 256 << 20
"""Bytes of the default's outputs that are kept; the others are computed again."""


class Incomparable(Exception):
    """Why there is nothing to compare with."""


class Comparison:
    """Calls variants once on each of several ops, and compares the results with those of the default.

    `device` is where variants for devices run; `rtol` is by what part floating-point numbers may differ.
    """

    def __init__(
        self,
        workload: Workload,
        others: Sequence[Op],
        default: Variant,
        rtol: float,
        machine: Machine,
        device: Device | None = None,
    ) -> None:
        self._workload = workload
        self._others = others
        self._default = default
        self._rtol = rtol
        self._machine = machine
        self._device = device
        self._wanted: dict[int, list[object]] = {}
        self._kept = 0
        self._unsteady: dict[int, str] = {}  # in what the default differs from itself
        self._failed: set[int] = set()  # of the other ops, those on which the default fails
        self._times: dict[Variant, int] = {}  # that each was looked at

    def difference(self, variant: Variant) -> str:
        """Say in what a variant differs from the default, and where; an empty text if in nothing.

        The first time it looks at all ops, then at the first op, and ever more seldom: a variant that was right mostly
        stays right. It skips ops that never run the variant, and ops on which the default fails. Raises `Incomparable`
        if the default does not do the same twice, and `Failure` if the variant fails.
        """
        times = self._times[variant] = self._times.get(variant, -1) + 1
        if times & (times - 1):  # no power of two
            return ""
        found = self._difference(variant, self._workload, 0)
        for place, op in enumerate(self._others, 1) if not (times or found) else ():
            if place in self._failed or (variant is not self._default and variant.body(op.body) is None):
                continue
            found = self._difference(variant, Workload(op), place)
            if found:
                found = f"{found}, in the call at {op.call_site}"
                break
        if found:
            self._workload.renew()  # it may have spoilt what others read
        return found

    def _difference(self, variant: Variant, workload: Workload, place: int) -> str:
        wanted = self._wanted.get(place)
        if wanted is None:
            try:
                self._call(self._default, workload)
            except Failure:
                if not place:
                    raise
                self._failed.add(place)
                return ""
            wanted = workload.outputs()
            size = sum(output.nbytes for output in wanted if isinstance(output, np.ndarray))
            if self._kept + size <= _MOST_KEPT:
                self._kept += size
                self._wanted[place] = wanted
        if place not in self._unsteady:
            self._call(self._default, workload)
            self._unsteady[place] = workload.difference(wanted, self._rtol)
        if variant is self._default:
            return ""
        if self._unsteady[place]:
            raise Incomparable(
                f"there is nothing to compare with: called twice, the default does not do the same: "
                f"{self._unsteady[place]}"
            )
        self._call(variant, workload)
        return workload.difference(wanted, self._rtol)

    def _call(self, variant: Variant, workload: Workload) -> None:
        benchmark_of(workload, variant, self._machine, self._device).once()
