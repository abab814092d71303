"""How long ops take: as given, as measured, or by a rule of thumb."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato.compiler.ir import FloatArray, IntArray
from ostinato.compiler.summary import Summary, summarize
from ostinato.graph.body import Body, NativeCall, PythonCall
from ostinato.graph.op import Op
from ostinato.text import brief

if TYPE_CHECKING:
    from ostinato.compiler.target import DeviceModel
    from ostinato.devices.device import Device
    from ostinato.graph.variant import Variant

PYTHON_CALL = 0.3e-6
NATIVE_CALL = 5e-9
BYTE = 1 / 10e9  # Seconds; the last for each byte of an op's arrays.
VARIED = 2.0  # How many times longer than the median the longest op must take for costs to count as varied.
UNSTEADY = 0.5  # The spread of an op's time, relative to it, from which on costs count as varied.
STEADY = 0.2  # The spread of an op's time, relative to it, up to which costs count as steady.
ESTIMATED = "estimated"
_LOW, _HIGH = 5, 95  # percentiles between which the spread is


def median_and_spread(times: Sequence[float] | npt.NDArray[np.int64]) -> tuple[float, float]:
    """Return the median of times, and their spread as `Costs` has it."""
    low, middle, high = np.percentile(np.asarray(times, np.float64), (_LOW, 50, _HIGH)).tolist()
    return middle, (high - low) / 2 / middle if middle else 0.0


class Costs(NamedTuple):
    """What ops take, and how that is known."""

    seconds: FloatArray  # By op.
    spread: FloatArray
    """By op: half the distance from the 5th to the 95th percentile of its time, relative to the median; 0: unknown."""
    source: IntArray  # By op: which of `sources`.
    sources: tuple[str, ...] = (ESTIMATED,)  # How costs are known; the first one is `ESTIMATED`.
    notes: tuple[str, ...] = ()  # What else is to be said of them, such as why the store had no answer.

    @classmethod
    def unknown(cls, ops: int) -> Costs:
        """Return costs of ops of which nothing is known: 0."""
        return cls(np.zeros(ops), np.zeros(ops), np.zeros(ops, np.int32))

    @property
    def measured(self) -> npt.NDArray[np.bool_]:
        """By op, whether its cost is more than an estimate."""
        return self.source > 0

    @property
    def known(self) -> bool:
        """Whether most of what a step takes is more than an estimate."""
        return bool(self.seconds[self.measured].sum() > 0.5 * self.seconds.sum())

    @property
    def varied(self) -> bool:
        """Whether measured costs differ much, among each other or from step to step."""
        known = self.seconds[self.measured]
        if not len(known):
            return False
        if len(known) > 1 and known.max() > VARIED * np.median(known):
            return True
        weight = known.sum()
        return bool(weight > 0 and (known * self.spread[self.measured]).sum() > UNSTEADY * weight)

    @property
    def steady(self) -> bool:
        """Whether most of what a step takes is known to take the same from step to step.

        Where nothing is known of that, the costs of ops that were told apart are taken at their word.
        """
        known, spread = self.seconds[self.measured], self.spread[self.measured]
        if not self.known:
            return False
        told = known[spread > 0].sum()
        if told > 0.5 * known.sum():
            return bool((known * spread).sum() < STEADY * told)
        return len(known) > 1 and bool(known.max() > VARIED * np.median(known))


class DeviceCosts(NamedTuple):
    """What ops take on a device, arguments being there already, and by which variants of their tasks."""

    seconds: FloatArray  # By op; NaN where that is not known.
    spread: FloatArray  # By op, as of `Costs`.
    variants: Mapping[int, Variant]  # By op, where its own task is not for the device, or slower there.
    rtol: Mapping[int, float]
    """By op, by what part the results of the variant may differ from those of the task itself."""
    source: Mapping[int, str]  # By op, how that is known.
    model: DeviceModel  # What copies there and back take.
    notes: tuple[str, ...]  # Why no more is known.
    out: Mapping[int, Mapping[Variant, str]] = MappingProxyType({})
    """By op, variants that were measured there and must not run, and why."""


class Costed(NamedTuple):
    """Ops with what they take."""

    ops: tuple[Op, ...]  # The ops, with the bodies of the variants that were chosen.
    costs: Costs
    device_costs: Callable[[Device], DeviceCosts] | None = None
    """Says what ops take on a device; None where none is for one. Asked only then, since devices take long to find."""


Costing: TypeAlias = Callable[[Summary], Costed]  # Says what ops take, and chooses variants by that.


def estimate(ops: tuple[Op, ...]) -> Costs:
    """Return costs by a rule of thumb: see `costs_by_rule`."""
    return costs_by_rule(summarize(ops))


def costs_by_rule(summary: Summary) -> Costs:
    """Return costs by a rule of thumb: something for the call, and something for each byte that an op accesses."""
    calls = summary.by_call(lambda op: PYTHON_CALL if isinstance(op.body, PythonCall) else NATIVE_CALL, np.float64)
    seconds = calls + BYTE * summary.bytes
    return Costs(seconds, np.zeros(len(seconds)), np.zeros(len(seconds), np.int32))


def cost_by_estimate(summary: Summary) -> Costed:
    """Return ops as they are, with estimates: the costing that knows nothing."""
    return Costed(summary.ops, costs_by_rule(summary))


def cost_as_given(costs: Mapping[object, float]) -> Costing:
    """Return the costing that knows what the user says.

    `costs`: seconds by op, task or name of an op; the first of these that is there counts.
    """
    by_identity: dict[object, tuple[object, float]] = {}
    for key, value in costs.items():
        try:
            cost = float(value)
        except (TypeError, ValueError):
            raise TypeError(f"costs[{key!r}] must be a number of seconds, got {brief(value)}") from None
        if not (np.isfinite(cost) and cost >= 0):
            raise ValueError(f"costs[{key!r}] must be a number of seconds, finite and not negative, got {value!r}")
        for identity in _identities(key):
            by_identity[identity] = key, cost

    def costed(summary: Summary) -> Costed:
        ops, found = summary.ops, costs_by_rule(summary)
        known: set[int] = set()
        for op in ops:
            keys = [by_identity[i] for i in (id(op.original), _called(op.body), op.name) if i in by_identity]
            if keys:
                found.seconds[op.index] = keys[0][1]
                found.source[op.index] = 1
                known |= {id(key) for key, _ in keys}
        unknown = [key for key in costs if id(key) not in known]
        if unknown:
            names = ", ".join(map(repr, unknown))
            raise ValueError(f"costs must name ops, tasks or names of ops of this graph, got {names}")
        return Costed(ops, found._replace(sources=(ESTIMATED, "given")))

    return costed


def _identities(key: object) -> list[object]:
    """What ops know a key by: names by value, tasks by what is called in the end, ops by themselves."""
    if isinstance(key, str):
        return [key]
    from ostinato.graph.kernel import Kernel  # here: most graphs have none

    if isinstance(key, Kernel):
        return [id(task) for task in key.compiled]
    return [id(getattr(key, "function", key))]


def _called(body: Body) -> object:
    if isinstance(body, PythonCall):
        return id(body.task.function)
    return id(body.task) if isinstance(body, NativeCall) else None
