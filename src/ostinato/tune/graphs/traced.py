"""Costs from a trace: what ops took when a program ran."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ostinato.compiler.costs import ESTIMATED, Costed, Costing, Costs, estimate, median_and_spread
from ostinato.compiler.variants import with_variants
from ostinato.counting import counted
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
        traced = _of_graph(trace)
        looks = [(op.name, str(op.call_site)) for op in ops]
        if looks != [(trace.op_names[place], trace.op_sites[place]) for place in traced]:
            raise ValueError(
                f"costs must be a trace of this graph, of {counted(len(ops), 'op')}, got one of another graph, of "
                f"{counted(len(traced), 'op')}, or with other names or lines"
            )
        chosen = _variants(trace, ops, traced)
        ran = with_variants(ops, chosen, dict.fromkeys(chosen, math.inf))  # a trace does not say what they were held to
        return Costed(ran, durations(trace, estimate(ran), "traced", traced))

    return costed


def _of_graph(trace: Trace) -> list[int]:
    """Return the ops of a trace that are the graph's, in its order: not those that compiling added."""
    added = trace.added or [False] * len(trace.op_names)
    return [place for place, is_added in enumerate(added) if not is_added]


def _variants(trace: Trace, ops: tuple[Op, ...], traced: Sequence[int]) -> dict[int, Variant]:
    """Return the variants that ops ran in a trace, by index."""
    found = {}
    for index, place in enumerate(traced if len(trace.op_variants) else ()):
        if label := trace.op_variants[place]:
            variant = next((each for each in variants_of(ops[index].recorded) if each.label == label), None)
            if variant is None:
                raise ValueError(
                    f"costs must be a trace of variants that are declared, got {ops[index].name!r} as {label}"
                )
            found[index] = variant
    return found


def durations(trace: Trace, costs: Costs, source: str, traced: Sequence[int] | None = None) -> Costs:
    """Return costs with what was traced in place of what was known: medians over the steps, and their spread.

    `traced` says which op of the trace each op is; None: the trace has the same ones.
    """
    seconds, spread, origin = costs.seconds.copy(), costs.spread.copy(), costs.source.copy()
    sources = costs.sources if source in costs.sources else (*costs.sources, source)
    overhead = _overhead(trace)
    index = None if traced is None else {place: op for op, place in enumerate(traced)}
    for place, taken in _by_op(trace):
        op = place if index is None else index.get(place, -1)
        if op < 0:
            continue
        ns, spread[op] = median_and_spread(np.maximum(taken - overhead, 1))
        seconds[op] = ns * 1e-9
        origin[op] = sources.index(source)
    return Costs(seconds, spread, origin, sources if len(sources) > 1 else (ESTIMATED,), costs.notes)


def _overhead(trace: Trace) -> int:
    """Return the ns of a record that are the clock's.

    Where one op follows the other at once, what lies between their records is the end of one look at the clock and the
    begin of the next; the other halves are within the records.
    """
    on_cpus = trace.records[trace.records["issued"] == 0]  # devices have clocks of their own
    records = np.sort(on_cpus, order=("thread", "start"))
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
