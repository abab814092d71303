"""Device work in a graph: where it runs, the copies it needs, what it waits for, and when it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ostinato.compiler.assign_devices import assigned
from ostinato.compiler.coherence.insert_copies import coherent
from ostinato.compiler.gate import gated
from ostinato.compiler.ir import Edges, FloatArray, IntArray, Kind, edges_of
from ostinato.compiler.lower.lowerings import kinds_of
from ostinato.compiler.streams.assign_streams import Streams, streams_of, with_joins
from ostinato.compiler.streams.fences import completed, completions_of
from ostinato.errors import GraphError
from ostinato.graph.body import NativeCall, PythonCall

if TYPE_CHECKING:
    from ostinato.compiler.coherence.insert_copies import Coherent
    from ostinato.compiler.costs import Costs
    from ostinato.compiler.streams.fences import Completion
    from ostinato.devices.device import Device
    from ostinato.graph.op import Op

__all__ = ["Staged", "staged"]

MOST_BETWEEN_STEPS = 4096
"""Where each step begins when the one before has ended, edges say so if that takes no more than so many."""

ISSUE = 1e-6
"""Seconds, to put work on a stream."""


@dataclass(frozen=True)
class Staged:
    """The ops of a graph that uses devices, with copies and completions; what a schedule does not change."""

    recorded: tuple[Op, ...]  # those of the flat graph, on the arrays that they were recorded with
    recorded_edges: Edges  # their dependences
    ops: tuple[Op, ...]
    edges: Edges
    ordering: Edges
    costs: Costs
    serial: bool
    devices: tuple[Device, ...]
    streams: Streams
    coherent: Coherent

    @property
    def device(self) -> IntArray:
        """By op, the device that it runs on: a place in `devices`; -1 for the CPU, and for completions."""
        found = np.full(len(self.ops), -1, np.int32)
        found[: len(self.coherent.ops)] = self.coherent.assignment.device
        return found

    @property
    def on_cpu(self) -> list[Op]:
        """The ops that CPUs run."""
        return [self.ops[index] for index in np.flatnonzero(self.device[: len(self.coherent.ops)] < 0)]

    def as_scheduled(self, costs: Costs) -> Costs:
        """Return costs in which device work takes what the device took, as records tell, as schedules have them."""
        return _shared_out(costs, self.ops, self.streams)

    @property
    def used(self) -> list[Device]:
        """The devices that ops run on."""
        return [self.devices[index] for index in np.unique(self.device[self.device >= 0])]

    def seconds_on_threads(self, seconds: FloatArray) -> FloatArray:
        """Return what ops take of threads' time: nothing, for completions."""
        taken = seconds.copy()
        taken[len(self.coherent.ops) :] = 0
        return taken

    @property
    def completions(self) -> list[tuple[int, Completion]]:
        """The completions among the ops, each with its index."""
        return list(completions_of(self.ops[len(self.coherent.ops) :]))

    @property
    def kinds(self) -> npt.NDArray[np.uint8]:
        """How the core runs each op. A task that keeps no stream's order has a thread wait until the device is done."""
        kinds = kinds_of(self.ops)
        kinds[self.device >= 0] = Kind.EXTERNAL
        n = len(self.coherent.ops)
        kinds[:n][self.streams.of[:n] >= 0] = Kind.DEVICE
        kinds[[index for index, completion in self.completions if not completion.waits]] = Kind.NOTHING
        return kinds


def staged(
    recorded: tuple[Op, ...],
    edges: Edges,
    ordering: Edges,
    serial: bool,
    costs: Costs,
    devices: tuple[Device, ...],
    cpus: int,
) -> Staged:
    """Return the ops of a flat graph that uses devices, with all that this takes.

    Raises
    ------
    GraphError
        An op cannot run where it is bound to, or on what it is given.
    """
    assignment = assigned(recorded, devices, cpus)
    for op in recorded:
        if assignment.device[op.index] < 0 and isinstance(op.body, PythonCall | NativeCall) and op.body.takes_stream:
            raise GraphError(
                f"{op.name!r} at {op.call_site} takes the stream of a device, so it cannot run on a CPU; a variant of "
                "it that takes none can"
            )
    found = coherent(recorded, edges, ordering, assignment, costs, devices)
    ops, ordering = found.ops, found.ordering
    device = found.assignment.device
    if serial:
        ordering, serial = _steps_apart(ordering, len(ops))
    ordering = gated(ops, ordering, device >= 0)
    in_order = np.array([op.body.keeps_stream_order for op in ops], np.bool_)
    outside = np.array([op.body.waits_outside for op in ops], np.bool_)
    device = with_joins(ops, ordering, np.where(in_order, device, -1).astype(np.int32))
    streams = streams_of(ops, ordering, device, outside, [each.device for each in found.write_backs])
    done = completed(ops, found.edges, ordering, streams.of, streams.device)
    return Staged(
        recorded,
        edges,
        done.ops,
        done.edges,
        done.ordering,
        _shared_out(_extended(found.costs, len(done.ops)), done.ops, streams._replace(of=done.stream)),
        serial,
        devices,
        streams._replace(of=done.stream),
        found,
    )


def _steps_apart(ordering: Edges, n: int) -> tuple[Edges, bool]:
    """Let each step begin when the one before has ended, by edges if these are not too many; else say so.

    Between work on one device, such an edge lets the device keep the order, and the host go on.
    """
    inside = ordering.distance == 0
    last = np.setdiff1d(np.arange(n, dtype=np.int32), ordering.src[inside])
    first = np.setdiff1d(np.arange(n, dtype=np.int32), ordering.dst[inside])
    if len(last) * len(first) > MOST_BETWEEN_STEPS:
        return ordering, True
    pairs = np.array(list(product(last, first)), np.int32).reshape(-1, 2).T
    src, dst, distance = (
        np.concatenate(both) for both in zip(ordering, (*pairs, np.ones(pairs.shape[1], np.int32)), strict=True)
    )
    return edges_of(n, src, dst, distance), False


def _extended(costs: Costs, ops: int) -> Costs:
    """Return costs with room for completions."""
    more = ops - len(costs.seconds)
    return costs._replace(
        seconds=np.append(costs.seconds, np.zeros(more)),
        spread=np.append(costs.spread, np.zeros(more)),
        source=np.append(costs.source, np.zeros(more, np.int32)),
    )


def _shared_out(costs: Costs, ops: Sequence[Op], streams: Streams) -> Costs:
    """Let device work take what the host takes to issue it, and completions what the device takes.

    Each takes what the device needs for the work of its stream since the completion before.
    """
    seconds, spread, source = costs.seconds.copy(), costs.spread.copy(), costs.source.copy()
    issued = streams.of >= 0
    told: dict[int, list[tuple[int, int]]] = {}  # by stream: the last op that a completion is for, and its index
    for index, completion in completions_of(ops):
        issued[index] = False
        seconds[index] = 0
        if completion.waits:
            told.setdefault(int(streams.of[index]), []).append((max(completion.of), index))
    for stream, found in told.items():
        found.sort()
        lasts, tells = np.array(found).T
        work = np.flatnonzero(issued & (streams.of == stream))
        told_by = tells[np.minimum(np.searchsorted(lasts, work), len(tells) - 1)]
        np.add.at(seconds, told_by, costs.seconds[work])
        np.maximum.at(spread, told_by, costs.spread[work])
        np.maximum.at(source, told_by, costs.source[work])
    seconds[issued], spread[issued], source[issued] = ISSUE, 0.0, 0
    return costs._replace(seconds=seconds, spread=spread, source=source)
