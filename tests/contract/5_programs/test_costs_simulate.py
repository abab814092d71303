"""The contract on `program.simulate`: the same schedule on a model of a machine."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

import ostinato as ost
from naming import stable_repr
from support import fake_device as fake

pytestmark = pytest.mark.usefixtures("places")

MS = 1e-3


@ost.task(releases_gil=True)
def apart(x: ost.ReadWrite):
    x += 1


@ost.task(releases_gil=True)
def combine(dst: ost.ReadWrite, *parts: ost.Read):
    dst += 1


@pytest.fixture(scope="module")
def pair():
    with ost.Machine(cpus=2, gpus=0) as machine:
        yield machine


def chains(width, length=1):
    """So many chains of so many ops."""
    arrays = [np.zeros(1) for _ in range(width)]
    with ost.capture() as graph:
        for _ in range(length):
            for array in arrays:
                apart(array)
    return graph


def simulated(graph, machine, costs, model=None, **arguments):
    with graph.compile(machine, costs=costs) as program:
        return program.simulate(model, **arguments)


# What is predicted


def test_one_op_takes_what_it_takes(machine):
    found = simulated(chains(1), machine, {apart: 2 * MS})
    assert found.step_seconds == pytest.approx(2 * MS, rel=0.02)


def test_a_chain_takes_the_sum(pair):
    found = simulated(chains(1, 5), pair, {apart: 2 * MS})
    assert found.step_seconds == pytest.approx(10 * MS, rel=0.02)
    assert found.efficiency <= 1.001


@pytest.mark.parametrize("width", [2, 4, 8])
def test_independent_ops_share_the_cores(pair, width):
    found = simulated(chains(width), pair, {apart: 2 * MS})
    assert found.step_seconds == pytest.approx(width * MS, rel=0.05)
    assert found.efficiency == pytest.approx(1, rel=0.05)


def test_one_core_does_it_all(pair):
    found = simulated(chains(8), pair, {apart: MS}, ost.MachineModel(cores=1))
    assert found.step_seconds == pytest.approx(8 * MS, rel=0.02)


def test_more_cores(pair):
    graph = chains(64)
    times = [simulated(graph, pair, {apart: MS}, ost.MachineModel(cores=n)).step_seconds for n in (1, 2, 4, 16, 64)]
    for cores, seconds in zip((1, 2, 4, 16, 64), times, strict=True):
        assert seconds == pytest.approx(64 / cores * MS, rel=0.1), cores


def test_more_cores_do_not_help_a_chain(pair):
    graph = chains(1, 6)
    for cores in (1, 2, 64):
        found = simulated(graph, pair, {apart: MS}, ost.MachineModel(cores=cores))
        assert found.step_seconds == pytest.approx(6 * MS, rel=0.02)


def test_the_bottleneck_is_the_lane_of_the_dearest_op(pair):
    a, b = np.zeros(1), np.zeros(1)
    with ost.capture() as graph:
        dear = apart(a)
        cheap = apart(b)
    with graph.compile(pair, costs={dear: 10 * MS, cheap: 0.1 * MS}) as program:
        found = program.simulate()
    assert found.step_seconds == pytest.approx(10 * MS, rel=0.05)
    assert found.lanes["busy"][found.bottleneck.lane] == pytest.approx(10 * MS, rel=0.05)
    assert found.bottleneck.share > 0.9
    assert isinstance(found.bottleneck.reason, str)


def test_what_passes_between_cores_costs(pair):
    """Two chains that exchange something in each step: the dearer a transfer, the slower."""
    a, b, c, d = (np.zeros(1) for _ in range(4))
    with ost.capture() as graph:
        u, v = ost.ring(a, b), ost.ring(c, d)
        combine(u[1], u[0], v[0])
        combine(v[1], v[0], u[0])
    costs = {combine: 0.1 * MS}
    cheap, dear = (
        simulated(graph, pair, costs, ost.MachineModel(cores=2, transfer=transfer)).step_seconds
        for transfer in (1e-9, 50e-6)
    )
    assert cheap == pytest.approx(0.1 * MS, rel=0.1)
    assert cheap < dear < 0.25 * MS


def test_efficiency_is_work_by_cores_and_time(pair):
    graph = chains(3)
    found = simulated(graph, pair, {apart: MS}, ost.MachineModel(cores=3))
    assert found.work == pytest.approx(3 * MS)
    assert found.efficiency == pytest.approx(found.work / (3 * found.step_seconds), rel=1e-6)
    assert 0.9 < found.efficiency <= 1


def test_what_devices_do_is_not_work_of_the_cores():
    @ost.task
    def there(x: ost.ReadWrite, stream: ost.Stream): ...

    with fake.install(count=2), ost.Machine(cpus=2) as machine:
        arrays = np.zeros((2, 1000))
        graph = ost.Graph()
        ops = [graph.task(there, array, on=f"fake:{device}") for device, array in enumerate(arrays)]
        after = [graph.task(apart, array) for array in arrays]
        costs = dict.fromkeys(ops, 100 * MS) | dict.fromkeys(after, MS)
        with graph.compile(machine, costs=costs) as program:
            found = program.simulate()
    assert found.step_seconds >= 100 * MS
    assert 2 * MS <= found.work < 3 * MS
    assert found.efficiency == pytest.approx(found.threads["busy"].mean() / found.step_seconds, rel=0.05)
    assert found.efficiency < 0.02


def test_what_may_block_is_not_work_of_the_cores(pair):
    @ost.task(blocking=True)
    def waits(x: ost.ReadWrite): ...

    graph = ost.Graph()
    for array in np.zeros((8, 1)):
        graph.task(waits, array)
    found = simulated(graph, pair, {waits: MS})
    assert (found.work, found.efficiency) == (0, 0)


def test_a_timeline(pair, tmp_path):
    graph = chains(4, 2)
    found = simulated(graph, pair, {apart: MS})
    timeline = found.timeline
    records = timeline.records
    assert list(timeline.op_names) == ["apart"] * 8
    assert set(records["op"]) == set(range(8))
    assert np.allclose(records["end"] - records["start"], 1_000_000, rtol=0.05)
    for thread in np.unique(records["thread"]):
        mine = np.sort(records[records["thread"] == thread], order="start")
        assert (mine["start"][1:] >= mine["end"][:-1] - 2).all()
    for step in np.unique(records["step"]):
        begun = {int(r["op"]): int(r["start"]) for r in records[records["step"] == step]}
        ended = {int(r["op"]): int(r["end"]) for r in records[records["step"] == step]}
        for op in set(begun) & set(range(4, 8)):
            assert op - 4 not in ended or begun[op] >= ended[op - 4] - 2  # the second op of each chain
    timeline.save(tmp_path / "timeline.json")
    assert (tmp_path / "timeline.json").read_text().startswith("{")


def test_pictures(pair, tmp_path):
    pytest.importorskip("matplotlib")
    graph = chains(4)
    with graph.compile(pair) as program:
        trace = program.trace(8)
        found = program.simulate()
        found.plot(tmp_path / "predicted.png")
        found.plot(tmp_path / "both.svg", measured=trace)
    assert (tmp_path / "predicted.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "both.svg").read_text()


def test_it_says_it_in_words(pair):
    text = str(simulated(chains(4), pair, {apart: MS}))
    assert "2 ms" in text
    assert "%" in text
    assert "bottleneck" in text


def test_twice_the_same(pair):
    graph = chains(5, 3)
    with graph.compile(pair, costs={apart: 1e-5}) as program:
        assert program.simulate().step_seconds == program.simulate().step_seconds


# Other machines


def test_on_64_cores_and_on_1000_nodes(pair):
    graph = chains(64, 4)
    with graph.compile(pair, costs={apart: MS}) as program:
        found = program.simulate(ost.MachineModel(cores=64))
        assert found.step_seconds == pytest.approx(4 * MS, rel=0.1)
        wide = program.simulate(ost.MachineModel(cores=64, nodes=1000), copies=1000)
        assert wide.copies == 1000
        assert wide.step_seconds == pytest.approx(4 * MS, rel=0.2)
        assert len(wide.lanes) >= 64_000
        assert "1000 nodes" in str(wide)


def test_a_slow_link_is_seen(pair):
    graph = chains(2, 2)
    with graph.compile(pair, costs={apart: 0.01 * MS}) as program:
        fast, slow = (
            program.simulate(ost.MachineModel(cores=2, nodes=16, link_latency=latency), copies=16).step_seconds
            for latency in (1e-7, 1e-3)
        )
    assert slow > 10 * fast


def test_the_program_stays_as_it_is(pair):
    graph = chains(4, 2)
    with graph.compile(pair, costs={apart: MS}) as program:
        text = program.explain()
        program.simulate(ost.MachineModel(cores=64))
        program.simulate(ost.MachineModel(cores=2, nodes=4), copies=4)
        assert program.explain() == text
        assert program.replay(3) == 3


# A model


def test_a_model_of_this_machine(machine):
    model = ost.MachineModel.of(machine)
    assert model.cores == len(machine.processors)
    assert model.nodes == 1
    for field in dataclasses.fields(model):
        value = getattr(model, field.name)
        assert not isinstance(value, float) or 0 <= value < 1 or field.name == "link_bandwidth"
    assert ost.MachineModel.of(machine) == model  # it is remembered
    assert ost.MachineModel.of().cores >= 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"cores": 0},
        {"cores": -1},
        {"cores": 1.5},
        {"cores": "2"},
        {"cores": True},
        {"cores": 2, "nodes": 0},
        {"cores": 2, "transfer": -1e-9},
        {"cores": 2, "transfer": float("nan")},
        {"cores": 2, "wake": float("inf")},
        {"cores": 2, "link_bandwidth": 0},
        {"cores": 2, "link_latency": "1us"},
        {"cores": 2, "unknown": 1},
        {},
    ],
    ids=stable_repr,
)
def test_wrong_models(arguments):
    with pytest.raises((TypeError, ValueError)):
        ost.MachineModel(**arguments)


def test_a_model_is_a_value():
    model = ost.MachineModel(cores=4)
    assert model == ost.MachineModel(cores=4)
    assert hash(model) == hash(ost.MachineModel(cores=4))
    assert dataclasses.replace(model, nodes=3).nodes == 3
    with pytest.raises(AttributeError):
        model.cores = 5


@pytest.mark.parametrize("model", [3, "64 cores", object(), {"cores": 2}], ids=stable_repr)
def test_what_is_no_model(pair, model):
    with chains(2).compile(pair) as program, pytest.raises(TypeError, match="MachineModel"):
        program.simulate(model)


@pytest.mark.parametrize("copies", [0, -1, 1.5, "2", True, None], ids=stable_repr)
def test_wrong_numbers_of_copies(pair, copies):
    with chains(2).compile(pair) as program, pytest.raises((TypeError, ValueError), match="copies"):
        program.simulate(ost.MachineModel(cores=2), copies=copies)


# Every program


def test_a_closed_program(pair):
    with chains(2).compile(pair) as program:
        pass
    with pytest.raises(RuntimeError):
        program.simulate()


def test_an_empty_graph(machine):
    with ost.Graph().compile(machine) as program:
        found = program.simulate()
        assert found.step_seconds >= 0
        assert str(found)
        assert len(found.timeline) == 0
        program.simulate(ost.MachineModel(cores=64))


def test_ops_that_cost_nothing(pair):
    found = simulated(chains(3, 3), pair, {apart: 0.0})
    assert 0 <= found.step_seconds < 1e-4
    assert str(found)


def test_every_kind_of_op(pair):
    barrier, reservation = ost.Barrier(1), ost.Reservation()
    a, b, flag = np.ones(4), np.zeros(4), np.zeros(1, np.int64)
    inner = chains(2)
    graph = ost.Graph()
    before = graph.precondition("go")
    first = graph.acquire(reservation, after=before)
    op = graph.task(apart, a, after=first)
    graph.release(reservation, after=op)
    graph.arrive(barrier, after=op)
    graph.copy(a, b)
    graph.fill(b, graph.param("value", 1.0))
    graph.subgraph(inner)
    graph.until(flag)
    graph.postcondition("done", op)
    with graph.compile(pair) as program:
        for found in (program.simulate(), program.simulate(ost.MachineModel(cores=8))):
            assert found.step_seconds > 0
            assert str(found)
    assert barrier.phase == 0
    assert a.tolist() == [1.0] * 4


@pytest.mark.parametrize("runs", ["pipelined", "serial", "concurrent", "once"])
def test_every_kind_of_program(pair, runs):
    with chains(4).compile(pair, runs=runs, costs={apart: MS}) as program:
        assert program.simulate().step_seconds >= 1.9 * MS


def test_a_given_order_and_no_inference(pair):
    graph = ost.Graph(infer=False)
    ops = [graph.task(apart, np.zeros(1)) for _ in range(4)]
    graph.edge(ops[0], ops[3])
    found = simulated(graph, pair, {apart: MS})
    assert found.step_seconds == pytest.approx(2 * MS, rel=0.1)


def test_after_retuning_it_knows_what_ops_take(pair):
    @ost.task(releases_gil=True)
    def nap(x: ost.ReadWrite):
        time.sleep(0.002)

    with ost.capture() as graph:
        for _ in range(4):
            nap(np.zeros(1))
    with graph.compile(pair) as program:
        assert program.simulate().step_seconds < MS
        program.retune(steps=60)
        assert program.simulate().step_seconds > 3 * MS


def test_prediction_and_measurement_are_of_one_size(pair):
    """Sleeping takes no core, so that this holds on a busy machine, too."""

    @ost.task(releases_gil=True)
    def nap(x: ost.ReadWrite):
        time.sleep(0.01)

    with ost.capture() as graph:
        for array in [np.zeros(1) for _ in range(4)]:
            nap(array)
    with graph.compile(pair) as program:
        trace = program.trace(5)
    with graph.compile(pair, costs=trace) as program:
        predicted = program.simulate().step_seconds
    taken = (trace.records["end"].max() - trace.records["start"].min()) * 1e-9 / 5
    assert 0.2 < predicted / taken < 2


def test_what_was_tuned_is_what_is_simulated(pair):
    @ost.task
    def relax(x: ost.ReadWrite):
        time.sleep(0.003)
        x += 1

    @relax.variant()
    def quick(x: ost.ReadWrite):
        x += 1

    with ost.capture() as graph:
        relax(np.zeros(1))
    graph.tune(pair, progress=False)
    with graph.compile(pair) as program:
        assert "quick" in program.explain()
        assert program.simulate().step_seconds < MS
