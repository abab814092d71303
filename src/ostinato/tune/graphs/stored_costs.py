"""Costs and variants from the records of a store."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato.compiler.costs import ESTIMATED, Costed, Costs, DeviceCosts, estimate, median_and_spread
from ostinato.compiler.variants import replace_variants
from ostinato.errors import GraphError
from ostinato.graph.op import Op
from ostinato.graph.variant import CPU, Variant, default_variant
from ostinato.ranks.coordinator import Offer
from ostinato.runtime.calibrate import recall_device
from ostinato.text import counted
from ostinato.tune.candidate import canonical
from ostinato.tune.graphs.call_context import CallContext, CallContexts
from ostinato.tune.graphs.cost_store import Found, Lookup, tuner_device
from ostinato.tune.graphs.record import Record
from ostinato.tune.graphs.signature import for_kind, group, key_of, kinds_for
from ostinato.tune.store.database import StoreError

if TYPE_CHECKING:
    from ostinato.devices.device import Device
    from ostinato.tune.leases.device import Device as TunerDevice


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


class _Agreed(Lookup):
    """What ranks have agreed on: of tasks with variants it knows that, and of others what a store says."""

    def __init__(self, path: Path, device: TunerDevice | None, winners: Mapping[str, bytes]) -> None:
        super().__init__(path, device)
        self._winners = winners

    def known(self, key: Mapping[str, Any], variants: Sequence[Variant]) -> Found:
        record = self._winners.get(canonical(key))
        if len(variants) < 2:
            if record is not None:
                raise GraphError(
                    f"the ranks have agreed on a variant of {key['task']!r}, but here none is declared; declare the "
                    "same variants on all ranks"
                )
            return super().known(key, variants)
        return Found() if record is None else Found((pickle.loads(record),))


def _lookup(path: Path, winners: Mapping[str, bytes] | None, device: TunerDevice | None = None) -> Lookup:
    return Lookup(path, device) if winners is None else _Agreed(path, device, winners)


def find_offers(
    ops: Sequence[Op], path: Path, named: bool, devices: Callable[[], Sequence[Device]]
) -> dict[str, Offer]:
    """Return the variants that ops of this rank have, and what a store knows of them, for the ranks to agree on.

    If the store cannot be read, a `named` one raises a `StoreError`.
    """
    kinds = kinds_for(ops)
    lookups = {CPU: Lookup(path)}
    for device in devices() if kinds is None or kinds else ():
        if kinds is None or device.kind in kinds:
            lookups.setdefault(device.kind, Lookup(path, tuner_device(device)))
    offers = {}
    for kind, lookup in lookups.items():
        for op in group(ops, kind).first:
            declared, compared = _variants(op, kind)
            if len(compared) < 2:
                continue
            key, record = key_of(op, kind), None
            try:
                record = lookup.known(key, compared).record
            except StoreError:
                if named:
                    raise
            winner = "" if record is None or record.winner is None else declared[record.winner].label
            offers[canonical(key)] = Offer(
                op.name,
                tuple(variant.label for variant in compared),
                lookup.source(compared),
                winner,
                b"" if record is None else pickle.dumps(record),
            )
    return offers


def stored_costs(ops: tuple[Op, ...], path: Path, named: bool, winners: Mapping[str, bytes] | None = None) -> Costed:
    """Return ops with the variants that a store knows to be the fastest, and their costs.

    If the store cannot be read, a `named` one raises a `StoreError`; otherwise a note says so. `winners`: what the
    ranks of a program have agreed on in place of the store. They all run these, so one that a rank cannot import
    raises a `GraphError`.
    """
    kinds = kinds_for(ops)
    device_costs = partial(_device_costs, ops, path, winners, kinds) if kinds is None or kinds else None
    groups, lookup = group(ops, CPU), _lookup(path, winners)
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
    changed = _with_variants(ops, chosen, rtol, winners is not None)
    costs = _filled(costs, numbers, known, chosen)._replace(notes=tuple(dict.fromkeys(notes)))
    return Costed(changed, costs, device_costs)


def _device_costs(
    ops: tuple[Op, ...],
    path: Path,
    winners: Mapping[str, bytes] | None,
    kinds: frozenset[str] | None,
    device: Device,
) -> DeviceCosts:
    """Return what ops take on a device, as a store knows it."""
    seconds, spread = np.full(len(ops), np.nan), np.zeros(len(ops))
    found = DeviceCosts(seconds, spread, {}, {}, {}, recall_device(device), ())
    if kinds is not None and device.kind not in kinds:
        return found
    groups, lookup = group(ops, device.kind), _lookup(path, winners, tuner_device(device))
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


def _variants(op: Op, kind: str) -> tuple[tuple[Variant, ...], tuple[Variant, ...]]:
    """Return the variants of an op for a kind of processor, and the same with the default that they are compared to."""
    declared, itself = for_kind(op, kind), default_variant(op.body)
    if not declared or itself is None or declared[0] is itself:
        return declared, declared
    return declared, (itself, *declared)


def _answer(op: Op, kind: str, lookup: Lookup) -> _Answer:
    declared, compared = _variants(op, kind)
    own = not declared or declared[0] is default_variant(op.body)
    known = lookup.known(key_of(op, kind), compared)
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


def _with_variants(
    ops: tuple[Op, ...], chosen: dict[int, Variant], rtol: Mapping[int, float], agreed: bool
) -> tuple[Op, ...]:
    """Put variants in place; those that cannot take the arguments of an op are taken out of `chosen`."""
    try:
        return replace_variants(ops, chosen, rtol)
    except (TypeError, ValueError, OverflowError, ImportError) as error:
        if agreed and isinstance(error, ImportError):
            names = ", ".join(sorted({variant.label for variant in chosen.values()}))
            raise GraphError(
                f"the ranks have agreed to run the variants {names}, but here one of them cannot be imported: {error}; "
                "install the same packages for all ranks"
            ) from error
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
