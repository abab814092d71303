"""What the passes of the compiler take and return: a `Step` of nodes, for a `Target`; at last an `Executable`.

A pass is a function from a `Step` to a `Step`. It returns a changed copy (`dataclasses.replace`) and leaves the one
that it was given as it is::

    def place(step: Step, target: Target) -> Step:
        ...
        return replace(step, placement=found)

A node is an `Op`: the recorded one where no pass has changed it, else a `Node` that some pass made of it, or added for
it. Nodes are numbered by `index`, their position in `Step.nodes`. What passes compute by node lies in flat arrays, in
that order, which the C++ loops read. What a node needs, its body says: see `ostinato.graph.body`.

Columns that no pass has filled yet are empty. ``print(step)`` shows those that are filled, and so do the files that
the environment variable OSTINATO_DUMP asks for: see `ostinato.compiler.dump`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato._core import Kind
from ostinato.compiler.summary import Summary, summarize
from ostinato.compiler.target import MachineModel
from ostinato.compiler.wording import duration
from ostinato.graph.op import Op
from ostinato.ranks.channels import NOTHING_IN_COMMON, Common

if TYPE_CHECKING:
    from ostinato.compiler.costs import Costs
    from ostinato.compiler.inserted import Fence
    from ostinato.compiler.memories import Instance
    from ostinato.devices.device import Device
    from ostinato.graph.arrays import Array, Operand
    from ostinato.graph.body import Body
    from ostinato.graph.param import Param
    from ostinato.graph.variant import Variant

IntArray: TypeAlias = npt.NDArray[np.int32]
FloatArray: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]
_NO_INTS, _NO_FLAGS = np.zeros(0, np.int32), np.zeros(0, np.bool_)
HOST = -1  # The memory of the host; that of a device is called by the device's index.
COMMON = MachineModel(cores=1)  # What is assumed of a machine that was not measured.


class Edges(NamedTuple):
    """Edges sorted by (dst, distance, src), each once: ``dst`` in step s comes after ``src`` in step s - distance."""

    src: IntArray
    dst: IntArray
    distance: IntArray

    @property
    def longest(self) -> int:
        """The largest distance; 0 without edges."""
        return int(self.distance.max(initial=0))

    def within_a_step(self) -> Edges:
        """Return those of distance 0."""
        inside = self.distance == 0
        return Edges(*(column[inside] for column in self))


def edges_of(ops: int, src: npt.ArrayLike, dst: npt.ArrayLike, distance: npt.ArrayLike) -> Edges:
    """Return the edges between `ops` ops, sorted and without duplicates."""
    arrays = (
        np.ascontiguousarray(src, np.int32),
        np.ascontiguousarray(dst, np.int32),
        np.ascontiguousarray(distance, np.int32),
    )
    return Edges(*_core.passes.sorted_unique(ops, arrays))


class Node(Op):
    """An op as passes made it of a recorded one: at another index, with another body, or on other arrays.

    It keeps the name, the call site and the binding of `op`, and what `op` says of what was recorded.

    `index`, `body`, `operands`, `recorded`: what differs; None: as of `op`. `recorded` is what it does by the task that
    was recorded.
    """

    __slots__ = ("_original", "recorded", "rtol", "variant")

    _original: Op | weakref.ref[Op]
    recorded: Body
    variant: Variant | None
    rtol: float

    def __init__(
        self,
        op: Op,
        index: int | None = None,
        body: Body | None = None,
        operands: tuple[Operand, ...] | None = None,
        recorded: Body | None = None,
    ) -> None:
        self.graph = op.graph
        self.index = op.index if index is None else index
        self.name = op.name
        self.call_site = op.call_site
        self.body = op.body if body is None else body
        self.operands = op.operands if operands is None else operands
        self.on = op.on
        self.priority = op.priority
        self._original = op.original
        self.recorded = op.recorded if recorded is None else recorded
        self.variant = op.variant
        self.rtol = op.rtol

    @classmethod
    def added(cls, op: Op, index: int, name: str, body: Body) -> Node:
        """Return a node that a pass adds for another op: it accesses nothing and is bound to nothing."""
        node = cls(op, index, body, (), body)
        node.name = name
        node.on = None
        return node.running(None, 0.0)

    def running(self, variant: Variant | None, rtol: float) -> Node:
        """Set the variant that this node runs, and return the node."""
        self.variant, self.rtol = variant, rtol
        return self

    def forgetting(self) -> Node:
        """Let this node keep neither its graph nor the recorded op alive, and return the node."""
        self.graph = None  # type: ignore[assignment]
        self._original = weakref.ref(self.original)
        return self

    @property
    def original(self) -> Op:
        """The op that was recorded; this node, once nobody else has that."""
        found = self._original() if isinstance(self._original, weakref.ref) else self._original
        return self if found is None else found


@dataclass(frozen=True, eq=False, repr=False)
class Target:
    """The machine to compile for.

    `threads`: how many threads may run lanes; ops that are bound to a processor may take more.
    `find_devices`: returns its devices. It is called only for graphs that may use any, since devices take long to find.
    """

    processors: int
    threads: int
    model: MachineModel = COMMON
    find_devices: Callable[[], tuple[Device, ...]] = tuple

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The devices of the machine."""
        return self.find_devices()


class Placement(NamedTuple):
    """Lanes of ops, and threads of lanes."""

    lane: IntArray = _NO_INTS  # By op.
    affinity: IntArray = _NO_INTS  # The thread that serves each lane first.
    pinned: Mask = _NO_FLAGS  # Lanes that no other thread may serve.
    step_seconds: float = 0.0  # What a step takes, by the model that the placements were compared with.


class Operations(NamedTuple):
    """What the core is to run: the nodes; and last, where steps are serial, the barrier between them."""

    ordering: Edges = Edges(_NO_INTS, _NO_INTS, _NO_INTS)  # All that orders them.
    kinds: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)  # How the core runs each.
    seconds: FloatArray = np.zeros(0)  # What each takes of a thread's time.
    gil_bound: Mask = _NO_FLAGS  # Which hold the GIL all the time.
    takes_gil: Mask = _NO_FLAGS  # These, and which take it for a while.
    thread_of: IntArray = _NO_INTS  # The thread that each is bound to, or -1.
    priority: IntArray = _NO_INTS
    outside: Mask = _NO_FLAGS  # Which wait for something outside.
    idle: Mask = _NO_FLAGS  # Which of these do nothing else.
    tells: Mask = _NO_FLAGS  # Ops that report to the outside that other ops are done.
    serial: bool = False  # Whether each step begins when the one before has ended.


class Waits(NamedTuple):
    """What ops wait for: op i for those from ``start[i]`` to ``start[i + 1]``, each of another lane."""

    start: npt.NDArray[np.int64] = np.zeros(1, np.int64)
    op: IntArray = _NO_INTS
    distance: IntArray = _NO_INTS  # How many steps before.
    published: Mask = _NO_FLAGS  # Ops that others wait for.


Phases: TypeAlias = tuple[tuple[int, ...], ...]
Activity: TypeAlias = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]
"""When a copy acts, `first` and `later`.

In the step that is number r of its run, from 0, and number s of its program, it acts if ``first[(s - r) % period, r]``;
where `first` has no such column, if ``later[s % period]``.
"""


class WriteBack(NamedTuple):
    """What is copied home at the end of a run if its flag is set."""

    flag: int
    device: int  # The device that copies.
    source: int  # The memory that it was written in.
    target: int  # Its home.
    pairs: tuple[tuple[Array, Array], ...]  # As of `InstanceCopy`.
    usual: bool  # Whether there is ever something to copy unless an op fails, or a run is cancelled.


class Coherence(NamedTuple):
    """What keeps memories coherent beside the nodes that were inserted."""

    instances: tuple[Instance, ...] = ()
    activity: Mapping[int, Activity] = MappingProxyType({})  # By node, for copies that are not made in every step.
    sets: Mapping[int, Phases] = MappingProxyType({})
    """By node, by step modulo its period: flags to set once it has run without failure."""
    clears: Mapping[int, Phases] = MappingProxyType({})  # By node, by step modulo its period: flags to clear then.
    write_backs: tuple[WriteBack, ...] = ()
    """By flag: a flag says that the home of some data is out of date, since it was written in another memory."""


WORK, INTO, OUT = range(3)
"""What a stream is for: kernels, fills and copies within the device; copies to it; copies from it."""


class Streams(NamedTuple):
    """Streams, and which nodes are in their order."""

    of: IntArray = _NO_INTS  # By node, its stream, or -1; for a fence, the stream that it waits for.
    device: IntArray = _NO_INTS  # By stream, its device: an index into those of the machine.
    purpose: IntArray = _NO_INTS  # By stream, what it is for: `WORK`, `INTO` or `OUT`.
    fences: Sequence[tuple[int, Fence]] = ()  # The fences among the nodes, each with its index.

    @property
    def issued(self) -> Mask:
        """By node, whether it puts work on its stream."""
        found: Mask = self.of >= 0
        found[[index for index, _ in self.fences]] = False
        return found

    def over(self, nodes: int) -> Streams:
        """Return the streams among so many nodes: those that were added are in none."""
        return self._replace(of=np.append(self.of, np.full(nodes - len(self.of), -1, np.int32)))


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """The nodes of one step with all that passes know of them."""

    nodes: tuple[Op, ...]
    edges: Edges  # Dependences: along these goes poison.
    ordering: Edges  # All that orders nodes: dependences, and edges that carry no poison.
    costs: Costs
    serial: bool = False  # Whether each step begins when the one before has ended, by a barrier between them.
    params: Mapping[str, Param] = field(default_factory=dict)
    before_devices: Step | None = None
    """This step before copies and fences were inserted; None where it uses no devices."""
    devices: tuple[Device, ...] = ()  # The devices of the machine, if nodes use any.
    device: IntArray = field(default_factory=lambda: _NO_INTS)
    """By node, the device that it runs on: an index into `devices`; `HOST` for the CPU, and for fences."""
    coherence: Coherence = field(default_factory=Coherence)
    streams: Streams = field(default_factory=Streams)
    operations: Operations = field(default_factory=Operations)
    placement: Placement = field(default_factory=Placement)
    order: IntArray = field(default_factory=lambda: _NO_INTS)
    """One order for all operations; a lane's order is its part of it."""
    waits: Waits = field(default_factory=Waits)
    common: Common = NOTHING_IN_COMMON
    """What must be the same on all ranks."""
    _summary: Summary | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self._summary is not None and self._summary.ops is not self.nodes:
            object.__setattr__(self, "_summary", None)  # it is of other nodes, and would keep their arrays alive

    @property
    def summary(self) -> Summary:
        """What passes ask of every node; read once, until a pass replaces the nodes."""
        found = self._summary
        if found is None:
            found = summarize(self.nodes)
            object.__setattr__(self, "_summary", found)
        return found

    @property
    def recorded(self) -> Step:
        """The step on the arrays that it was recorded with."""
        return self if self.before_devices is None else self.before_devices

    @property
    def uses_devices(self) -> bool:
        """Whether nodes run on devices, or use arrays of devices."""
        return self.before_devices is not None

    @property
    def used_devices(self) -> list[Device]:
        """The devices that nodes run on."""
        return [self.devices[each] for each in sorted({*self.device[self.device >= 0].tolist()})]

    def __str__(self) -> str:
        within, across = self.edges.within_a_step(), int((self.edges.distance > 0).sum())
        order_only = len(self.ordering.src) - len(self.edges.src)
        head = (
            f"{len(self.nodes)} nodes{', serial' * self.serial}; dependences: {len(within.src)} within a step, "
            f"{across} between steps; {order_only} edges that only order"
        )
        columns = [[name, *cells] for name, cells in self._columns() if any(cells)]
        widths = [max(map(len, column)) for column in columns]
        rows = (map(str.ljust, row, widths) for row in zip(*columns, strict=True))
        return "\n".join([head, *("  ".join(row).rstrip() for row in rows)])

    def _columns(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the name of each column and its cells, by node."""
        nodes, found, placement, waits = self.nodes, self.operations, self.placement, self.waits
        every = range(len(nodes))
        yield "node", [str(index) for index in every]
        yield "name", [node.name for node in nodes]
        yield "does", [type(node.body).__name__ for node in nodes]
        yield "variant", ["" if node.variant is None else node.variant.label for node in nodes]
        yield "cost", [duration(seconds) if seconds else "" for seconds in self.costs.seconds.tolist()]
        if len(found.kinds):
            yield "kind", [Kind(kind).name for kind in found.kinds[: len(nodes)].tolist()]
        if len(self.device):
            yield "device", ["" if device < 0 else self.devices[device].name for device in self.device.tolist()]
        if len(self.streams.of):
            yield "stream", ["" if stream < 0 else str(stream) for stream in self.streams.of.tolist()]
        if len(placement.lane):
            yield "lane", [str(lane) for lane in placement.lane[: len(nodes)].tolist()]
        if len(self.order):
            yield "order", [str(position) for position in np.argsort(self.order)[: len(nodes)].tolist()]
        first = np.searchsorted(self.ordering.dst, np.arange(len(nodes) + 1)).tolist()
        yield "after", [_listed(self.ordering.src, self.ordering.distance, *first[i : i + 2]) for i in every]
        if len(waits.start) > 1:
            first = waits.start.tolist()
            yield "waits for", [_listed(waits.op, waits.distance, *first[i : i + 2]) for i in every]
        yield "at", [str(node.call_site) for node in nodes]


def _listed(nodes: IntArray, distances: IntArray, begin: int, end: int) -> str:
    """Nodes, those of earlier steps with a minus sign and how many steps earlier."""
    pairs = zip(nodes[begin:end].tolist(), distances[begin:end].tolist(), strict=True)
    return " ".join(f"{node}-{distance}" if distance else f"{node}" for node, distance in pairs)


@dataclass(frozen=True, eq=False, repr=False)
class Executable:
    """A compiled step: what `pipeline.compile` returns. The runtime lowers it onto arrays and instantiates it."""

    step: Step
    target: Target
    core: _core.Schedule
    lane_ops: tuple[IntArray, ...]
    """By lane, in order; an operation of index ``len(step.nodes)`` is the barrier between steps."""
    preconditions: tuple[str, ...]
    postconditions: tuple[str, ...]
    schedule_seconds: float = 0.0
    """What it took to place and order the operations."""
    unrolled: int = 1
    """So many steps are one; the nodes are those of each in turn."""
    ring_period: int = 1
    """Of several steps as one: the number of the first is a multiple of it."""

    @property
    def slots(self) -> int:
        """How many operations the core has."""
        return len(self.step.operations.kinds)

    def __str__(self) -> str:
        lanes = (f"lane {lane}: {' '.join(map(str, ops.tolist()))}" for lane, ops in enumerate(self.lane_ops))
        return "\n".join([str(self.step), *lanes])

    def with_costs(self, costs: Costs, step_seconds: float | None = None) -> Executable:
        """Return the same schedule of nodes that take other times, and of a step that takes another time."""
        placement = self.step.placement
        if step_seconds is not None:
            placement = placement._replace(step_seconds=step_seconds)
        return replace(self, step=replace(self.step, costs=costs, placement=placement))

    def on_nodes_of(self, other: Executable) -> Executable:
        """Return the same schedule of the nodes of another executable of the same step."""
        new = other.step
        return replace(
            self,
            step=replace(self.step, nodes=new.nodes, before_devices=new.before_devices, coherence=new.coherence),
        )
