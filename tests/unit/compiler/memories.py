"""Memories that are kept apart, and a plain interpreter of what the coherence pass makes of ops."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from ostinato.compiler.coherence.insert_copies import insert_copies
from ostinato.compiler.costs import estimate
from ostinato.compiler.dependences import infer_dependences
from ostinato.compiler.flatten import flatten
from ostinato.compiler.inserted import InstanceCopy, Note
from ostinato.compiler.ir import HOST, Edges, Target
from ostinato.compiler.memories import Homes
from ostinato.graph.arrays import READ, WRITE, Operand
from ostinato.graph.body import Copy, Fill, PythonCall
from ostinato.graph.graph import Graph
from ostinato.graph.op import Op

Array = np.ndarray[Any, Any]
Call = tuple[int, int]
"""An op, and a step."""

DEVICES: Any = tuple(SimpleNamespace(name=f"fake:{i}", kind="fake") for i in range(3))


class Bench:
    """A graph whose ops run where the test says, on arrays that are where it says.

    Parameters
    ----------
    graph
        The graph.
    where
        By op, `HOST` or a device.
    homes
        Arrays in the memory of devices, and of which.
    """

    def __init__(self, graph: Graph, where: Sequence[int], homes: Iterable[tuple[Array, int]] = ()) -> None:
        self.ranges = [(*bounds(array), DEVICES[device].name) for array, device in homes]
        flat = flatten(graph)
        self.ops: tuple[Op, ...] = tuple(flat.ops)
        step = infer_dependences(flat)
        self.edges, self.ordering = step.edges, step.ordering
        self.where = np.array(where, np.int32)
        known = Homes(DEVICES, self.name_of)
        given = replace(step, costs=estimate(self.ops), devices=DEVICES, device=self.where)
        self.found = insert_copies(given, Target(1, 1, find_devices=lambda: DEVICES), known)
        self.coherence = self.found.coherence
        self.homes = known

    def device_of(self, index: int) -> int:
        return int(self.found.device[index])

    def name_of(self, array: Array) -> str:
        low = bounds(array)[0]
        return next((name for begin, end, name in self.ranges if begin <= low < end), "host")

    def home_of(self, array: Array) -> int:
        return self.homes.of(array, self.ops[0])

    @property
    def added(self) -> list[Op]:
        return [op for op in self.found.nodes if isinstance(op.body, InstanceCopy | Note)]

    @property
    def copies(self) -> list[tuple[str, str, int]]:
        """What is copied for which op, where to, how many bytes, in the order of the ops."""
        return [
            (op.original.name, "host" if op.body.target == HOST else DEVICES[op.body.target].name, op.body.nbytes[0])
            for op in self.added
            if isinstance(op.body, InstanceCopy)
        ]


class Interpreter:
    """Runs the ops of a bench on memories of its own."""

    def __init__(self, bench: Bench, seed: int = 0) -> None:
        self.bench = bench
        self.found = bench.found
        self.random = random.Random(seed)
        self.instances = [
            np.empty(instance.high - instance.low, np.uint8) for instance in self.bench.coherence.instances
        ]
        self.step = 0
        self.copied = 0
        self.flags: list[bool] = []

    def at(self, array: Array, memories: Sequence[int]) -> Array:
        """Return the memory that an array of an op stands for, having checked that it is where the op can get it."""
        if not array.size:
            return array
        low, high = bounds(array)
        for instance, bytes_of in zip(self.bench.coherence.instances, self.instances, strict=True):
            if instance.base <= low and high <= instance.base + instance.high - instance.low:
                assert instance.memory in memories
                offset = array.__array_interface__["data"][0] - instance.base
                return np.ndarray(array.shape, array.dtype, bytes_of, offset, array.strides)
        assert self.bench.home_of(array) in memories
        return array

    def run(self, steps: int, failing: frozenset[Call] = frozenset()) -> set[Call]:
        """Run some steps, ops in any order that the edges leave open; return what was skipped or has failed."""
        for bytes_of in self.instances:
            bytes_of[:] = self.random.randrange(256)
        self.flags = [False] * len(self.bench.coherence.write_backs)
        begin = self.step
        poisoned: set[Call] = set()
        into = incoming(self.found.edges, len(self.found.nodes))
        for op, step in self._any_order(steps):
            before = ((src, step - distance) for src, distance in into[op])
            if any(instance in poisoned for instance in before) or (op, step) in failing:
                poisoned.add((op, step))
                continue
            self._act(op, step, step - begin)
        for back in self.bench.coherence.write_backs:
            assert back.device in (back.source, back.target)
            if self.flags[back.flag]:
                for source, target in back.pairs:
                    np.copyto(self.at(target, (back.target,)), self.at(source, (back.source,)))
        self.step += steps
        return poisoned

    def _any_order(self, steps: int) -> Iterable[Call]:
        every = [(op, self.step + r) for r in range(steps) for op in range(len(self.found.nodes))]
        into = incoming(self.found.ordering, len(self.found.nodes))
        missing = {
            (op, step): {(src, step - distance) for src, distance in into[op] if step - distance >= self.step}
            for op, step in every
        }
        after: dict[Call, list[Call]] = {instance: [] for instance in every}
        for instance, sources in missing.items():
            for source in sources:
                after[source].append(instance)
        ready = [instance for instance in every if not missing[instance]]
        while ready:
            # Now the latest that is ready, now the earliest, now any: far from program order.
            place = self.random.choice((0, len(ready) - 1, self.random.randrange(len(ready))))
            instance = ready.pop(place)
            yield instance
            for other in after[instance]:
                missing[other].discard(instance)
                if not missing[other]:
                    ready.append(other)
        assert not any(missing.values())

    def _act(self, index: int, step: int, since: int) -> None:
        op, body = self.found.nodes[index], self.found.nodes[index].body
        device = self.bench.device_of(index)
        if index in self.bench.coherence.activity:
            first, later = self.bench.coherence.activity[index]
            period = len(later)
            acts = first[(step - since) % period, since] if since < first.shape[1] else later[step % period]
            if not acts:
                return
        if isinstance(body, InstanceCopy):
            for source, target in body.pairs[step % body.period]:
                assert device in (body.source, body.target)
                np.copyto(self.at(target, (body.target,)), self.at(source, (body.source,)))
                self.copied += source.nbytes
        elif not isinstance(body, Note):
            memories = (device, HOST) if isinstance(body, Copy | Fill) else (device,)
            call(op, step, lambda array: self.at(array, memories))
        for table, value in ((self.bench.coherence.clears, False), (self.bench.coherence.sets, True)):
            if index in table:
                for flag in table[index][step % len(table[index])]:
                    self.flags[flag] = value


def call(op: Op, step: int, at: Callable[[Array], Array]) -> None:
    """Run an op of a test: what it writes depends on all that it reads, on the step, and on which op it is."""
    body = op.body
    if isinstance(body, Copy):
        np.copyto(at(element(body.target, step)), at(element(body.source, step)).copy())
        return
    if isinstance(body, Fill):
        at(element(body.target, step))[...] = body.value
        return
    assert isinstance(body, PythonCall)
    arrays = [at(element(operand, step)) for operand in op.operands]
    mixed = 7 * step + 31 * sum(map(ord, op.name))
    for operand, array in zip(op.operands, arrays, strict=True):
        if operand.mode & READ:
            weights = np.arange(1, array.size + 1, dtype=np.int64).reshape(array.shape)
            mixed = (mixed * 3 + int((array.astype(np.int64) * weights).sum())) % 65521
    for k, (operand, array) in enumerate(zip(op.operands, arrays, strict=True)):
        if operand.mode & WRITE:
            array[...] = (np.arange(array.size).reshape(array.shape) + mixed + 17 * k) % 251


def element(operand: Operand, step: int) -> Array:
    arrays = operand.arrays
    return arrays[(step + (operand.ring.offset if operand.ring is not None else 0)) % len(arrays)]


def run_plainly(
    bench: Bench, begin: int, steps: int, at: Callable[[Array], Array], failing: frozenset[Call]
) -> set[Call]:
    """Run the ops one by one in program order, without those that fail and what comes after them."""
    poisoned: set[Call] = set()
    into = incoming(bench.edges, len(bench.ops))
    for step in range(begin, begin + steps):
        for op in bench.ops:
            before = ((src, step - distance) for src, distance in into[op.index])
            if (op.index, step) in failing or any(instance in poisoned for instance in before):
                poisoned.add((op.index, step))
            else:
                call(op, step, at)
    return poisoned


def least_bytes(bench: Bench, begin: int, steps: int) -> int:
    """How many bytes must move between memories in a run, each by itself and by way of the host."""
    valid: dict[int, set[int]] = {}
    moved = 0
    for step in range(begin, begin + steps):
        for op in bench.ops:
            device = int(bench.where[op.index])
            for wanted in (READ, WRITE):
                for operand in op.operands:
                    array = element(operand, step)
                    home = bench.home_of(array)
                    for address in addresses(array) if operand.mode & wanted else ():
                        memories = valid.setdefault(address, {home})
                        if wanted == WRITE:
                            valid[address] = {device} if device in (HOST, home) or home == HOST else {device, HOST}
                            moved += len(valid[address]) - 1
                        elif device not in memories:
                            moved += 1 if HOST in memories or device == HOST else 2
                            memories |= {device, HOST}
    return moved


def addresses(array: Array) -> Iterable[int]:
    start = array.__array_interface__["data"][0]
    for index in np.ndindex(array.shape):
        first = start + sum(i * stride for i, stride in zip(index, array.strides, strict=True))
        yield from range(first, first + array.itemsize)


def bounds(array: Array) -> tuple[int, int]:
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high)


def incoming(edges: Edges, ops: int) -> list[list[tuple[int, int]]]:
    found: list[list[tuple[int, int]]] = [[] for _ in range(ops)]
    for src, dst, distance in zip(*(row.tolist() for row in edges), strict=True):
        found[dst].append((src, distance))
    return found


def period_of(bench: Bench) -> int:
    return math.lcm(*{len(operand.arrays) for op in bench.ops for operand in op.operands if operand.arrays})
