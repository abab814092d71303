"""Which lanes graphs of known shapes get."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.compiler.ir import COMMON, Edges, Placement, edges_of
from ostinato.compiler.schedule.place import check, find_order, find_placement
from ostinato.compiler.target import MachineModel


def placed(
    edges: Edges,
    seconds,
    threads: int = 2,
    pins=None,
    gil=None,
    takes=None,
    varied: bool = False,
    known: bool = False,
    steady: bool = False,
    model: MachineModel = COMMON,
) -> Placement:
    ops = len(seconds)
    return find_placement(
        edges,
        np.asarray(seconds, np.float64),
        threads=threads,
        thread_of=np.full(ops, -1, np.int32) if pins is None else np.array(pins, np.int32),
        gil_bound=np.zeros(ops, np.bool_) if gil is None else np.array(gil),
        takes_gil=np.zeros(ops, np.bool_) if takes is None else np.array(takes),
        varied=varied,
        known=known,
        steady=steady,
        model=model,
    )


def ordered(edges: Edges, seconds, placement: Placement, priority=None, gil=None) -> list[int]:
    ops = len(seconds)
    found = find_order(
        edges,
        np.asarray(seconds, np.float64),
        placement,
        np.zeros(ops, np.int32) if priority is None else np.array(priority, np.int32),
        np.zeros(ops, np.bool_) if gil is None else np.array(gil),
    )
    check(edges, placement.lane, found)
    return found.tolist()


@pytest.mark.parametrize(("seconds", "lanes"), [(2e-6, 1), (20e-6, 2)])
def test_threads_that_take_the_gil_pay_for_handing_it_over(seconds: float, lanes: int) -> None:
    model = MachineModel(cores=2, hand_over=4e-6)
    found = placed(edges_of(8, [], [], []), [seconds] * 8, takes=[True] * 8, known=True, steady=True, model=model)
    assert len(found.affinity) == lanes
    assert found.step_seconds == pytest.approx((8 if lanes == 1 else 4) * (seconds + (lanes - 1) * 4e-6))
    mixed = placed(
        edges_of(8, [], [], []), [seconds] * 8, takes=[True] * 4 + [False] * 4, known=True, steady=True, model=model
    )
    assert mixed.step_seconds == pytest.approx(4 * seconds)
    assert len(set(mixed.lane[:4].tolist())) == 1


def stencil(width: int) -> Edges:
    pairs = [(j, i) for i in range(width) for j in (i - 1, i, i + 1) if 0 <= j < width]
    return edges_of(width, *np.array(pairs).T, np.ones(len(pairs)))


def layers(width: int, depth: int, inputs) -> Edges:
    """Layers of ops, op i of one after the ops `inputs(i, layer)` of the one before; the first after the last."""
    triples = []
    for layer in range(depth):
        for i in range(width):
            before = (layer - 1) % depth
            triples += [(before * width + j, layer * width + i, int(layer == 0)) for j in inputs(i, layer)]
    return edges_of(width * depth, *np.array(triples).T)


def test_a_stencil_is_cut_in_halves() -> None:
    assert placed(stencil(16), [300e-9] * 16).lane.tolist() == [0] * 8 + [1] * 8


@pytest.mark.parametrize("seconds", [300e-9, 900e-9])
@pytest.mark.parametrize(
    "inputs", [lambda i, layer: {i, i ^ (1 << layer % 3)}, lambda i, layer: range(8)], ids=["fft", "all_to_all"]
)
def test_layers_are_cut_in_halves(inputs, seconds: float) -> None:
    edges = layers(8, 3, inputs)
    assert placed(edges, [seconds] * 24).lane.tolist() == ([0] * 4 + [1] * 4) * 3


@pytest.mark.parametrize("edges", [stencil(16), layers(8, 3, lambda i, layer: range(8))], ids=["stencil", "all_to_all"])
def test_tiny_ops_stay_on_one_lane(edges: Edges) -> None:
    assert len(placed(edges, [6e-9] * int(edges.dst.max() + 1)).affinity) == 1


def test_a_chain_stays_on_one_lane() -> None:
    ops = 50
    chain = edges_of(ops, np.arange(ops), (np.arange(ops) + 1) % ops, np.arange(ops) == ops - 1)
    assert len(placed(chain, [1e-6] * ops).affinity) == 1


def test_a_chain_of_stages_becomes_a_pipeline() -> None:
    ops = 8
    src = [*range(ops - 1), *range(ops)]
    dst = [*range(1, ops), *range(ops)]
    stages = edges_of(ops, src, dst, [0] * (ops - 1) + [1] * ops)
    found = placed(stages, [10e-6] * ops)
    assert found.step_seconds == pytest.approx(ops * 10e-6 / 2, rel=0.1)


def test_long_ops_get_lanes_to_spare() -> None:
    found = placed(stencil(16), [10e-6] * 16)
    assert found.affinity.tolist() == [0] * 4 + [1] * 4
    assert found.lane.tolist() == sorted(found.lane.tolist())


@given(st.lists(st.floats(10e-6, 500e-6), min_size=12, max_size=40), st.integers(2, 4) | st.just(36))
def test_irregular_ops_are_spread_well(seconds: list[float], threads: int) -> None:
    ops = len(seconds)
    alone = edges_of(ops, np.arange(ops), np.arange(ops), np.ones(ops))
    found = placed(alone, seconds, threads, varied=True)
    # No more than the bound that any list schedule keeps, and most of the time far less.
    assert found.step_seconds <= sum(seconds) / threads + max(seconds)


def mixed(seed: int, ops: int) -> tuple[Edges, np.ndarray]:
    """A random graph of ops of 0.1 us to 1 ms, any order of magnitude as likely as any other."""
    draw = np.random.default_rng((seed, ops))
    triples = {(int(a), b, 0) for b in range(1, ops) for a in draw.choice(b, min(b, draw.integers(3)), replace=False)}
    triples |= {(op, op, 1) for op in range(ops) if draw.random() < 0.7}
    triples |= {(int(a), int(b), 1) for a, b in draw.integers(0, ops, (ops // 4, 2))}
    return edges_of(ops, *np.array(sorted(triples)).T), np.exp(draw.uniform(np.log(1e-7), np.log(1e-3), ops))


@pytest.mark.parametrize("ops", [4, 6, 8])
@pytest.mark.parametrize("seed", range(6))
def test_small_graphs_are_placed_about_as_well_as_can_be(ops: int, seed: int) -> None:
    edges, seconds = mixed(seed, ops)
    found = placed(edges, seconds, known=True, steady=True)
    every = [[number >> op & 1 for op in range(ops)] for number in range(2 ** (ops - 1))]
    best = min(placed(edges, seconds, pins=pins).step_seconds for pins in every)
    assert found.step_seconds <= 1.1 * best


def alone(ops: int) -> Edges:
    return edges_of(ops, np.arange(ops), np.arange(ops), np.ones(ops))


def test_ops_that_gain_next_to_nothing_stay_on_one_lane() -> None:
    assert len(placed(alone(16), [2e-9] * 16, known=True).affinity) == 1
    assert len(placed(alone(16), [200e-9] * 16, known=True).affinity) == 2


def test_less_must_be_gained_where_costs_are_known() -> None:
    assert len(placed(alone(2), [10e-6, 1e-6]).affinity) == 1
    assert len(placed(alone(2), [10e-6, 1e-6], known=True).affinity) == 2
    assert len(placed(alone(2), [10e-6, 0.5e-6], known=True).affinity) == 1


def test_a_second_thread_must_pay_in_doubt() -> None:
    # Two that wait for each other in every step: 0.5 us and a transfer, instead of 1 us. One that was measured very
    # short is not relied on.
    both = edges_of(2, [0, 1, 0, 1], [0, 0, 1, 1], [1] * 4)
    assert len(placed(both, [500e-9] * 2, known=True, model=MachineModel(cores=2, transfer=200e-9)).affinity) == 1
    assert len(placed(both, [500e-9] * 2, known=True, model=MachineModel(cores=2, transfer=50e-9)).affinity) == 2
    assert len(placed(both, [280e-9] * 2, known=True, model=MachineModel(cores=2, transfer=20e-9)).affinity) == 1


def test_who_sleeps_in_every_step_must_be_rung() -> None:
    # The second op waits for the first one longer than a thread polls.
    edges = edges_of(2, [0, 0, 1], [0, 1, 1], [1, 0, 1])
    seconds = [400e-6, 40e-6]
    assert len(placed(edges, seconds, known=True, model=MachineModel(cores=2, notify=1e-6)).affinity) == 2
    assert len(placed(edges, seconds, known=True, model=MachineModel(cores=2, notify=50e-6)).affinity) == 1


def test_waking_late_lengthens_a_step() -> None:
    # Each waits for the other for long.
    edges = edges_of(2, [0, 1], [1, 0], [0, 1])
    late = [placed(edges, [1e-3] * 2, pins=[0, 1], model=MachineModel(cores=2, wake=wake)) for wake in (0.0, 50e-6)]
    assert late[1].step_seconds - late[0].step_seconds == pytest.approx(100e-6, rel=0.1)
    short = placed(edges, [10e-6] * 2, pins=[0, 1], model=MachineModel(cores=2, wake=50e-6))
    assert short.step_seconds == pytest.approx(20e-6, rel=0.1)


def test_steady_ops_get_one_lane_a_thread() -> None:
    edges, seconds = mixed(2, 24)
    assert len(placed(edges, seconds, varied=True, known=True).affinity) > 2
    assert len(placed(edges, seconds, varied=True, known=True, steady=True).affinity) == 2


def test_several_lanes_must_not_cost_too_much() -> None:
    edges, seconds = stencil(16), [10e-6] * 16
    assert len(placed(edges, seconds, model=MachineModel(cores=2, switch=100e-9)).affinity) == 8
    assert len(placed(edges, seconds, model=MachineModel(cores=2, switch=10e-6)).affinity) == 2


def test_pinned_ops_get_lanes_that_nobody_takes() -> None:
    found = placed(stencil(4), [1e-6] * 4, pins=[-1, 1, -1, 3])
    for op, thread in ((1, 1), (3, 3)):
        assert found.affinity[found.lane[op]] == thread
        assert found.pinned[found.lane[op]]


def test_ops_that_hold_the_gil_share_a_lane() -> None:
    gil = [True, False] * 8
    found = placed(stencil(16), [1e-6] * 16, gil=gil)
    (lane,) = set(found.lane[np.array(gil)].tolist())
    assert found.affinity[lane] == 0
    assert len(placed(stencil(16), [1e-6] * 16, gil=[True] * 16).affinity) == 1


def test_ops_that_hold_the_gil_follow_a_pinned_one() -> None:
    found = placed(stencil(4), [1e-6] * 4, pins=[-1, 1, -1, -1], gil=[True, True, False, False])
    assert found.lane[0] == found.lane[1]
    assert found.affinity[found.lane[0]] == 1


def test_more_threads_than_ops() -> None:
    found = placed(edges_of(2, [0, 1], [0, 1], [1, 1]), [1e-3] * 2, threads=64)
    assert sorted(found.lane.tolist()) == [0, 1]


def test_an_empty_graph_has_no_lanes() -> None:
    found = placed(edges_of(0, [], [], []), [])
    assert len(found.affinity) == 0
    assert ordered(edges_of(0, [], [], []), [], found) == []


@st.composite
def cases(draw: st.DrawFn):
    ops = draw(st.integers(1, 12))
    position = draw(st.permutations(range(ops)))
    op = st.integers(0, ops - 1)
    drawn = draw(st.lists(st.tuples(op, op, st.integers(0, 2)), max_size=20))
    triples = [(a, b, d if position[a] < position[b] else max(d, 1)) for a, b, d in drawn]
    edges = edges_of(ops, *np.array(triples).reshape(-1, 3).T)
    each = lambda values: st.lists(values, min_size=ops, max_size=ops)  # noqa: E731
    seconds = draw(each(st.sampled_from([0.0, 5e-9, 1e-6, 1e-4])))
    pins = draw(each(st.sampled_from([-1, -1, -1, 0, 2])))
    gil = draw(each(st.booleans()))
    priority = draw(each(st.integers(-1, 1)))
    told = [draw(st.booleans()) for _ in ("varied", "known", "steady")]
    return edges, seconds, draw(st.integers(1, 5)), pins, gil, priority, told


@given(cases())
def test_any_schedule_keeps_its_promises(case) -> None:
    edges, seconds, threads, pins, gil, priority, told = case
    found = placed(edges, seconds, threads, pins, gil, *told)
    again = placed(edges, seconds, threads, pins, gil, *told)
    assert found.lane.tolist() == again.lane.tolist()
    assert sorted(set(found.lane.tolist())) == list(range(len(found.affinity)))
    for op, pin in enumerate(pins):
        if pin >= 0:
            assert found.affinity[found.lane[op]] == pin
            assert found.pinned[found.lane[op]]
    assert all(home < max(threads, 3) for home in found.affinity)
    assert len({int(found.lane[op]) for op in range(len(gil)) if gil[op] and pins[op] < 0}) <= 1
    for urgency in (None, priority):
        positions = {op: place for place, op in enumerate(ordered(edges, seconds, found, urgency, gil))}
        for src, dst, distance in zip(*edges, strict=True):
            assert distance or positions[src] < positions[dst]


def one_lane(ops: int) -> Placement:
    return Placement(np.zeros(ops, np.int32), np.zeros(1, np.int32), np.zeros(1, np.bool_), 0.0)


def test_urgent_ops_come_first() -> None:
    edges = edges_of(4, [0], [3], [0])
    assert ordered(edges, [1e-6] * 4, one_lane(4), priority=[0, 0, 1, 9]) == [2, 0, 3, 1]


def test_ops_that_hold_the_gil_stand_together() -> None:
    gil = [True, False] * 4
    found = ordered(edges_of(8, [], [], []), [1e-6] * 8, one_lane(8), gil=gil)
    assert [gil[op] for op in found] in ([True] * 4 + [False] * 4, [False] * 4 + [True] * 4)


def test_one_lane_keeps_program_order() -> None:
    assert ordered(edges_of(4, [0, 2], [3, 3], [0, 0]), [1e-6, 5e-6, 1e-6, 9e-6], one_lane(4)) == [0, 1, 2, 3]


def test_what_another_lane_waits_for_comes_first() -> None:
    # Op 3 leads to a chain on the other lane, for which the next step waits.
    lane = np.array([0, 0, 0, 0, 1, 1], np.int32)
    two = Placement(lane, np.array([0, 1], np.int32), np.zeros(2, np.bool_), 0.0)
    edges = edges_of(6, [3, 4, *range(6)], [4, 5, *range(6)], [0, 0, *[1] * 6])
    ring_of_steps = edges_of(6, [*edges.src, 5], [*edges.dst, 0], [*edges.distance, 1])
    assert ordered(ring_of_steps, [1e-6] * 6, two)[0] == 3


@pytest.mark.parametrize("seconds", [1e-6, 4e-6])
@pytest.mark.parametrize("inputs", [lambda i, layer: {i, (5 * i + layer) % 16, (3 * i + 7) % 16}, lambda i, layer: {i}])
def test_a_thread_stays_with_a_lane_that_goes_on(seconds: float, inputs) -> None:
    """Turning to another lane after each op would cost so much that even ops of a microsecond stayed on one thread."""
    found = placed(layers(16, 8, inputs), [seconds] * 128, varied=True)
    assert set(found.affinity.tolist()) == {0, 1}
    assert 64 * seconds <= found.step_seconds < 85 * seconds
