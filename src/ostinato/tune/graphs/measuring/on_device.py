"""One variant of an op, timed on a device: on arrays that are there already, until the device is done."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from ostinato.devices.array import DeviceArray, empty
from ostinato.devices.registry import address_of
from ostinato.errors import DeviceError, GraphError, TaskError
from ostinato.graph.body import NativeCall, PythonCall
from ostinato.graph.graph import Graph
from ostinato.graph.op import Op
from ostinato.graph.operand import Operand
from ostinato.graph.variant import CPU
from ostinato.runtime.memory import extent_of
from ostinato.runtime.process_trace import untraced
from ostinato.tune.graphs.measuring.problem import Unmeasurable
from ostinato.tune.graphs.measuring.subject import Failure, Subject, failure_of
from ostinato.tune.worker.forked import end_if_forked

if TYPE_CHECKING:
    from ostinato.devices.device import Device
    from ostinato.graph.arrays import Array
    from ostinato.graph.variant import Variant
    from ostinato.runtime.copies import StandIns
    from ostinato.runtime.machine import Machine
    from ostinato.runtime.program import Program
    from ostinato.tune.graphs.measuring.problem import Problem

__all__ = ["DeviceSubject", "subject_of"]


def subject_of(problem: Problem, variant: Variant, machine: Machine, device: Device | None) -> Subject:
    """Return what is timed of a variant: on a device where it is for its kind, or takes a stream; else on the CPU."""
    if device is None or not (variant.takes_stream or variant.on not in (None, CPU)):
        return Subject(problem, variant, machine)
    return DeviceSubject(problem, variant, machine, device)


class DeviceSubject(Subject):
    """A variant on copies of a problem's arguments in the memory of a device.

    It runs as it does in programs whose arrays are there already: nothing is copied between host and device while it is
    timed, and what it is to change or to give is copied before and after. What passes from the issue of the first call
    until the device is done with the last is a sample, of so many calls that the way to the device and back is a small
    part of it.

    Parameters
    ----------
    problem, variant, machine
        As of `Subject`.
    device
        One of those of the machine.

    Raises
    ------
    Unmeasurable
        As for `Subject`, or an argument is an array of Python objects, or the device has no room for copies.
    """

    __slots__ = ("_device", "_memory", "_stale")

    sample = 5e-3
    long = 50e-3

    def __init__(self, problem: Problem, variant: Variant, machine: Machine, device: Device) -> None:
        super().__init__(problem, variant, machine)
        if any(operand.arrays and operand.arrays[0].dtype.hasobject for operand in problem.op.operands):
            raise Unmeasurable("an array holds Python objects, which have no place in the memory of a device")
        self._device = device
        self._memory: _Memory | None = None
        self._stale = True  # what the device has is not what the problem's copies hold

    def once(self) -> None:
        super().once()
        assert self._memory is not None
        with _told():
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
        stand_ins = self._problem.stand_ins
        if self._memory is None or self._memory.stand_ins is not stand_ins:
            try:
                self._memory = _Memory(stand_ins, self._device)
            except DeviceError as error:  # which is no fault of the variant: arrays of a program may leave no room
                raise Unmeasurable(f"copies of its arguments cannot be made on {self._device.name}: {error}") from None
            self._stale = True
        if self._stale:
            with _told():
                self._memory.upload()
            self._stale = False

    def _new_program(self, count: int) -> Program:
        self._upload()
        assert self._memory is not None
        op, memory = self._problem.op, self._memory
        operands = {id(operand): memory.operand(operand) for operand in op.operands}
        body = copy.copy(self._body)
        assert isinstance(body, PythonCall | NativeCall)
        body.args = tuple(memory.operand(arg, operands) if isinstance(arg, Operand) else arg for arg in body.args)
        graph = Graph(infer=False)
        uses = tuple(operands[id(operand)] for operand in op.operands)
        graph._ops += [Op(graph, index, op.name, op.call_site, body, uses, self._device.name) for index in range(count)]
        try:
            with untraced():
                return graph.compile(self._machine, lanes=1, costs={})
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
def _told() -> Iterator[None]:
    """Have what a device fails at told as a variant's failure."""
    try:
        yield
    except DeviceError as error:
        raise failure_of(error) from None


class _Memory:
    """Memory of a device that stands for copies of a problem's arguments."""

    def __init__(self, stand_ins: StandIns, device: Device) -> None:
        self.stand_ins = stand_ins
        self._device = device
        self._blocks = []
        for block in stand_ins.memory.plain:
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

    def operand(self, operand: Operand, known: dict[int, Operand] | None = None) -> Operand:
        """Return what stands for an operand of the problem's op, or for one that a variant made of one."""
        if known is not None and id(operand) in known:
            return known[id(operand)]
        if not operand.arrays:
            return Operand(self.stand_ins.value(operand.value), None, None, operand.mode)
        array = self._array(self.stand_ins.substitute(operand.arrays[0]))
        return Operand(array, array.shadow, None, operand.mode)

    def _array(self, array: Array) -> DeviceArray:
        if not array.size:
            return empty(self._device, array.shape, array.dtype)
        address = address_of(array)
        low, there = next((low, there) for low, high, _, there in self._blocks if low <= address < high)
        return there.allocation.array(array.shape, array.dtype, address - low, array.strides)
