"""The model of many ranks: it plans as ranks do, and takes the costs of messages from LogGP."""

from __future__ import annotations

import pytest
from benchmarks.loggp import LogGP, Part, part_of, parts_of_grid, step_seconds
from benchmarks.scaling import grid_of, rows_of

FREE = LogGP(0, 0, 0, 0)


def test_messages_take_what_the_model_says():
    model = LogGP(L=5e-6, o=1e-6, g=0.0, G=1e-9)
    ping = [Part(((1, 1000),), ((1, 1000),), 0.0, 3e-6), Part(((0, 1000),), ((0, 1000),), 0.0, 3e-6)]
    assert step_seconds(ping, model) == pytest.approx((1 + 5 + 1 + 1 + 3) * 1e-6)
    hidden = [part._replace(before=20e-6) for part in ping]
    assert step_seconds(hidden, model) == pytest.approx((1 + 20 + 1 + 3) * 1e-6)
    copied = LogGP(L=5e-6, o=1e-6, g=0.0, G=1e-9, O=2e-9)
    assert step_seconds(ping, copied) == pytest.approx((1 + 2 + 5 + 1 + 1 + 2 + 3) * 1e-6)
    flood = [Part(((1, 8),) * 4, (), 0.0, 0.0), Part((), ((0, 8),) * 4, 0.0, 0.0)]
    assert step_seconds(flood, LogGP(L=0, o=1e-6, g=3e-6, G=0)) == pytest.approx(12e-6)


def test_parts_of_a_grid_are_what_each_rank_would_plan():
    grid = (6, 6)
    parts = parts_of_grid(grid, grid_of(12), {"relax": 1.0})
    for rank in range(36):
        assert parts[rank] == part_of(rank, 36, grid_of(12), {"relax": 1.0}), rank
    assert sum(part.before + part.after for part in parts) == 144


def test_what_a_row_at_the_border_needs_comes_after_messages():
    part = part_of(0, 2, rows_of(8), {"work": 1.0})
    assert part == Part(((1, 512),), ((1, 512),), 3.0, 1.0)
    assert step_seconds(parts_of_grid((2, 1), rows_of(8), {"work": 1.0}), FREE) == pytest.approx(4.0)
