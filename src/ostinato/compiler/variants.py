"""Variants in place of the tasks that were recorded: those by which a step ends first, copies included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.compiler.assign_devices import find_devices
from ostinato.compiler.costs import Costed, DeviceCosts
from ostinato.compiler.ir import HOST, Node
from ostinato.compiler.mapping_estimate import MappingEstimate, MappingEstimator
from ostinato.compiler.summary import summarize, uses_devices
from ostinato.compiler.target import DeviceModel
from ostinato.compiler.wording import duration
from ostinato.errors import GraphError
from ostinato.graph.body import NativeCall, PythonCall
from ostinato.graph.variant import default_variant, variants_of
from ostinato.text import one_line

if TYPE_CHECKING:
    from ostinato.compiler.ir import Edges, IntArray
    from ostinato.devices.device import Device
    from ostinato.graph.op import Op
    from ostinato.graph.variant import Variant


def replace_variants(
    ops: tuple[Op, ...], chosen: Mapping[int, Variant], rtol: Mapping[int, float] | None = None
) -> tuple[Op, ...]:
    """Return ops with variants of the tasks that were recorded, by index, in place of what they run.

    `rtol` says, by index, by what part results may differ from those of the task itself, where they may.

    Raises what `Variant.implement` raises if a variant cannot take the arguments of its op.
    """
    result = list(ops)
    known: dict[object, Any] = {}
    for index, variant in chosen.items():
        result[index] = _with_variant(ops[index], variant, rtol.get(index, 0.0) if rtol else 0.0, known)
    return tuple(result)


def restore_recorded(op: Op) -> Op:
    """Return a call of a task with the task that was recorded in place of what it runs."""
    variant = default_variant(op.recorded)
    assert variant is not None
    return _with_variant(op, variant, 0.0, {})


def _with_variant(op: Op, variant: Variant, rtol: float, known: dict[object, Any]) -> Op:
    body = variant.implement(op.recorded, known)
    if body is op.body:
        return op
    return Node(op, body=body).running(None if body is op.recorded else variant, rtol)


_GAIN = 0.98  # What is not done in less than so much of the time without devices stays on the CPUs.
_MOST_VISITS = 50_000  # The most ops visited while further steps are tried, after the first few.


def choose_device_variants(costed: Costed, edges: Edges, devices: Sequence[Device], cpus: int) -> Costed:
    """Return ops with variants for devices in place where these are known to be right, and a step ends earlier so.

    Ops stay where they are bound to. One that is bound to devices of a kind, but whose task itself is for none, runs
    the fastest variant for these that is known, or else the first of those that are not known to be wrong.

    `costed`: the ops, with what they take on CPUs, and elsewhere.

    Raises GraphError if all variants for the devices that an op is bound to were measured, and none is right.
    """
    return _Choice(costed, edges, devices, cpus).made()


def _like(device: Device) -> tuple[str, str, str]:
    return device.kind, device.model, device.driver


def _nothing(ops: int) -> DeviceCosts:
    return DeviceCosts(np.full(ops, np.nan), np.zeros(ops), {}, {}, {}, DeviceModel(), ())


class _Choice:
    def __init__(self, costed: Costed, edges: Edges, devices: Sequence[Device], cpus: int) -> None:
        self._ops, self._costs = costed.ops, costed.costs
        self._edges, self._devices, self._cpus = edges, devices, cpus
        self._first = {device.kind: index for index, device in reversed(list(enumerate(devices)))}
        first = {
            index: _nothing(len(self._ops)) if costed.device_costs is None else costed.device_costs(devices[index])
            for index in self._first.values()
        }
        # What is known of the first device of each kind goes for those like it; ops are moved to no others.
        self._known = {
            index: first[self._first[device.kind]]
            for index, device in enumerate(devices)
            if _like(device) == _like(devices[self._first[device.kind]])
        }
        self._variants: dict[int, Variant] = {}
        self._rtol: dict[int, float] = {}
        for index, op in enumerate(self._ops):
            if op.on is not None:
                self._put_in(index, op)
        self._fixed = np.full(len(self._ops), HOST, np.int32)  # where ops run that are not moved
        ops = replace_variants(self._ops, self._variants)
        if uses_devices(summarize(ops)):
            self._fixed = find_devices(ops, devices, cpus)
        self._choices: dict[int, list[int]] = {}
        self._notes: list[str] = []
        self._visits = 0
        for index, op in enumerate(self._ops):
            self._look_at(index, op)

    def made(self) -> Costed:
        """Return the ops with what was chosen, and what they take so."""
        notes = [note for known in self._known.values() for note in known.notes] + self._notes
        self._sources, self._source = list(self._costs.sources), self._costs.source.copy()
        self._seconds, self._spread = self._costs.seconds.copy(), self._costs.spread.copy()
        for index in np.flatnonzero(self._fixed != HOST).tolist():
            self._take(index, int(self._fixed[index]))
        bound: dict[int, str] = {}
        if self._choices:
            estimate, estimator = self._best()
            self._explain(estimate, estimator)
            for index in self._choices:
                if (where := int(estimate.device[index])) != HOST:
                    bound[index] = self._devices[where].name
                    self._variants[index] = self._known[where].variants[index]
                    self._rtol[index] = self._known[where].rtol[index]
        ops = list(replace_variants(self._ops, self._variants, self._rtol))
        for index, name in bound.items():
            ops[index].on = name
        costs = self._costs._replace(
            seconds=self._seconds,
            spread=self._spread,
            source=self._source,
            sources=tuple(self._sources),
            notes=tuple(dict.fromkeys((*self._costs.notes, *notes))),
        )
        return Costed(tuple(ops), costs)

    def _put_in(self, index: int, op: Op) -> None:
        """Have an op that is bound to a device run a variant for it, if its own task is for none."""
        kind = str(getattr(op.on, "name", op.on)).partition(":")[0]
        every = variants_of(op.recorded)
        if kind not in self._first or not every or every[0].takes_stream:
            return
        known = self._known[self._first[kind]]
        best, out = known.variants.get(index), known.out.get(index, {})
        declared = [each for each in every[1:] if each.on == kind or (each.on is None and each.takes_stream)]
        for variant in ([best] if best is not None else []) + [each for each in declared if each not in out]:
            if variant.body(op.recorded) is not None:
                self._variants[index] = variant
                self._rtol[index] = known.rtol[index] if variant is best else 0.0
                return
        if out:
            raise GraphError(_none_right(op, kind, declared, out))

    def _look_at(self, index: int, op: Op) -> None:
        """Find out where an op may run, and by which variant it does where it has to."""
        if not isinstance(op.body, PythonCall | NativeCall):
            return
        if (device := int(self._fixed[index])) != HOST:
            device = self._first[self._devices[device].kind]
            known = self._known[device]
            if index not in self._variants and op.variant is None and self._fits(index, op, known):
                self._variants[index], self._rtol[index] = known.variants[index], known.rtol[index]
        elif op.on is None and not variants_of(op.recorded)[0].takes_stream:
            devices = [device for device, known in self._known.items() if self._fits(index, op, known)]
            if devices and self._costs.measured[index]:
                self._choices[index] = devices
            elif devices:
                names = ", ".join(self._devices[device].name for device in devices)
                self._notes.append(f"{op.name}: what it takes on a CPU is not known, so it is not taken to {names}")

    def _fits(self, index: int, op: Op, known: DeviceCosts) -> bool:
        variant = known.variants.get(index)
        return variant is not None and not np.isnan(known.seconds[index]) and variant.body(op.recorded) is not None

    def _take(self, index: int, device: int) -> None:
        """Let an op take what it does on a device."""
        known = self._known[self._first[self._devices[device].kind]]
        if np.isnan(known.seconds[index]) or self._variants.get(index) is not known.variants.get(index):
            return
        self._seconds[index], self._spread[index] = known.seconds[index], known.spread[index]
        self._say(index, f"{known.source[index]}, on {self._devices[device].name}")

    def _say(self, index: int, source: str) -> None:
        if source not in self._sources:
            self._sources.append(source)
        self._source[index] = self._sources.index(source)

    def _best(self) -> tuple[MappingEstimate, MappingEstimator]:
        """Return the step that ends first, of some that are likely to, and what runs steps."""
        there = {
            device: np.where(np.isnan(known.seconds), self._seconds, known.seconds)
            for device, known in self._known.items()
        }
        there |= {device: self._seconds for device in range(len(self._devices)) if device not in there}
        models = [self._known[self._first[device.kind]].model for device in self._devices]
        estimator = MappingEstimator(self._ops, self._edges, self._seconds, there, self._devices, models, self._cpus)
        at_home = estimator.run(self._fixed)
        choices = {index: (HOST, *devices) for index, devices in self._choices.items()}
        greedy = estimator.run(estimator.run(self._fixed, choices).device)
        found = [at_home, greedy]
        for device in self._known:
            moved = self._fixed.copy()
            moved[[index for index, devices in self._choices.items() if device in devices]] = device
            found.append(estimator.run(moved))
        best = min(found, key=lambda estimate: estimate.seconds)
        best = self._improved(best, estimator)
        return (best if best.seconds < _GAIN * at_home.seconds else at_home), estimator

    def _improved(self, best: MappingEstimate, estimator: MappingEstimator) -> MappingEstimate:
        """Move the ops of one variant together, as long as that is of use."""
        better = True
        while better:
            better = False
            for group in self._groups():
                for where in (HOST, *self._choices[group[0]]):
                    if (best.device[group] == where).all():
                        continue
                    if not self._may_try():
                        return best
                    estimate = estimator.run(_with(best.device, group, where))
                    if estimate.seconds < 0.999 * best.seconds:
                        best, better = estimate, True
        return best

    def _may_try(self) -> bool:
        """Whether there is time to try one more step."""
        self._visits += len(self._ops)
        return self._visits <= _MOST_VISITS

    def _groups(self) -> list[list[int]]:
        """Return the ops that may move, by what they are on devices and what they take."""
        groups: dict[tuple[object, ...], list[int]] = {}
        for index, devices in self._choices.items():
            known = [self._known[device] for device in devices]
            key = (self._ops[index].name, *((id(each.variants[index]), each.seconds[index]) for each in known))
            groups.setdefault(key, []).append(index)
        return list(groups.values())

    def _explain(self, estimate: MappingEstimate, estimator: MappingEstimator) -> None:
        """Say why ops run where they do."""
        for group in self._groups():
            for where in sorted({*estimate.device[group].tolist()}):
                alike = [index for index in group if estimate.device[index] == where]
                self._explain_group(estimate, estimator, alike, where)

    def _explain_group(
        self, estimate: MappingEstimate, estimator: MappingEstimator, group: list[int], where: int
    ) -> None:
        first, here = group[0], float(np.mean(self._costs.seconds[group]))
        if where != HOST:
            known, name = self._known[where], self._devices[where].name
            taken = float(known.seconds[first])
            why = f"on {name}: {duration(taken)} there, {duration(here)} on a CPU, {_copies(estimate, group)}"
            for index in group:
                self._seconds[index], self._spread[index] = known.seconds[index], known.spread[index]
                self._say(index, f"{known.source[index]}, {why}")
            return
        for device in self._choices[first]:
            taken = float(self._known[device].seconds[first])
            why = f"not on {self._devices[device].name}: {duration(taken)} there"
            if self._may_try():
                why += f", {_copies(estimator.run(_with(estimate.device, group, device)), group)}"
            for index in group:
                self._say(index, f"{self._sources[self._source[index]]}, {why}")


def _none_right(op: Op, kind: str, declared: Sequence[Variant], out: Mapping[Variant, str]) -> str:
    """Say that an op is bound to devices for which it has no variant that may run, and why each may not."""
    lines = [one_line(f"  {each.label}: {out.get(each) or each.refusal(op.recorded)}") for each in declared]
    bound = getattr(op.on, "name", op.on)
    first = (
        f"{op.name!r} at {op.call_site} is bound to {bound!r}, but by graph.tune no variant of it for {kind} is right:"
    )
    last = "correct one; or, if so small a difference is right, give graph.tune an rtol=; or leave out on="
    return "\n".join([first, *lines, last])


def _with(device: IntArray, group: Sequence[int], where: int) -> IntArray:
    changed = device.copy()
    changed[list(group)] = where
    return changed


def _copies(estimate: MappingEstimate, group: Sequence[int]) -> str:
    seconds = float(np.mean(estimate.copies[list(group)]))
    return f"copies {duration(seconds)}" if seconds else "no copies"
