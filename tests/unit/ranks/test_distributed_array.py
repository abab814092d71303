"""Distributed arrays: tiles, owners, what is refused, and what one rank does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.in_process_ranks import PlannedRanks

import ostinato as ost
from ostinato.ranks.distribution import choose_grid


@ost.task
def smooth(source: ost.Read, target: ost.Write) -> None:
    target[...] = source[:-2] + 2 * source[1:-1] + source[2:]


@pytest.fixture
def ranks() -> ost.Ranks:
    return ost.Ranks()


def test_tiles_cover_all_but_the_margin_once(ranks: ost.Ranks) -> None:
    a = ranks.array((11, 9), tiles=(3, 2))
    seen = np.zeros((11, 9), int)
    tiles = list(a.tiles(margin=1))
    for tile in tiles:
        seen[tile.inner] += 1
        assert all(outer.start == inner.start - 1 for outer, inner in zip(tile.halo, tile.inner, strict=True))
        assert all(outer.stop == inner.stop + 1 for outer, inner in zip(tile.halo, tile.inner, strict=True))
        assert tile.rank == 0
    assert (seen[1:-1, 1:-1] == 1).all()
    assert seen.sum() == 9 * 7
    assert [tile.index for tile in tiles] == sorted(tile.index for tile in tiles)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("margin", [0, 1, 2])
def test_each_element_has_one_owner_and_tiles_lie_with_theirs(size: int, margin: int) -> None:
    arrays = [PlannedRanks(rank, size).array((23, 19), tiles=(5, 4)) for rank in range(size)]
    seen = np.zeros((23, 19), int)
    for rank, a in enumerate(arrays):
        near = list(a.tiles(margin, near=1))
        mine = [tile for tile in a.tiles(margin) if tile.rank == rank]
        assert [tile for tile in near if tile.rank == rank] == mine
        assert set(map(str, near)) == {
            str(tile)
            for tile in a.tiles(margin)
            for own in mine
            if max(abs(i - j) for i, j in zip(tile.index, own.index, strict=True)) <= 1
        }
        for box, view in a.local:
            seen[box] += 1
            assert view.shape == seen[box].shape
        for tile in mine:
            box = tuple((part.start, part.stop) for part in tile.inner)
            assert set(a.layout.parts(box)) == {rank}
    assert (seen == 1).all()


def test_near_tiles_are_those_beside_the_ranks_own() -> None:
    a = PlannedRanks(1, 4).array(80, tiles=16)
    assert [tile.index[0] for tile in a.tiles(near=0)] == [4, 5, 6, 7]
    assert [tile.index[0] for tile in a.tiles(near=1)] == [3, 4, 5, 6, 7, 8]
    owned = PlannedRanks(1, 2).array((4, 4), tiles=(4, 4), owner=lambda index: int(index == (1, 1)))
    assert [tile.index for tile in owned.tiles(near=1)] == [(i, j) for i in range(3) for j in range(3)]
    assert [len(list(PlannedRanks(rank, 4).array(4, tiles=2).tiles(near=1))) for rank in range(4)].count(0) == 2


def test_blocks_are_as_even_as_they_can_be() -> None:
    assert choose_grid((64, 64), 1) == (1, 1)
    assert choose_grid((64, 64), 2) == (2, 1)
    assert choose_grid((64, 64), 16) == (4, 4)
    assert choose_grid((1, 8), 4) == (1, 4)
    assert choose_grid((8,), 3) == (3,)


def test_without_tiles_each_element_is_one_and_has_the_owner_of_a_tile_elsewhere() -> None:
    for size in (1, 2, 3, 6):
        a = PlannedRanks(0, size).array((26, 20), tiles=(6, 4))
        parts = PlannedRanks(0, size).array((6, 4))
        assert [tile.index for tile in parts.tiles()] == [tile.index for tile in a.tiles(margin=1)]
        assert [tile.rank for tile in parts.tiles()] == [tile.rank for tile in a.tiles(margin=1)]


def test_shape_dtype_and_slices(ranks: ost.Ranks) -> None:
    a = ranks.array((4, 6), np.float32, tiles=(2, 2))
    assert (a.shape, a.dtype, a.ndim, len(a)) == ((4, 6), np.float32, 2, 4)
    assert (a[1:3].shape, a[1, 2].shape, a[..., ::2].shape) == ((2, 6), (), (4, 3))
    assert "DistributedArray" in repr(a)
    assert "slice" in repr(a[1:])


@pytest.mark.parametrize(
    "use",
    [
        lambda a: a + 1,
        lambda a: np.sum(a),
        lambda a: np.asarray(a),
        lambda a: np.add(a, 1),
        lambda a: a.sum(),
        lambda a: a.T,
        lambda a: a.reshape(-1),
        lambda a: a[[0, 1]],
        lambda a: a[a],
        lambda a: bool(a),
        lambda a: float(a[0, 0]),
        lambda a: a.__setitem__(0, 1.0),
        lambda a: a[1:] * 2,
        lambda a: memoryview(a),
        lambda a: a == a,
        lambda a: np.array([a, a]),
    ],
)
def test_no_other_operation_of_numpy_works(ranks: ost.Ranks, use: Any) -> None:
    with pytest.raises(TypeError):
        use(ranks.array((4, 6)))


def test_bad_arguments_say_what_must_be(ranks: ost.Ranks) -> None:
    with pytest.raises(ValueError, match="4 elements, which cannot be cut into 5 tiles"):
        ranks.array(4, tiles=5)
    with pytest.raises(ValueError, match="an entry for each of 2 axes"):
        ranks.array((4, 4), tiles=(2,))
    with pytest.raises(TypeError, match="numbers"):
        ranks.array(4, object)
    with pytest.raises(TypeError, match="owner must be a function"):
        ranks.array(4, owner=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="from 0 to 0, got 1"):
        ranks.array(4, owner=lambda _: 1)
    with pytest.raises(TypeError, match="must return a rank"):
        ranks.array(4, owner=lambda _: "a")  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueError, match="shape"):
        ranks.array(0)
    a = ranks.array(8, tiles=4)
    with pytest.raises(ValueError, match="margin of 3 leaves 2 of 8"):
        a.tiles(margin=3)
    with pytest.raises((ValueError, TypeError)):
        a.tiles(margin=0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="near"):
        a.tiles(near=-1)
    with pytest.raises(ValueError, match="broadcast"):
        a.set(np.zeros(7))
    with pytest.raises(ValueError, match="root"):
        a.get(root=1)


def test_set_get_and_local(ranks: ost.Ranks) -> None:
    a = ranks.array((3, 4), int)
    assert not a.get().any()
    a.set(np.arange(12).reshape(3, 4))
    assert a.get(root=0).tolist() == np.arange(12).reshape(3, 4).tolist()
    a.set(lambda box: np.full(tuple(part.stop - part.start for part in box), 7))
    ((box, view),) = a.local
    view[0] = 1
    assert a.get()[box].tolist() == [[1] * 4, [7] * 4, [7] * 4]
    a.get()[...] = 9  # a copy
    assert a.get()[0, 0] == 1


def test_set_and_get_are_no_statements_of_a_step(ranks: ost.Ranks) -> None:
    a = ranks.array(4)
    for use in (lambda: a.set(1.0), a.get):
        with pytest.raises(ost.GraphError, match="inside a capture"), ost.capture():
            use()


@pytest.mark.parametrize("captured", [False, True])
def test_a_step_on_one_rank(ranks: ost.Ranks, captured: bool) -> None:
    a, b = (ranks.array(18, tiles=4) for _ in range(2))
    start = np.random.default_rng(1).random(18)
    a.set(start)
    b.set(start)
    parts, largest = ranks.array(4), np.zeros(1)
    u = ost.ring(a, b)

    def step(u: Any, parts: Any, largest: Any) -> None:
        for tile in a.tiles(margin=1, near=1):
            smooth(u[0][tile.halo], u[1][tile.inner])
            ost.copy(u[1][tile.inner][:1], parts[tile.index[0] : tile.index[0] + 1])
        ranks.fold(parts, largest, "sum")

    if captured:
        with ost.capture() as graph:
            step(u, parts, largest)
        program = graph.compile()
    else:
        program = ost.compile(step, u, parts, largest)
    with program:
        program.replay(5)
        assert program.current(u) is b
        assert program.verify(2)
    x, y = start.copy(), start.copy()
    for _ in range(5):
        y[1:-1] = x[:-2] + 2 * x[1:-1] + x[2:]
        x, y = y, x
    assert b.get().tobytes() == x.tobytes()
    assert largest[0] == ((x[1] + x[5]) + x[9]) + x[13]


def test_rebind_takes_an_array_that_is_distributed_alike(ranks: ost.Ranks) -> None:
    a, b, other = ranks.array(6, tiles=3), ranks.array(6, tiles=3), ranks.array(6, tiles=2)
    with ost.capture() as graph:
        ost.fill(a[2:4], 5.0)
    with graph.compile() as program:
        for bad in (other, np.zeros(6), b[:]):
            with pytest.raises(ost.GraphError, match="same shape, tiles and owner"):
                program.rebind({a: bad})
        program.rebind({a: b})
        program.replay()
    assert (a.get().tolist(), b.get().tolist()) == ([0.0] * 6, [0, 0, 5, 5, 0, 0])


def test_a_task_called_outside_a_step_is_refused(ranks: ost.Ranks) -> None:
    with pytest.raises(TypeError, match="outside a capture"):
        smooth(ranks.array(4), ranks.array(2))


def test_a_plain_parameter_takes_no_distributed_array(ranks: ost.Ranks) -> None:
    @ost.task
    def use(x: ost.ReadWrite, y) -> None: ...

    with pytest.raises(TypeError), ost.capture():
        use(np.zeros(3), ranks.array(3))


def test_an_array_has_one_margin_if_owners_depend_on_it() -> None:
    a = PlannedRanks(0, 3).array(32, tiles=6)
    a.tiles(margin=1)
    with pytest.raises(ValueError, match="margin must be 1"):
        a.tiles(margin=5)
    b = PlannedRanks(0, 3).array(32, tiles=6)
    assert b.local
    with pytest.raises(ValueError, match=r"margin must be 0, .*, got 4"):
        b.tiles(margin=4)


@pytest.mark.parametrize("rank", range(3))
def test_what_is_set_before_a_margin_is_known_is_there_afterwards(rank: int) -> None:
    a = PlannedRanks(rank, 3).array(32, tiles=6)
    a.set(np.arange(32.0))
    a.tiles(margin=4)
    for box, view in a.local:
        assert view.tolist() == np.arange(32.0)[box].tolist()


class TestFold:
    def test_it_combines_from_the_left(self, ranks: ost.Ranks) -> None:
        parts, out = ranks.array((2, 3)), np.full(1, 100.0)
        values = np.random.default_rng(0).random((2, 3)) * 10.0 ** np.arange(6).reshape(2, 3)
        parts.set(values)
        functions = {"sum": lambda a, b: a + b, "prod": lambda a, b: a * b, "min": min, "max": max}
        for op, function in (*functions.items(), (lambda a, b: a - 2 * b, lambda a, b: a - 2 * b)):
            with ost.capture() as graph:
                ranks.fold(parts, out, op)  # type: ignore[arg-type]
            with graph.compile() as program:
                program.replay()
            wanted = values.flat[0]
            for value in values.flat[1:]:
                wanted = function(wanted, value)
            assert out[0] == wanted

    def test_bad_arguments(self, ranks: ost.Ranks) -> None:
        parts = ranks.array(3)
        with ost.capture() as graph:
            ost.fill(np.zeros(1), 0)
            with pytest.raises(ValueError, match="'sum', 'prod', 'min', 'max'"):
                ranks.fold(parts, np.zeros(1), "mean")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="or a function"):
                ranks.fold(parts, np.zeros(1), 3)  # type: ignore[arg-type]
            with pytest.raises(ost.GraphError, match="one element"):
                ranks.fold(parts, np.zeros(2), "sum")
            with pytest.raises(TypeError, match="NumPy array"):
                ranks.fold(parts, ranks.array(1), "sum")
            with pytest.raises(TypeError, match="cannot combine"):
                ranks.fold(parts, np.zeros(1, int), "sum")
            with pytest.raises(TypeError, match="must be an array"):
                ranks.fold(3, np.zeros(1), "sum")
        assert len(graph) == 1
        with pytest.raises(RuntimeError):
            ranks.fold(parts, np.zeros(1), "sum")
