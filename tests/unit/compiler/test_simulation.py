"""What a schedule would take on a machine: small ones by hand, any by an oracle, and what must hold of all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from compiler.replay_oracle import Oracle
from ostinato import _core
from ostinato.compiler.costs import cost_as_given
from ostinato.compiler.ir import Executable, Target
from ostinato.compiler.pipeline.arrangement import AWAY, GIL, THREAD, Arrangement, find_volumes
from ostinato.compiler.pipeline.compile import compile
from ostinato.compiler.target import MachineModel
from ostinato.view.simulation import Prediction, predict_seconds, simulate

US = 1e-6
MODEL = MachineModel(cores=2, transfer=0.1 * US, poll=0.0, switch=0.25 * US, wake=10 * US, notify=3 * US)


def arrangement(
    lanes: list[list[int]],
    affinities: list[int],
    seconds: list[float],
    waits: list[tuple[int, int, int]] = (),
    *,
    threads: int | None = None,
    threads_a_node: int | None = None,
    pinned: list[int] | None = None,
    manner: list[int] | None = None,
    spread: list[float] | None = None,
    link: float = 2 * US,
    until: tuple[int, int] = (-1, 1),
    window: int = 16,
) -> Arrangement:
    """Lanes of ops; waits are triples: who waits, for whom, how many steps before."""
    ops = len(seconds)
    of = [sorted((op, distance) for waiting, op, distance in waits if waiting == each) for each in range(ops)]
    begin = np.cumsum([0, *map(len, of)]).astype(np.int64)
    threads = threads or max(affinities) + 1
    a_node = threads_a_node or threads
    lane_of = {op: lane for lane, own in enumerate(lanes) for op in own}
    delays = [
        MODEL.transfer if affinities[lane_of[op]] // a_node == affinities[lane_of[each]] // a_node else link
        for each in range(ops)
        for op, _ in of[each]
    ]
    return Arrangement(
        lane_begin=np.cumsum([0, *map(len, lanes)]).astype(np.int64),
        lane_ops=np.array([op for own in lanes for op in own], np.int32),
        affinity=np.array(affinities, np.int32),
        pinned=np.array(pinned or [0] * len(lanes), np.uint8),
        seconds=np.array(seconds, np.float64),
        spread=np.array(spread or [0.0] * ops, np.float64),
        manner=np.array(manner or [THREAD] * ops, np.uint8),
        wait_begin=begin,
        wait_op=np.array([op for each in of for op, _ in each], np.int32),
        wait_distance=np.array([distance for each in of for _, distance in each], np.int32),
        wait_delay=np.array(delays, np.float64),
        until_op=until[0],
        until_every=until[1],
        window_period=window,
        threads=threads,
        threads_a_node=a_node,
        number=np.arange(len(lanes), dtype=np.int32),
    )


def step_seconds(*args, steps: int = 64, model: MachineModel = MODEL, **kwargs) -> float:
    return arrangement(*args, **kwargs).replayed(model, steps, 1, 0)["step_seconds"]


def nearly(seconds: float) -> object:
    """Every 16 steps lanes look at each other, which is less than 1 %; turns that begin and end add as much."""
    return pytest.approx(seconds, rel=0.02)


def test_one_lane_takes_what_its_ops_take() -> None:
    assert step_seconds([[0, 1, 2]], [0], [1 * US, 2 * US, 4 * US]) == nearly(7 * US)


def test_the_longer_of_two_lanes_counts() -> None:
    assert step_seconds([[0], [1]], [0, 1], [1 * US, 3 * US]) == nearly(3 * US)


def test_ops_that_wait_for_each_other_within_a_step_pay_two_transfers() -> None:
    found = step_seconds([[0], [1]], [0, 1], [1 * US, 2 * US], [(1, 0, 0), (0, 1, 1)])
    assert found == nearly(3.2 * US)


def test_a_wait_for_the_step_before_hides_what_it_can() -> None:
    """Each lane has its own op first, and then one that needs the other's: that has come by then, and is fetched."""
    waits = [(1, 2, 1), (3, 0, 1)]
    found = step_seconds([[0, 1], [2, 3]], [0, 1], [1 * US] * 4, waits)
    assert found == nearly(2.05 * US)  # half a transfer


def test_two_lanes_of_a_thread_pay_for_each_turn() -> None:
    found = step_seconds([[0], [1]], [0, 0], [1 * US] * 2, [(1, 0, 0), (0, 1, 1)], pinned=[1, 1])
    assert found == nearly(2.5 * US)


def test_lanes_of_a_busy_thread_are_taken_up_by_an_idle_one() -> None:
    """Two lanes at affinity on one thread, none on the other."""
    seconds = [10 * US, 10 * US]
    alone = step_seconds([[0], [1]], [0, 0], seconds)
    helped = step_seconds([[0], [1]], [0, 0], seconds, threads=2)
    pinned = step_seconds([[0], [1]], [0, 0], seconds, threads=2, pinned=[1, 1])
    assert alone == nearly(20 * US)
    assert helped == nearly(10 * US)
    assert pinned == nearly(20 * US)


def test_ops_that_hold_the_gil_are_run_one_at_a_time() -> None:
    seconds = [3 * US, 5 * US]
    assert step_seconds([[0], [1]], [0, 1], seconds, manner=[GIL, GIL]) == nearly(8 * US)
    assert step_seconds([[0], [1]], [0, 1], seconds, manner=[GIL, THREAD]) == nearly(5 * US)


def test_nodes_have_a_gil_each() -> None:
    found = step_seconds([[0], [1]], [0, 1], [3 * US, 5 * US], manner=[GIL, GIL], threads_a_node=1)
    assert found == nearly(5 * US)


def test_what_runs_elsewhere_leaves_its_thread_free() -> None:
    seconds = [30 * US, 30 * US]
    assert step_seconds([[0], [1]], [0, 0], seconds, manner=[AWAY, AWAY]) == nearly(30 * US)
    assert step_seconds([[0], [1]], [0, 0], seconds, manner=[THREAD, THREAD]) == nearly(60 * US)


def test_a_message_takes_a_link() -> None:
    waits = [(1, 0, 0), (0, 1, 1)]
    found = step_seconds([[0], [1]], [0, 1], [1 * US, 2 * US], waits, threads_a_node=1, link=7 * US)
    assert found == nearly(17 * US)


def test_a_thread_that_slept_wakes_late() -> None:
    """The second lane waits for 200 us, which no thread polls for; the first pays for the ring."""
    waits = [(1, 0, 0), (0, 1, 1)]
    found = step_seconds([[0], [1]], [0, 1], [200 * US, 200 * US], waits, pinned=[1, 1])
    assert found == nearly((400 + 2 * 10) * US)
    assert step_seconds([[0], [1]], [0, 1], [200 * US, 200 * US], waits) == nearly(400 * US)  # one runs both


def test_all_wait_for_the_verdict() -> None:
    found = step_seconds([[0], [1]], [0, 1], [4 * US, 1 * US], until=(0, 1))
    assert found == nearly(4 * US)
    other = step_seconds([[0, 1], [2]], [0, 1], [2 * US, 2 * US, 3 * US], until=(1, 1))
    assert other == nearly(4 * US)
    late = step_seconds([[0], [1]], [0, 1], [1 * US, 4 * US], [(0, 1, 0)], until=(0, 1))
    assert late == nearly(5.2 * US)


def test_a_lane_gets_no_further_ahead_than_the_core_lets_it() -> None:
    """With longer ops, every 16 steps the slow lane rings the thread of the fast one, which sleeps."""
    found = arrangement([[0], [1]], [0, 1], [1 * US, 8 * US], window=16).replayed(MODEL, 256, 16, 0)
    assert found["step_seconds"] == nearly((8 + 3 / 16) * US)
    ahead = found["start"][:, 1] - found["start"][:, 0]
    assert ahead.max() < 32 * 8 * US


def test_lanes_that_wait_for_each_other_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="fault of Ostinato's"):
        step_seconds([[0], [1]], [0, 1], [1 * US] * 2, [(0, 1, 0), (1, 0, 0)])


# --- the oracle ---


@st.composite
def arrangements(draw: st.DrawFn) -> Arrangement:
    ops = draw(st.integers(1, 10))
    lanes_n = draw(st.integers(1, min(ops, 5)))
    lane = [draw(st.integers(0, lanes_n - 1)) for _ in range(ops)]
    lane = np.unique(lane, return_inverse=True)[1].tolist()
    lanes = [[op for op in range(ops) if lane[op] == each] for each in range(max(lane) + 1)]
    threads = draw(st.integers(1, 4))
    affinities = sorted(draw(st.integers(0, threads - 1)) for _ in lanes)
    a_node = draw(st.sampled_from([threads, threads, 1, 2]))
    a_node = a_node if threads % a_node == 0 else threads
    waits = []
    for op in range(ops):
        for source in range(ops):
            if lane[op] == lane[source] or draw(st.integers(0, 3)):
                continue
            waits.append((op, source, draw(st.integers(0 if source < op else 1, 2))))
    # No two times are equal by chance: of equals, either may come first.
    scale = draw(st.sampled_from([1.0, 30.0, 150.0]))
    seconds = [draw(st.integers(1, 2**30)) / 2**30 * scale * US for _ in range(ops)]
    return arrangement(
        lanes,
        affinities,
        seconds,
        waits,
        threads=threads,
        threads_a_node=a_node,
        pinned=[draw(st.integers(0, 1)) for _ in lanes],
        manner=[draw(st.sampled_from([THREAD, THREAD, THREAD, GIL, AWAY])) for _ in range(ops)],
        until=(draw(st.sampled_from([-1, -1, 0])), draw(st.integers(1, 3))),
        window=draw(st.sampled_from([4, 16])),
        link=draw(st.sampled_from([2.0, 37.0])) * US,
    )


@given(arrangements())
def test_it_says_what_the_plain_rules_say(given: Arrangement) -> None:
    model = replace(MODEL, transfer=0.1234567 * US, switch=0.2718281 * US, poll=0.0031415 * US)
    given = replace(given, wait_delay=np.where(given.wait_delay == MODEL.transfer, model.transfer, given.wait_delay))
    steps = 12
    oracle = Oracle(given, model)
    oracle.run(steps)
    found = given.replayed(model, steps, steps, 0)
    for step in range(steps):
        for op in range(given.ops):
            start, end, thread = oracle.began[step, op]
            told = found["start"][step, op], found["end"][step, op], found["thread"][step, op]
            assert told == pytest.approx((start, end, thread), abs=1e-12), (step, op)


@given(arrangements(), st.integers(2, 40))
def test_nothing_is_faster_than_its_work_or_its_longest_lane(given: Arrangement, steps: int) -> None:
    found = given.replayed(MODEL, steps, steps, 0)
    start, end = found["start"], found["end"]
    assert np.allclose(end - start, given.seconds, rtol=1e-6, atol=1e-15)
    for thread in range(given.threads):  # one op at a time
        own = (found["thread"] == thread) & (given.manner != AWAY)
        begins, ends = np.sort(start[own]), np.sort(end[own])
        assert (begins[1:] >= ends[:-1] - 1e-12).all()
    place = given.positions
    for lane in range(len(given.affinity)):  # in order
        ops = np.flatnonzero(given.lane_of == lane)
        ops = ops[np.argsort(place[ops])]
        assert (np.diff(start[:, ops].ravel()) >= 0).all()
        assert end[-1, ops].max() >= steps * given.seconds[ops].sum() * (1 - 1e-9)
    for op in range(given.ops):  # nothing before what it waits for
        for wait in range(given.wait_begin[op], given.wait_begin[op + 1]):
            distance = given.wait_distance[wait]
            assert (start[distance:, op] >= end[: steps - distance, given.wait_op[wait]] - 1e-12).all()
    busy = found["thread_busy"].sum()
    assert busy <= given.threads * found["span"] * (1 + 1e-9)
    chain = found["chain"]
    assert (start.ravel()[chain[1:]] >= end.ravel()[chain[:-1]] - 1e-12).all()
    assert end.ravel()[chain[-1]] == end[-1].max()


@given(arrangements(), st.integers(0, 2**32), st.floats(0.0, 1.0))
def test_it_says_the_same_whenever_it_is_asked(given: Arrangement, seed: int, spread: float) -> None:
    given = replace(given, spread=np.full(given.ops, spread))
    first, second = (given.replayed(MODEL, 8, 4, seed) for _ in range(2))
    assert all(np.array_equal(first[key], second[key]) for key in first)


def test_what_differs_from_step_to_step_is_spread_as_was_measured() -> None:
    given = arrangement([[0]], [0], [1 * US], spread=[0.4])
    found = given.replayed(MODEL, 4096, 4096, 7)
    took = (found["end"] - found["start"]).ravel() / US
    low, middle, high = np.percentile(took, [5, 50, 95])
    assert middle == pytest.approx(1, rel=0.03)
    assert (high - low) / 2 / middle == pytest.approx(0.4, rel=0.1)


# --- programs ---


def stencil(width: int, reach: int = 1) -> ost.Graph:
    graph = ost.Graph(infer=False)
    task = ost.native(_core.nothing_address(), ())
    ops = [graph.task(task, name=f"tile {tile}") for tile in range(width)]
    for tile, op in enumerate(ops):
        for other in range(max(tile - reach, 0), min(tile + reach + 1, width)):
            graph.edge(ops[other], op, 1)
    return graph


def scheduled(graph: ost.Graph, seconds: float = 10 * US, cores: int = 2) -> Executable:
    costs = cost_as_given({op: seconds for op in graph.ops})
    return compile(graph, Target(cores, cores, replace(MODEL, cores=cores)), costs)


def test_a_schedule_is_run_as_it_was_compiled() -> None:
    found = simulate(scheduled(stencil(16)), MODEL)
    assert isinstance(found, Prediction)
    assert found.work == pytest.approx(160 * US)
    assert found.step_seconds == pytest.approx(80 * US, rel=0.05)
    assert found.efficiency == pytest.approx(found.work / (2 * found.step_seconds))
    assert found.lanes["busy"].sum() == pytest.approx(found.work, rel=0.05)
    assert found.threads["busy"] == pytest.approx([80 * US] * 2, rel=0.05)
    assert 0 < found.bottleneck.share <= 1
    assert "bottleneck: lane" in str(found)
    assert "2 cores" in str(found)


def test_other_cores_place_ops_anew() -> None:
    compiled = scheduled(stencil(64))
    times = [simulate(compiled, replace(MODEL, cores=cores)).step_seconds for cores in (1, 2, 4, 16)]
    assert times == pytest.approx([640 * US, 320 * US, 160 * US, 40 * US], rel=0.1)


def test_a_chain_gains_nothing_from_cores() -> None:
    graph = ost.Graph(infer=False)
    task = ost.native(_core.nothing_address(), ())
    ops = [graph.task(task) for _ in range(4)]
    for before, after in zip(ops, ops[1:] + ops[:1], strict=True):
        graph.edge(before, after, int(after is ops[0]))
    compiled = scheduled(graph)
    for model in (MODEL, replace(MODEL, cores=64), replace(MODEL, cores=64, nodes=4)):
        assert simulate(compiled, model).step_seconds >= 40 * US * (1 - 1e-9)
    assert simulate(compiled, replace(MODEL, cores=64)).step_seconds == pytest.approx(40 * US)


def test_nodes_share_the_ops_and_pay_for_links() -> None:
    compiled = scheduled(stencil(64))
    near = simulate(compiled, replace(MODEL, cores=2, nodes=8, link_latency=1 * US))
    far = simulate(compiled, replace(MODEL, cores=2, nodes=8, link_latency=500 * US))
    assert near.step_seconds == pytest.approx(40 * US, rel=0.1)
    assert far.step_seconds > 200 * US
    assert "node to node" in far.bottleneck.reason
    assert len(near.threads) == 16
    assert set(near.lanes["thread"].tolist()) == set(range(16))


def test_copies_run_side_by_side() -> None:
    compiled = scheduled(stencil(8))
    one = simulate(compiled, MODEL).step_seconds
    many = simulate(compiled, replace(MODEL, nodes=16), copies=16)
    assert many.copies == 16
    assert many.work == pytest.approx(16 * 80 * US)
    assert one * (1 - 1e-6) <= many.step_seconds <= 1.1 * one + 10 * US
    slow = simulate(compiled, replace(MODEL, nodes=16, link_latency=1e-3), copies=16)
    assert slow.step_seconds > 1e-3
    halves = simulate(compiled, replace(MODEL, cores=4, nodes=2), copies=4)
    assert halves.step_seconds == pytest.approx(one, rel=0.2)


def test_a_hundred_thousand_lanes_take_seconds() -> None:
    found = simulate(scheduled(stencil(1), cores=1), replace(MODEL, cores=64, nodes=1563), copies=64 * 1563, steps=4)
    assert len(found.lanes) == 64 * 1563
    assert found.efficiency > 0.5


def test_the_timeline_is_a_trace(tmp_path) -> None:
    found = simulate(scheduled(stencil(4)), MODEL)
    records = found.timeline.records
    assert len(np.unique(records["step"])) == 16
    assert len(records) == 16 * 4
    assert records["start"].min() == 0
    assert np.abs(records["end"] - records["start"] - 10_000).max() <= 1
    assert found.timeline.op_names == [f"tile {tile}" for tile in range(4)]
    assert found.timeline.op_sites[0].count("test_simulation.py")
    found.timeline.save(tmp_path / "trace.json")
    pytest.importorskip("matplotlib")
    for suffix in ("png", "svg"):
        found.plot(tmp_path / f"alone.{suffix}")
        found.plot(tmp_path / f"both.{suffix}", measured=found.timeline)
        assert (tmp_path / f"both.{suffix}").stat().st_size > (tmp_path / f"alone.{suffix}").stat().st_size


def test_ops_of_copies_have_the_names_of_their_originals() -> None:
    found = simulate(scheduled(stencil(2)), replace(MODEL, nodes=2), copies=2)
    assert set(found.timeline.records["op"].tolist()) == {0, 1}
    assert found.timeline.lane_processors[-1].startswith("node 1 cpu:")


def test_a_rough_prediction_is_near_the_other() -> None:
    compiled = scheduled(stencil(16))
    assert predict_seconds(compiled, MODEL) == pytest.approx(simulate(compiled, MODEL).step_seconds, rel=0.05)


def test_steps_that_end_before_the_next_begins_are_run_so() -> None:
    graph = ost.Graph(infer=False)
    task = ost.native(_core.nothing_address(), ())
    for _ in range(2):
        graph.task(task)
    compiled = scheduled(graph, 100 * US)
    assert compiled.step.serial
    found = simulate(compiled, MODEL)
    assert found.step_seconds >= 100 * US
    assert len(found.timeline.records) == 2 * 16  # without the barrier between steps
    assert simulate(compiled, replace(MODEL, nodes=4), copies=4).step_seconds >= 100 * US


def test_a_graph_of_nothing_takes_nothing() -> None:
    found = simulate(scheduled(ost.Graph(infer=False)), MODEL)
    assert found.step_seconds == 0
    assert found.efficiency == 1
    assert len(found.timeline) == 0
    assert str(found)


@ost.task
def relax(source: ost.Read, target: ost.Write): ...


def test_only_what_one_writes_and_the_other_reads_is_passed() -> None:
    a, b = np.zeros((2, 12, 100))
    u = ost.ring(np.zeros((12, 100)), np.zeros((12, 100)))
    with ost.capture() as graph:
        relax(a, b)
        relax(b[3:5, ::2], a[:2])
        relax(u[0][0:7], u[1][1:6])
        relax(u[0][5:12], u[1][6:11])
    from ostinato.compiler.dependences import find_dependences
    from ostinato.compiler.flatten import flatten

    edges = find_dependences(flatten(graph))
    passed = find_volumes(graph.ops, edges)
    found = {
        edge: bytes_
        for edge, bytes_ in zip(zip(*(column.tolist() for column in edges), strict=True), passed.tolist(), strict=True)
        if bytes_
    }
    row = 100 * 8
    assert found[0, 1, 0] == 2 * 99 * 8  # steps count as if all between their ends were touched
    assert found[1, 0, 1] == 2 * row
    assert found[2, 3, 1] == row  # row 5
    assert found[3, 2, 1] == row  # row 6
    assert (0, 0, 1) not in found  # writes after writes, and after reads


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"model": 3}, TypeError, "MachineModel"),
        ({"copies": 0}, ValueError, "at least 1"),
        ({"copies": 2.0}, TypeError, "integer"),
        ({"copies": True}, TypeError, "integer"),
        ({"copies": 3}, ValueError, "got 3 for 1 nodes of 2 cores"),
        ({"steps": 1}, ValueError, "at least 2"),
        ({"steps": "many"}, TypeError, "integer"),
    ],
)
def test_wrong_questions(wrong: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        simulate(**{"executable": scheduled(stencil(2)), "model": MODEL, **wrong})


def test_a_program_answers_for_itself() -> None:
    with ost.Machine(cpus=2) as machine, stencil(4).compile(machine) as program:
        found = program.simulate(replace(MODEL, cores=4))
        assert len(found.threads) == 4
        assert program.simulate(replace(MODEL, nodes=2), copies=2).copies == 2
        assert program.simulate().step_seconds > 0


def test_ops_that_hold_the_gil_are_named_as_what_bounds_a_step() -> None:
    graph = ost.Graph()
    graph.task(print, np.zeros(1), access=(ost.ReadWrite,))
    scheduled = compile(graph, Target(1, 1), cost_as_given({"print": 10e-6}))
    if not scheduled.step.operations.gil_bound.any():
        pytest.skip("this Python has no GIL")
    found = simulate(scheduled, MachineModel(cores=8), copies=4)
    assert found.step_seconds == pytest.approx(40e-6, rel=0.1)
    assert "hold the GIL and take turns" in found.bottleneck.reason
