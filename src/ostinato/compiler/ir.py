"""What the passes of the compiler take and return: a `Step` of nodes, for a `Target`; at last an `Executable`.

A pass is a function from a `Step` to a `Step`. It returns a changed copy (`dataclasses.replace`) and leaves the one
that it was given as it is::

    def place(step: Step, target: Target) -> Step:
        ...
        return replace(step, placement=found)

A node is an `Op`: the recorded one where no pass has changed it, else a `Node` that some pass made of it, or added for
it. Nodes are numbered by `index`, their position in `Step.nodes`. What passes compute by node lies in flat arrays, in
that order, which the C++ loops read. What a node needs, its body says: see `ostinato.graph.body`.

Columns that a pass has not filled yet are None. ``print(step)`` shows all columns that are filled.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato._core import Kind
from ostinato.compiler.target import MachineModel
from ostinato.graph.op import Op

if TYPE_CHECKING:
    from ostinato.compiler.costs import Costs
    from ostinato.compiler.schedule.operations import Operations
    from ostinato.compiler.schedule.place import Placement, Waits
    from ostinato.compiler.streams.staging import Staged
    from ostinato.devices.device import Device
    from ostinato.graph.body import Body
    from ostinato.graph.operand import Operand
    from ostinato.graph.param import Param
    from ostinato.graph.variant import Variant

__all__ = [
    "COMMON",
    "HOST",
    "Edges",
    "Executable",
    "FloatArray",
    "IntArray",
    "Kind",
    "Mask",
    "Node",
    "Step",
    "Target",
    "edges_of",
]

IntArray: TypeAlias = npt.NDArray[np.int32]
FloatArray: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

HOST = -1
"""The memory of the host; that of a device is called by the device's index."""

COMMON = MachineModel(cores=1)
"""What is assumed of a machine that was not measured."""


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
    arrays = [np.ascontiguousarray(values, np.int32) for values in (src, dst, distance)]
    return Edges(*_core.passes.sorted_unique(ops, *arrays))


class Node(Op):
    """An op as passes made it of a recorded one: at another index, with another body, or on other arrays.

    It keeps the name, the call site and the binding of `op`, and what `op` says of what was recorded.

    Parameters
    ----------
    op
        The op that this is made of.
    index, body, operands
        What differs; None: as of `op`.
    recorded
        What it does by the task that was recorded; None: as of `op`.
    variant, rtol
        The variant that `body` runs, and by what part its results may differ; only with `body`.
    """

    __slots__ = ("_original", "_recorded", "_rtol", "_variant")

    _original: Op | weakref.ref[Op]

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
        self._recorded = op.recorded if recorded is None else recorded
        self._variant = op.variant
        self._rtol = op.rtol

    @classmethod
    def added(cls, op: Op, index: int, name: str, body: Body) -> Node:
        """Return a node that a pass adds for another op: it accesses nothing and is bound to nothing."""
        node = cls(op, index, body, (), body)
        node.name = name
        node.on = None
        return node.running(None, 0.0)

    def running(self, variant: Variant | None, rtol: float) -> Node:
        """Set the variant that this node runs, and return the node."""
        self._variant, self._rtol = variant, rtol
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

    @property
    def recorded(self) -> Body:
        """What it does by the task that was recorded."""
        return self._recorded

    @property
    def variant(self) -> Variant | None:
        """The variant that it runs; None for the task itself."""
        return self._variant

    @property
    def rtol(self) -> float:
        """By what part the variant's results may differ from those of the task itself."""
        return self._rtol


def _no_devices() -> tuple[Device, ...]:
    return ()


@dataclass(frozen=True)
class Target:
    """The machine to compile for.

    Attributes
    ----------
    processors
        How many CPUs it has.
    threads
        How many threads may run lanes; ops that are bound to a processor may take more.
    model
        What threads pay for working together.
    find_devices
        Returns its devices. It is called only for graphs that may use any, since devices take long to find.
    """

    processors: int
    threads: int
    model: MachineModel = COMMON
    find_devices: Callable[[], tuple[Device, ...]] = _no_devices

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The devices of the machine."""
        return self.find_devices()


@dataclass(frozen=True)
class Step:
    """The nodes of one step with all that passes know of them."""

    nodes: tuple[Op, ...]
    edges: Edges
    """Dependences: along these goes poison."""
    ordering: Edges
    """All that orders nodes: dependences, and edges that carry no poison."""
    costs: Costs
    serial: bool = False
    """Whether each step begins when the one before has ended, by a barrier between them."""
    params: Mapping[str, Param] = field(default_factory=dict)
    before_devices: Step | None = None
    """This step before copies and fences were inserted; None where it uses no devices."""
    staged: Staged | None = None
    """What runs on devices, and how; None where it uses none."""
    operations: Operations | None = None
    """What the core is to run: the nodes, and last the barrier between steps if there is one."""
    placement: Placement | None = None
    """Lanes of operations, and threads of lanes."""
    order: IntArray | None = None
    """One order for all operations; a lane's order is its part of it."""
    waits: Waits | None = None
    """What each operation must wait for, lanes being in order."""

    @property
    def recorded(self) -> Step:
        """The step on the arrays that it was recorded with."""
        return self if self.before_devices is None else self.before_devices


@dataclass(frozen=True)
class Executable:
    """A compiled step: what `pipeline.compile` returns. The runtime lowers it onto arrays and instantiates it."""

    step: Step
    target: Target
    core: _core.Schedule
    placement: Placement
    lane_ops: tuple[IntArray, ...]
    """By lane, in order; an operation of index ``len(step.nodes)`` is the barrier between steps."""
    waits: Waits
    kinds: npt.NDArray[np.uint8]
    gil_bound: Mask
    preconditions: tuple[str, ...]
    postconditions: tuple[str, ...]
    waits_outside: bool
    """Whether any node does."""

    @property
    def slots(self) -> int:
        """How many operations the core has."""
        return len(self.kinds)

    def with_costs(self, costs: Costs) -> Executable:
        """Return the same schedule of nodes that take other times."""
        return replace(self, step=replace(self.step, costs=costs))

    def on_nodes_of(self, other: Executable) -> Executable:
        """Return the same schedule of the nodes of another executable of the same step."""
        new = other.step
        return replace(
            self,
            step=replace(self.step, nodes=new.nodes, before_devices=new.before_devices, staged=new.staged),
        )
