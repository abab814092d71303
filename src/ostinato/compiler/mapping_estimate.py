"""One step on processors and devices, quickly: when each op ends, and what is copied, for what runs where."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import inf, prod
from operator import sub
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ostinato.compiler.equivalence_sets import find_equivalence_sets
from ostinato.compiler.ir import HOST, Edges, FloatArray, IntArray
from ostinato.compiler.memories import Homes
from ostinato.graph.arrays import READ, WRITE
from ostinato.graph.body import PythonCall

if TYPE_CHECKING:
    from ostinato.compiler.target import DeviceModel
    from ostinato.devices.device import Device
    from ostinato.graph.op import Op

_ROUNDS = 2  # Steps: the second begins with arrays where the first left them, as all later ones do.


class MappingEstimate(NamedTuple):
    """A step."""

    device: IntArray  # By op, where it runs: `HOST`, or the index of a device.
    seconds: float  # What the step takes, copies included.
    copies: FloatArray
    """By op, seconds of the copies that it takes: of what it reads there, and of what the host reads of its results."""


class _Uses(NamedTuple):
    """The units that an op uses, as often as it does."""

    needed: list[int]
    written: list[int]


class MappingEstimator:
    """Runs a step of a graph on a quick model: each device does one thing after the other, each CPU too.

    Arrays are copied when they are read where they are not; what is copied once a run only, before its first step or
    after its last, does not count. For rings stand the arrays that they are in step 0.

    `ops`, `edges`: the ops of a flat graph, and what depends on what.
    `seconds`: by op, what it takes on a CPU.
    `there`: by device, what each op takes there, NaN where it cannot run.
    `devices`, `copying`: the devices, and what copies to each take.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        edges: Edges,
        seconds: FloatArray,
        there: Mapping[int, FloatArray],
        devices: Sequence[Device],
        copying: Sequence[DeviceModel],
        cpus: int,
    ) -> None:
        self._seconds, self._there = seconds.tolist(), {memory: each.tolist() for memory, each in there.items()}
        self._copying, self._cpus, self._devices = copying, cpus, len(devices)
        self._before: list[list[int]] = [[] for _ in ops]
        inside = edges.distance == 0
        for src, dst in zip(edges.src[inside].tolist(), edges.dst[inside].tolist(), strict=True):
            self._before[dst].append(src)
        locks = getattr(sys, "_is_gil_enabled", lambda: True)()  # free-threaded builds have no lock
        self._alone = [locks and isinstance(op.body, PythonCall) and not op.body.releases_gil for op in ops]
        self._find_uses(ops, Homes(devices))

    def run(self, device: IntArray, choices: Mapping[int, Sequence[int]] | None = None) -> MappingEstimate:
        """Return a step in which ops run where `device` says; those that have choices, where they end first."""
        chosen: list[int] = device.tolist()
        choices = choices or {}
        valid = [{home} for home in self._homes]
        for _ in range(_ROUNDS):
            estimate = self._step(chosen, valid, choices)
        return estimate

    def _step(self, chosen: list[int], valid: list[set[int]], choices: Mapping[int, Sequence[int]]) -> MappingEstimate:
        free, gil = [0.0] * self._cpus, 0.0
        busy = [0.0] * self._devices
        end, copies = [0.0] * len(chosen), [0.0] * len(chosen)
        for op, (reads, writes) in enumerate(self._uses):
            ready = 0.0
            for src in self._before[op]:
                if end[src] > ready:
                    ready = end[src]
            finish, where, missing = inf, HOST, reads
            for memory in choices.get(op) or (chosen[op],):
                away = [unit for unit in reads if memory not in valid[unit]]
                at = ready + self._copy_seconds(away, memory, valid) if away else ready
                if memory == HOST:
                    begin = max(at, min(free), gil if self._alone[op] else 0.0)
                    done = begin + self._seconds[op]
                else:
                    done = max(at, busy[memory]) + self._there[memory][op]
                if done < finish:
                    finish, where, missing = done, memory, away
            chosen[op], end[op] = where, finish
            if where != HOST:
                busy[where] = finish
            else:
                free[free.index(min(free))] = finish
                gil = finish if self._alone[op] else gil
            if missing:
                self._move(op, missing, where, valid, copies)
            for unit in writes:
                valid[unit] = {where}
                self._writer[unit] = op
        return MappingEstimate(np.array(chosen, np.int32), max(end, default=0.0), np.array(copies))

    def _copy_seconds(self, units: Sequence[int], where: int, valid: Sequence[set[int]]) -> float:
        amounts: dict[int, int] = {}
        for unit in units:
            source = min(valid[unit])
            amounts[source] = amounts.get(source, 0) + self._nbytes[unit]
        return sum(self._copy(source, where, nbytes) for source, nbytes in amounts.items())

    def _copy(self, source: int, target: int, nbytes: int) -> float:
        taken = 0.0
        if source != HOST:
            taken += self._copying[source].copy(nbytes, into=False)
        if target != HOST:
            taken += self._copying[target].copy(nbytes, into=True)
        return taken

    def _move(self, op: int, units: Sequence[int], where: int, valid: list[set[int]], copies: list[float]) -> None:
        """Have what an op reads, and is not yet there, where it runs."""
        amounts: dict[tuple[int, int], int] = {}
        for unit in units:
            if where in valid[unit]:  # by now
                continue
            source = min(valid[unit])
            payer = self._writer.get(unit, op) if where == HOST else op  # who took it away
            amounts[source, payer] = amounts.get((source, payer), 0) + self._nbytes[unit]
            valid[unit].add(where)
        for (source, payer), nbytes in amounts.items():
            copies[payer] += self._copy(source, where, nbytes)

    def _find_uses(self, ops: Sequence[Op], homes: Homes) -> None:
        self._writer: dict[int, int] = {}
        views, modes, of, home = [], [], [], []
        for index, op in enumerate(ops):
            for operand in op.operands:
                if not operand.arrays or operand.arrays[0].dtype.hasobject:
                    continue
                ring = operand.ring
                views.append(operand.arrays[0] if ring is None else ring.views[ring.offset % len(ring.views)])
                modes.append(operand.mode)
                of.append(index)
                home.append(homes.of(views[-1], op))
        found = find_equivalence_sets(views)
        self._nbytes = [sum([prod(map(sub, last, first)) for first, last in unit.boxes]) for unit in found.all]
        self._homes = [HOST] * len(found.all)
        self._uses: list[_Uses] = [_Uses([], []) for _ in ops]
        covered = found.covered.tolist()
        for view, (mode, user) in enumerate(zip(modes, of, strict=True)):
            for unit in found.touched[view]:
                self._homes[unit] = home[view]
                if mode & READ or not covered[view]:
                    self._uses[user].needed.append(unit)
                if mode & WRITE:
                    self._uses[user].written.append(unit)
