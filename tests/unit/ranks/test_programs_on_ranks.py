"""Random programs on any number of ranks give, bit for bit, what one rank gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.in_process_ranks import PlannedRanks, run_on

import ostinato as ost
from ostinato.ranks.array import DistributedArray


@ost.task
def stencil(source: ost.Read, target: ost.Write, factor) -> None:
    margin = (source.shape[0] - target.shape[0]) // 2
    inner = tuple(slice(margin, length - margin) for length in source.shape)
    target[...] = source[inner]
    for axis, length in enumerate(source.shape):
        for shift in {0, 2 * margin}:
            index = list(inner)
            index[axis] = slice(shift, length - 2 * margin + shift)
            target[...] += factor * source[tuple(index)]


@ost.task
def accumulate(source: ost.Read, target: ost.ReadWrite) -> None:
    target[...] = 0.5 * target + source.ravel()[::-1].reshape(source.shape)[tuple(map(slice, target.shape))]


@ost.task
def total_of(source: ost.Read, out: ost.Write) -> None:
    out[...] = source.ravel()[:: max(source.size // 7, 1)].sum()


@ost.task
def add_number(number: ost.Read, target: ost.ReadWrite) -> None:
    target[...] += 1e-3 * number


class RandomProgram:
    """Arrays, and statements of a step, drawn from a seed."""

    def __init__(self, seed: int, near: bool) -> None:
        draw = np.random.default_rng(seed)
        self.ndim = int(draw.integers(1, 3))
        self.margin = int(draw.integers(0, 3))
        self.tiles = tuple(int(draw.integers(1, 6)) for _ in range(self.ndim))
        least = max(self.margin, 1)
        self.shape = tuple(
            count * int(draw.integers(least, least + 4)) + 2 * self.margin + int(draw.integers(0, count))
            for count in self.tiles
        )
        self.owner_seed = int(draw.integers(0, 1000)) if draw.random() < 0.4 else None
        self.ring_length = int(draw.integers(1, 4))
        self.near = 1 if near else None
        kinds = ["stencil", "stencil", "accumulate", "parts", "fold", "number"] + ["far", "far_tile", "bound"] * (
            not near
        )
        self.statements = [
            (
                str(draw.choice(kinds)),
                int(draw.integers(-1, 3)),
                int(draw.integers(-1, 3)),
                int(draw.integers(0, 10**6)),
            )
            for _ in range(int(draw.integers(1, 6)))
        ]
        self.values = draw.random(self.shape)

    def owner(self, size: int) -> Any:
        if self.owner_seed is None:
            return None
        seed = self.owner_seed
        return lambda index: hash((seed, *index)) % size

    def __call__(self, ranks: PlannedRanks) -> Any:
        more = {"tiles": self.tiles, "owner": self.owner(ranks.size)}
        members = [ranks.array(self.shape, **more) for _ in range(self.ring_length)]
        still = ranks.array(self.shape, **more)
        parts = ranks.array(self.tiles, **more)
        total, other = np.zeros(1), np.zeros(1)
        spread: list[DistributedArray] = [*members, still, parts]
        for array in spread:
            list(array.tiles(self.margin if array is not parts else 0, near=0))
            for box, view in array.local:
                view[...] = self.values[box] if array is not parts else 0
        u = ost.ring(*members)

        def record() -> None:
            for kind, k, j, seed in self.statements:
                place = np.random.default_rng(seed)
                far = tuple(
                    slice(*sorted(place.choice(length + 1, 2, replace=False).tolist())) for length in self.shape
                )
                if kind == "fold":
                    ranks.fold(parts, total, ["sum", "max", lambda a, b: 0.5 * a - b][seed % 3])
                elif kind == "far":
                    total_of(u[k][far], other)
                elif kind == "bound":
                    on = f"rank:{seed % ranks.size}"
                    ost.current_graph().task(total_of, still[far], total, on=on)
                else:
                    for tile in still.tiles(self.margin, near=self.near):
                        if kind == "stencil":
                            target = (
                                u[j][tile.inner] if k % self.ring_length != j % self.ring_length else still[tile.inner]
                            )
                            stencil(u[k][tile.halo], target, 0.1)
                        elif kind == "accumulate":
                            accumulate(u[k][tile.halo], still[tile.inner])
                        elif kind == "parts":
                            total_of(still[tile.inner], parts[tile.index])
                        elif kind == "number":
                            add_number(total, u[j][tile.inner])
                        elif kind == "far_tile":
                            total_of(u[k][far], parts[tile.index])

        return record, spread, [total, other]


def check(seed: int, size: int, near: bool, steps: int = 3) -> None:
    wanted = run_on(1, RandomProgram(seed, near), steps)
    got = run_on(size, RandomProgram(seed, near), steps)
    assert got[:2] == wanted[:2]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 6), st.booleans())
def test_any_number_of_ranks_gives_what_one_gives(seed: int, size: int, near: bool) -> None:
    check(seed, size, near)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_two_thousand_programs(part: int) -> None:
    for seed in range(100 * part, 100 * part + 100):
        check(seed, 2 + seed % 6, near=seed % 2 == 0)
