"""Core programs built by hand: lanes of numbered operations, without graphs or the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ostinato import _core

NOTHING, NATIVE, PYTHON, EXTERNAL, DEVICE = 0, 1, 2, 4, 7
"""As in core/program/schedule.h."""

Edges = dict[int, list[tuple[int, int]]]
"""By operation: what it comes after, and how many steps before."""


def _flat(n: int, table: Edges) -> tuple[Any, Any, Any]:
    rows = [table.get(op, []) for op in range(n)]
    flat = np.array([edge for row in rows for edge in row], np.int32).reshape(-1, 2)
    return np.cumsum([0, *map(len, rows)]), flat[:, 0].copy(), flat[:, 1].copy()


def schedule(lanes: Sequence[Sequence[int]], kinds: Sequence[int], edges: Edges, periods: Sequence[int] = (1,)) -> Any:
    """Lanes all at home on seat 0. Edges carry poison; those from other lanes are waited for."""
    n = len(kinds)
    lane_of = {op: at for at, lane in enumerate(lanes) for op in lane}
    waits = {op: [edge for edge in row if lane_of[edge[0]] != lane_of[op]] for op, row in edges.items()}
    published = np.zeros(n, np.uint8)
    for row in waits.values():
        for op, _ in row:
            published[op] = 1
    wait_begin, wait_op, wait_distance = _flat(n, waits)
    pred_begin, pred_op, pred_distance = _flat(n, edges)
    return _core.Schedule.build(
        lane_begin=np.cumsum([0, *map(len, lanes)]),
        lane_ops=np.array([op for lane in lanes for op in lane], np.int32),
        affinity=np.zeros(len(lanes), np.int32),
        pinned=np.zeros(len(lanes), np.uint8),
        kind=np.array(kinds, np.uint8),
        wait_begin=wait_begin,
        wait_op=wait_op,
        wait_distance=wait_distance,
        published=published,
        pred_begin=pred_begin,
        pred_op=pred_op,
        pred_distance=pred_distance,
        periods=np.array(periods, np.int32),
        until_op=-1,
        until_every=1,
        largest_distance=max((d for row in edges.values() for _, d in row), default=0),
        n_posts=0,
        n_holdings=0,
    )


def plan(scheduled: Any, n: int, period_class: Sequence[int] | None = None, **more: Any) -> Any:
    """A plan without native operations; `more`: python, external, device, ... of `_core.Plan.build`."""
    empty = np.zeros(0, np.int32)
    return _core.Plan.build(
        scheduled,
        function=np.zeros(n, np.uint64),
        user=np.zeros(n, np.uint64),
        table_begin=np.zeros(n + 1, np.int64),
        table=empty,
        n_arrays=np.zeros(n, np.int32),
        period_class=np.array(period_class if period_class is not None else [0] * n, np.int32),
        views=[],
        scalar_begin=np.zeros(n + 1, np.int64),
        n_scalars=np.zeros(n, np.int32),
        scalars=np.zeros(0, np.uint64),
        value_op=empty,
        value_slot=empty,
        value_index=empty,
        step_op=empty,
        step_slot=empty,
        python=more.pop("python", []),
        external=more.pop("external", []),
        **more,
    )


def call(op: int, function: Any, *phases: tuple[Any, ...], period_class: int = 0, values: tuple[Any, ...] = ()) -> Any:
    """The entry of `python` of an operation that calls `function` with the arguments of each phase."""
    return (op, function, None, phases or ((),), period_class, (), values)
