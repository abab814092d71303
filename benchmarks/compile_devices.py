"""What it costs to compile what runs on devices, beside the same ops on CPUs; and to choose where variants run.

The devices are fake ones, whose drivers cost nothing. Counted is time of CPUs, of this process.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.support import fake_device as fake

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Row
from ostinato.compiler.costs import Costed, DeviceCosts, estimate
from ostinato.compiler.dependences import find_dependences
from ostinato.compiler.flatten import flatten
from ostinato.compiler.target import DeviceModel
from ostinato.compiler.variants import choose_device_variants
from ostinato.devices.array import empty
from ostinato.devices.device import Device
from ostinato.graph.variant import variants_of

UNIT, DEVICES = "us of CPU time/op", "with devices"
_ARRAYS = 100
_DEVICES = 2

Make = Callable[[int], Any]
Task = Callable[..., Any]


@ost.task
def _here(src: ost.Read, dst: ost.ReadWrite) -> None: ...


@ost.task
def _there(stream: ost.Stream, src: ost.Read, dst: ost.ReadWrite) -> None: ...


def _chain(graph: ost.Graph, task: Task, make: Make, n_ops: int) -> None:
    x, y = make(1), make(1)
    for _ in range(n_ops):
        graph.task(task, x, y)


def _stencil(graph: ost.Graph, task: Task, make: Make, n_ops: int) -> None:
    """Each op reads three rows of this step's array, and changes one of the next's."""
    ring = graph.ring(make(n_ops + 2), make(n_ops + 2))
    for row in range(n_ops):
        graph.task(task, ring[0][row : row + 3], ring[1][row + 1 : row + 2])


def _apart(graph: ost.Graph, task: Task, make: Make, n_ops: int) -> None:
    """Each op has an array of its own."""
    x = make(1)
    for _ in range(n_ops):
        graph.task(task, x, make(1))


def _in_turn(graph: ost.Graph, task: Task, make: Make, n_ops: int) -> None:
    """What one op leaves there the next but so many reads here."""
    arrays = [make(1) for _ in range(_ARRAYS + 1)]
    for op in range(n_ops):
        place = op % _ARRAYS
        graph.task(_here if op // _ARRAYS % 2 else task, arrays[place], arrays[place + 1])


def _several(graph: ost.Graph, task: Task, make: Make, n_ops: int) -> None:
    """Each op needs what another device has written."""
    arrays = [make(1) for _ in range(_ARRAYS + 1)]
    for op in range(n_ops):
        place = op % _ARRAYS
        on = None if task is _here else f"fake:{op % _DEVICES}"
        graph.task(task, arrays[place], arrays[place + 1], on=on)


_CASES: dict[str, tuple[Callable[[ost.Graph, Task, Make, int], None], bool]] = {
    "chain, arrays of the device": (_chain, True),
    "stencil over a ring, arrays of the device": (_stencil, True),
    "stencil over a ring, host arrays": (_stencil, False),
    "an array each, of the device": (_apart, True),
    "a host array each": (_apart, False),
    "host and device in turn, host arrays": (_in_turn, False),
    "two devices in turn, host arrays": (_several, False),
}


def run(context: Context) -> None:
    """Time compiling, with devices and without."""
    for n_ops in (10**3, 10**4) if context.quick else (10**3, 10**4, 3 * 10**4):
        with fake.install(count=_DEVICES) as devices, ost.Machine(cpus=2) as machine:
            made: dict[Task, Make] = {
                _here: lambda rows: np.zeros((rows, 8)),
                _there: lambda rows, device=devices[0]: empty(device, (rows, 8)),  # type: ignore[misc]
            }
            for name, (record, there) in _CASES.items():
                for contestant, task in (("on CPUs", _here), (DEVICES, _there)):
                    samples = []
                    for _ in range(1 if n_ops > 10**4 else 3):
                        graph = ost.Graph()
                        record(graph, task, made[task if there else _here], n_ops)
                        samples.append(_seconds(lambda graph=graph: graph.compile(machine).close()) * 1e6 / n_ops)
                    context.rows.append(Row("compile", f"{name}, {n_ops:,} ops", contestant, UNIT, tuple(samples)))
            context.rows.append(
                Row("compile", f"choosing variants, {n_ops:,} ops", DEVICES, UNIT, (_choosing(devices, n_ops),))
            )


def _choosing(devices: Sequence[Device], n_ops: int) -> float:
    """Return what it takes to choose where variants run, of which most are faster on a device."""

    @ost.task
    def anywhere(src: ost.Read, dst: ost.ReadWrite) -> None: ...

    @anywhere.variant(on="fake")
    def device_costs(src: ost.Read, dst: ost.ReadWrite, stream: ost.Stream) -> None: ...

    graph = ost.Graph()
    _in_turn(graph, anywhere, lambda rows: np.zeros((rows, 8)), n_ops)
    flat = flatten(graph)
    edges, costed = find_dependences(flat), _costed(flat.ops)
    return _seconds(lambda: choose_device_variants(costed, edges, devices, 2)) * 1e6 / n_ops


def _seconds(act: Callable[[], object]) -> float:
    gc.collect()
    begin = time.process_time()
    act()
    return time.process_time() - begin


def _costed(ops: tuple[Any, ...]) -> Costed:
    """Return costs by which variants pay on devices, for most ops."""
    costs = estimate(ops)
    costs.seconds[:], costs.source[:] = 30e-6, 1
    found = {index: each[-1] for index, op in enumerate(ops) if len(each := variants_of(op.body)) > 1}
    there = np.full(len(ops), np.nan)
    there[list(found)] = 10e-6
    known = DeviceCosts(
        there, np.zeros(len(ops)), found, dict.fromkeys(found, 0.0), dict.fromkeys(found, "given"), DeviceModel(), ()
    )
    return Costed(ops, costs._replace(sources=("estimated", "given")), lambda _: known)
