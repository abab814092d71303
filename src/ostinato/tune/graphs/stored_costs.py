"""Costs and variants from the records of a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato.compiler.costs import ESTIMATED, Costed, Costs, DeviceCosts, estimate, median_and_spread
from ostinato.compiler.variants import replace_variants
from ostinato.graph.op import Op
from ostinato.graph.variant import CPU, Variant, default_variant
from ostinato.runtime.calibrate import recall_device
from ostinato.text import counted
from ostinato.tune.graphs.call_context import CallContext, CallContexts
from ostinato.tune.graphs.cost_store import Lookup, tuner_device
from ostinato.tune.graphs.record import Record
from ostinato.tune.graphs.signature import for_kind, group, key_of, kinds_for
from ostinato.tune.store.database import StoreError

if TYPE_CHECKING:
    from ostinato.devices.device import Device


class _Cost(NamedTuple):
    seconds: float
    spread: float
    source: str


class _Known(NamedTuple):
    record: Record
    default: _Cost | None
    """None where it was disturbed all the time."""
    winner: Variant | None
    """The variant that is put in place of the default; None to leave it."""
    best: _Cost

    def fits(self, call_context: Callable[[], CallContext]) -> bool:
        """Whether an op in a call context may run the winner: it was compared with the default in this one."""
        return self.winner is None or self.record.checked.covers(call_context())


class _Answer(NamedTuple):
    known: _Known | None = None
    why: str = ""
    """Why it knows nothing of it."""
    out: Mapping[Variant, str] = MappingProxyType({})
    """The variants that must not run, and why."""


def stored_costs(ops: tuple[Op, ...], path: Path, named: bool) -> Costed:
    """Return ops with the variants that a store knows to be the fastest, and their costs.

    If the store cannot be read, a `named` one raises a `StoreError`; otherwise a note says so.
    """
    kinds = kinds_for(ops)
    device_costs = partial(_device_costs, ops, path, kinds) if kinds is None or kinds else None
    groups, lookup = group(ops, CPU), Lookup(path)
    known: dict[int, _Known] = {}
    notes: list[str] = []
    try:
        for number, op in enumerate(groups.first):
            answer = _answer(op, CPU, lookup)
            if answer.known is not None:
                known[number] = answer.known
            elif answer.why:
                notes.append(f"{op.name}: {answer.why}")
    except StoreError as error:
        if named:
            raise
        notes.append(str(error))
    costs = estimate(ops)._replace(notes=tuple(dict.fromkeys(notes)))
    if not known:
        return Costed(ops, costs, device_costs)
    numbers = np.array(groups.numbers, np.int64)
    chosen, kept = _chosen(ops, numbers, known)
    if kept:
        names = ", ".join(dict.fromkeys(ops[index].name for index in kept))
        notes.append(
            f"{names}: {counted(len(kept), 'op')} left with the task itself, since the faster variant was not compared "
            "with it under their strides, overlaps and scalars; graph.tune does that"
        )
    rtol = {index: known[int(numbers[index])].record.rtol for index in chosen}
    changed = _with_variants(ops, chosen, rtol)
    costs = _filled(costs, numbers, known, chosen)._replace(notes=tuple(dict.fromkeys(notes)))
    return Costed(changed, costs, device_costs)


def _device_costs(ops: tuple[Op, ...], path: Path, kinds: frozenset[str] | None, device: Device) -> DeviceCosts:
    """Return what ops take on a device, as a store knows it."""
    seconds, spread = np.full(len(ops), np.nan), np.zeros(len(ops))
    found = DeviceCosts(seconds, spread, {}, {}, {}, recall_device(device), ())
    if kinds is not None and device.kind not in kinds:
        return found
    groups, lookup = group(ops, device.kind), Lookup(path, tuner_device(device))
    answers: list[_Answer] = []
    notes: list[str] = []
    for op in groups.first:
        try:
            answer = _answer(op, device.kind, lookup)
        except StoreError:  # the costs of CPUs tell of it
            return found
        answers.append(answer)
        if answer.known is None:
            notes.append(f"{op.name}: {answer.why or f'nothing was measured on {device.name}; graph.tune does that'}")
    call_contexts = CallContexts()
    variants: dict[int, Variant] = {}
    sources: dict[int, str] = {}
    rtol: dict[int, float] = {}
    out: dict[int, Mapping[Variant, str]] = {}
    for index, number in enumerate(groups.numbers):
        if number < 0:
            continue
        known = answers[number].known
        if answers[number].out:
            out[index] = answers[number].out
        if known is None or not known.fits(partial(call_contexts.of, ops[index])):
            continue
        seconds[index], spread[index], sources[index] = known.best
        if known.winner is not None:
            variants[index], rtol[index] = known.winner, known.record.rtol
    return found._replace(variants=variants, rtol=rtol, source=sources, notes=tuple(dict.fromkeys(notes)), out=out)


def _answer(op: Op, kind: str, lookup: Lookup) -> _Answer:
    declared, itself = for_kind(op, kind), default_variant(op.body)
    own = not declared or declared[0] is itself
    known = lookup.known(key_of(op, kind), declared if own or itself is None else (itself, *declared))
    record = known.record
    if record is None:
        return _Answer(None, known.why)
    out = {declared[place]: ": ".join(filter(None, (end.status, end.message))) for place, end in record.out.items()}
    if record.winner is None:
        told = "; ".join(f"{variant.label}: {why}" for variant, why in out.items())
        return _Answer(None, f"no variant for {kind} may run: {told}", out)
    when = f"measured {time.strftime('%Y-%m-%d', time.localtime(record.time))}"
    if known.here:
        when += ", in this process"
    default = _cost(record, 0, None, when) if own and record.samples(0) else None
    winner = None if own and not record.winner else declared[record.winner]
    return _Answer(_Known(record, default, winner, _cost(record, record.winner, winner, when)), out=out)


def _cost(record: Record, place: int, variant: Variant | None, source: str) -> _Cost:
    ns, spread = median_and_spread(record.samples(place))
    if variant is not None:
        source += f", variant {variant.label}"
        if record.rtol:
            source += f", equal within rtol={record.rtol:g}"
    return _Cost(ns * 1e-9, spread, source)


def _chosen(
    ops: Sequence[Op], numbers: npt.NDArray[np.int64], known: Mapping[int, _Known]
) -> tuple[dict[int, Variant], list[int]]:
    """Return the variants by op, and the ops for which they are not known to be right."""
    call_contexts = CallContexts()
    chosen: dict[int, Variant] = {}
    kept: list[int] = []
    winners = {number: each.winner for number, each in known.items() if each.winner is not None}
    for index in np.flatnonzero(np.isin(numbers, list(winners))).tolist():
        number = int(numbers[index])
        if known[number].fits(partial(call_contexts.of, ops[index])):
            chosen[index] = winners[number]
        else:
            kept.append(index)
    return chosen, kept


def _with_variants(ops: tuple[Op, ...], chosen: dict[int, Variant], rtol: Mapping[int, float]) -> tuple[Op, ...]:
    """Put variants in place; those that cannot take the arguments of an op are taken out of `chosen`."""
    try:
        return replace_variants(ops, chosen, rtol)
    except (TypeError, ValueError, OverflowError, ImportError):
        for index, variant in list(chosen.items()):
            if variant.body(ops[index].body) is None:
                del chosen[index]
        return replace_variants(ops, chosen, rtol)


def _filled(
    costs: Costs, numbers: npt.NDArray[np.int64], known: Mapping[int, _Known], chosen: Mapping[int, Variant]
) -> Costs:
    """Return costs with those from the store in place."""
    sources = {ESTIMATED: 0}
    best = np.zeros(len(numbers), np.bool_)
    best[list(chosen)] = True
    for pick, of in (("default", numbers >= 0), ("best", best)):
        table = np.full((3, int(numbers.max()) + 1), -1.0)
        for number, each in known.items():
            cost: _Cost | None = getattr(each, pick)
            if cost is not None:
                table[:, number] = cost.seconds, cost.spread, sources.setdefault(cost.source, len(sources))
        found = table[:, numbers[of]]
        measured = found[2] >= 0
        indices = np.flatnonzero(of)[measured]
        costs.seconds[indices], costs.spread[indices], costs.source[indices] = found[:, measured]
    return costs._replace(sources=tuple(sources))
