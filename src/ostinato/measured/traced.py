"""Costs from a trace: what ops took when a program ran."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ostinato.compile.costs import ESTIMATED, Costed, Costing, Costs, estimate, median_and_spread
from ostinato.compile.variants import with_variants
from ostinato.graph.op import Op
from ostinato.graph.variant import Variant, variants_of

if TYPE_CHECKING:
    from ostinato.view.trace import Trace

__all__ = ["costing_of_trace", "durations"]

_MOST_OVERHEAD = 60  # ns: a gap that is longer is not the clock's alone


def costing_of_trace(trace: Trace) -> Costing:
    """Return the costing that knows what ops took in a trace of the same graph, and lets them run the same variants.

    Raises
    ------
    ValueError
        By the costing itself: the trace is of another graph, or of variants that are no more.
    """

    def costed(ops: tuple[Op, ...]) -> Costed:
        names = [op.name for op in ops]
        if names != list(trace.op_names) or [str(op.call_site) for op in ops] != list(trace.op_sites):
            raise ValueError(
                f"costs= is a trace of another graph: of {len(trace.op_names)} ops, this one has {len(ops)}, or they "
                "have other names or were recorded elsewhere"
            )
        chosen = _variants(trace, ops)
        ran = with_variants(ops, chosen, dict.fromkeys(chosen, math.inf))  # a trace does not say what they were held to
        return Costed(ran, durations(trace, estimate(ran), "traced"))

    return costed


def _variants(trace: Trace, ops: tuple[Op, ...]) -> dict[int, Variant]:
    """Return the variants that ops ran in a trace, by index."""
    found = {}
    for index, label in enumerate(trace.op_variants):
        if label:
            variant = next((each for each in variants_of(ops[index].recorded) if each.label == label), None)
            if variant is None:
                raise ValueError(f"costs= is a trace of {ops[index].name!r} as {label}, a variant that is not declared")
            found[index] = variant
    return found


def durations(trace: Trace, costs: Costs, source: str) -> Costs:
    """Return costs with what was traced in place of what was known: medians over the steps, and their spread."""
    seconds, spread, origin = costs.seconds.copy(), costs.spread.copy(), costs.source.copy()
    sources = costs.sources if source in costs.sources else (*costs.sources, source)
    overhead = _overhead(trace)
    for op, taken in _by_op(trace):
        ns, spread[op] = median_and_spread(np.maximum(taken - overhead, 1))
        seconds[op] = ns * 1e-9
        origin[op] = sources.index(source)
    return Costs(seconds, spread, origin, sources if len(sources) > 1 else (ESTIMATED,), costs.notes)


def _overhead(trace: Trace) -> int:
    """Return the ns of a record that are the clock's.

    Where one op follows the other at once, what lies between their records is the end of one look at the clock and the
    begin of the next; the other halves are within the records.
    """
    records = np.sort(trace.records, order=("thread", "start"))
    same = records["thread"][1:] == records["thread"][:-1]
    gaps = (records["start"][1:] - records["end"][:-1])[same]
    short = gaps[(gaps >= 0) & (gaps <= _MOST_OVERHEAD)]
    return int(short.min()) if len(short) else 0


def _by_op(trace: Trace) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Return the ns that each traced op took, step by step."""
    records = trace.records
    order = np.argsort(records["op"], kind="stable")
    ops, begin = np.unique(records["op"][order], return_index=True)
    taken = (records["end"] - records["start"])[order]
    return list(zip(ops.tolist(), np.split(taken, begin[1:]) if len(ops) else (), strict=True))
