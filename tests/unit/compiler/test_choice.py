"""What runs on devices: where a step ends earlier so, copies included, and nothing that was not measured there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.compiler.costs import Costed, DeviceCosts, estimate
from ostinato.compiler.ir import Executable, Target
from ostinato.compiler.pipeline.compile import compile
from ostinato.compiler.summary import Summary
from ostinato.compiler.target import DeviceModel
from ostinato.devices.array import empty
from ostinato.devices.device import Device
from ostinato.graph.op import Op
from ostinato.graph.variant import variants_of
from support import fake_device as fake

US = 1e-6
FAST = DeviceModel(latency=1 * US, into=1e12, out=1e12)
SLOW = DeviceModel(latency=1000 * US, into=1e9, out=1e9)


@pytest.fixture
def devices() -> Iterator[tuple[fake.FakeDevice, ...]]:
    with fake.install(count=2) as found:
        yield found


def there(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None: ...


@pytest.fixture
def step(devices: object) -> Callable[..., Any]:
    @ost.task
    def step(src: ost.Read, dst: ost.Write) -> None: ...

    step.variant(on="fake")(there)
    return step


@ost.task
def look(x: ost.Read) -> None: ...


@ost.task
def fill(x: ost.Write) -> None: ...


def knowing(
    here: Mapping[str, float], there: Mapping[str, float], model: DeviceModel = FAST
) -> Callable[[tuple[Op, ...]], Costed]:
    """Return a costing that knows seconds by the names of ops."""

    def costed(summary: Summary) -> Costed:
        ops = summary.ops
        costs = estimate(ops)
        for op in ops:
            if op.name in here:
                costs.seconds[op.index], costs.source[op.index] = here[op.name], 1
        seconds = np.array([there.get(op.name, np.nan) for op in ops])
        known = [op.index for op in ops if op.name in there]
        chosen = {index: variants_of(ops[index].body)[-1] for index in known}
        said = dict.fromkeys(known, "measured")

        def device_costs(device: Device) -> DeviceCosts:
            return DeviceCosts(seconds, np.zeros(len(ops)), chosen, dict.fromkeys(known, 0.0), said, model, ())

        return Costed(ops, costs._replace(sources=("estimated", "measured")), device_costs)

    return costed


def scheduled(graph: ost.Graph, costing: Callable[[tuple[Op, ...]], Costed], devices: Any, cpus: int = 1) -> Executable:
    return compile(graph, Target(cpus, cpus, find_devices=lambda: devices), costing)


def places(found: Executable) -> list[str]:
    """Return where the ops run that were recorded: the name of a device, or nothing."""
    return [str(op.on) if op.variant else "" for op in found.step.recorded.nodes]


def chain(step: Any, length: int = 3, size: int = 8) -> ost.Graph:
    arrays = [np.zeros(size) for _ in range(length + 1)]
    graph = ost.Graph()
    for src, dst in itertools.pairwise(arrays):
        graph.task(step, src, dst)
    return graph


def test_what_is_faster_there_runs_there(step: Any, devices: Any) -> None:
    found = scheduled(chain(step), knowing({"step": 100 * US}, {"step": 10 * US}), devices)
    assert places(found) == ["fake:0"] * 3


def test_what_is_slower_there_stays(step: Any, devices: Any) -> None:
    found = scheduled(chain(step), knowing({"step": 10 * US}, {"step": 100 * US}), devices)
    assert places(found) == [""] * 3
    assert not found.step.uses_devices


def test_what_gains_next_to_nothing_stays(step: Any, devices: Any) -> None:
    found = scheduled(chain(step), knowing({"step": 100 * US}, {"step": 99.5 * US}), devices)
    assert places(found) == [""] * 3


def test_what_was_not_measured_here_or_there_stays(step: Any, devices: Any) -> None:
    for here, device_costs in (({}, {"step": US}), ({"step": 100 * US}, {})):
        found = scheduled(chain(step), knowing(here, device_costs), devices)
        assert places(found) == [""] * 3
        said = "step: what it takes on a CPU is not known, so it is not taken to fake:0, fake:1"
        assert found.step.costs.notes == (() if here else (said,))


def test_copies_in_each_step_tip_the_balance(step: Any, devices: Any) -> None:
    """What the host writes and reads in each step has to travel there and back."""

    def graph_between() -> ost.Graph:
        src, dst = np.zeros(8), np.zeros(8)
        graph = ost.Graph()
        graph.task(fill, src)
        graph.task(step, src, dst)
        graph.task(look, dst)
        return graph

    known = {"step": 100 * US, "fill": US, "look": US}
    costings = [knowing(known, {"step": 10 * US}, model) for model in (FAST, SLOW)]
    assert [places(scheduled(graph_between(), costing, devices))[1] for costing in costings] == ["fake:0", ""]
    # Nothing travels in later steps here, however slow the way is.
    assert places(scheduled(chain(step), costings[1], devices)) == ["fake:0"] * 3


def test_one_trip_can_pay_for_several_ops(step: Any, devices: Any) -> None:
    """Each op alone would not be worth the copies."""
    arrays = [np.zeros(8) for _ in range(9)]
    graph = ost.Graph()
    graph.task(fill, arrays[0])
    for src, dst in itertools.pairwise(arrays):
        graph.task(step, src, dst)
    graph.task(look, arrays[-1])
    model = DeviceModel(latency=100 * US, into=1e12, out=1e12)
    costing = knowing({"step": 50 * US, "fill": US, "look": US}, {"step": US}, model)
    assert places(scheduled(graph, costing, devices)) == ["", *["fake:0"] * 8, ""]


def test_work_is_shared_where_that_ends_earlier(step: Any, devices: Any) -> None:
    graph = ost.Graph()
    for _ in range(8):
        graph.task(step, np.zeros(8), np.zeros(8))
    found = scheduled(graph, knowing({"step": 100 * US}, {"step": 100 * US}), devices[:1])
    assert sorted(places(found)) == [""] * 4 + ["fake:0"] * 4
    costing = knowing({"step": 1000 * US}, {"step": 100 * US})
    assert sorted(places(scheduled(graph, costing, devices))) == ["fake:0"] * 4 + ["fake:1"] * 4
    devices[1].model = "another"
    assert places(scheduled(graph, costing, devices)) == ["fake:0"] * 8


def test_it_runs_where_its_arrays_are(step: Any, devices: Any) -> None:
    src, dst = (empty(devices[1], 8) for _ in range(2))
    graph = ost.Graph()
    graph.task(step, src, dst)
    graph.task(step, dst, src)
    found = scheduled(graph, knowing({"step": 100 * US}, {"step": 10 * US}, SLOW), devices)
    assert places(found) == ["fake:1"] * 2


def test_what_is_bound_is_not_moved(step: Any, devices: Any) -> None:
    graph = ost.Graph()
    for on in ("cpu", "cpu:0", "fake:1", None):
        graph.task(step, np.zeros(8), np.zeros(8), on=on)
    costing = knowing({"step": 100 * US}, {"step": 10 * US})
    ops = scheduled(graph, costing, devices).step.recorded.nodes
    assert [op.on for op in ops] == ["cpu", "cpu:0", "fake:1", "fake:0"]
    assert [op.variant is not None for op in ops] == [False, False, True, True]


def test_a_task_with_a_stream_is_not_moved(devices: Any) -> None:
    """It runs the fastest variant for devices, and none for CPUs, however fast."""

    @ost.task
    def streamed(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None: ...

    @streamed.variant(on="cpu")
    def plain(src: ost.Read, dst: ost.Write) -> None: ...

    def variant(costing: Callable[[tuple[Op, ...]], Costed]) -> str:
        graph = ost.Graph()
        graph.task(streamed, np.zeros(8), np.zeros(8))
        found = scheduled(graph, costing, devices)
        assert found.step.uses_devices
        return found.step.recorded.nodes[0].variant.label if found.step.recorded.nodes[0].variant else ""

    assert variant(knowing({"streamed": US}, {})) == ""
    streamed.variant(name="faster")(there)
    assert variant(knowing({}, {"streamed": US})) == "faster"
    assert variant(knowing({}, {})) == ""


def test_bound_to_a_device_a_task_runs_a_variant_for_it_that_was_not_measured(step: Any, devices: Any) -> None:
    graph = ost.Graph()
    for on in ("fake", "fake:1"):
        graph.task(step, np.zeros(8), np.zeros(8), on=on)
    ops = compile(graph, Target(1, 1, find_devices=lambda: devices)).step.recorded.nodes
    assert [op.variant.label if op.variant else "" for op in ops] == ["there", "there"]
    assert [op.on for op in ops] == ["fake", "fake:1"]


def test_it_is_said_why(step: Any, devices: Any) -> None:
    costs = scheduled(chain(step), knowing({"step": 100 * US}, {"step": 10 * US}), devices).step.costs
    assert "measured, on fake:0: 10 µs there, 100 µs on a CPU, no copies" in costs.sources
    src, dst = np.zeros(8), np.zeros(8)
    graph = ost.Graph()
    graph.task(fill, src)
    graph.task(step, src, dst)
    graph.task(look, dst)
    model = DeviceModel(latency=1000 * US, into=1e15, out=1e15)
    costs = scheduled(graph, knowing({"step": 100 * US, "fill": US}, {"step": 10 * US}, model), devices).step.costs
    assert "measured, not on fake:0: 10 µs there, copies 2 ms" in costs.sources


def test_a_graph_without_variants_for_devices_asks_for_none() -> None:
    graph = ost.Graph()
    graph.task(look, np.zeros(8))

    def none() -> Any:
        raise AssertionError

    compile(graph, Target(1, 1, find_devices=none))
