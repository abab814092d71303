"""Variants for devices: timed where their arrays are, compared with the default, remembered for the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.array import empty
from ostinato.runtime import calibrate
from ostinato.runtime import trace as traces
from ostinato.tune.graphs import cost_store, tune_graph
from ostinato.tune.leases.lock_file import holders
from ostinato.tune.progress import Progress
from ostinato.tune.worker.timers import Preemption
from support import fake_device as fake

QUICK = ost.Policy(max_seconds=0.02, min_samples=2, rel_ci=0.5)
SLOW, FAST = 3e-3, 100e-6  # so far apart that no load of the machine turns them round


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_graph, "POLICY", QUICK)
    monkeypatch.setattr(Preemption, "waited", lambda self: 0)  # nothing is disturbed, however busy the machine is
    calibrate._known_devices.clear()


@pytest.fixture
def device() -> Iterator[fake.FakeDevice]:
    with fake.install() as (found,):
        yield found


@pytest.fixture
def machine(device: object) -> Iterator[ost.Machine]:
    with ost.Machine(cpus=1) as machine:
        yield machine


def doubled(src: Any, dst: Any) -> None:
    np.multiply(src, 2, out=dst)


def tripled(src: Any, dst: Any) -> None:
    np.multiply(src, 3, out=dst)


def added(src: Any, dst: Any) -> None:
    dst += src


@pytest.fixture
def double(device: object) -> Callable[..., Any]:
    """A task that takes long, with a variant that is fast, and one that is faster still, but wrong."""

    @ost.task
    def double(src: ost.Read, dst: ost.Write) -> None:
        time.sleep(SLOW)
        np.multiply(src, 2, out=dst)

    @double.variant(on="fake")
    def there(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
        fake.launch(stream, doubled, src, dst, delay=FAST)

    @double.variant(on="fake")
    def wrong(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
        fake.launch(stream, tripled, src, dst)

    return double


def graph_of(task: Any, *arrays: Any, on: str | None = None) -> ost.Graph:
    graph = ost.Graph()
    graph.task(task, *(arrays or (np.arange(8.0), np.zeros(8))), on=on)
    return graph


def statuses(report: ost.Report) -> dict[str, str]:
    return {str(result.candidate.config["variant"]): str(result.status) for result in report.results}


def test_the_fastest_that_is_right_runs(double: Any, machine: ost.Machine) -> None:
    src, dst = np.arange(8.0), np.zeros(8)
    graph = graph_of(double, src, dst)
    reports = graph.tune(machine, progress=False)
    assert list(reports) == ["double", "double on fake"]
    assert statuses(reports["double"]) == {"double": "ok"}
    assert statuses(reports["double on fake"]) == {"there": "ok", "wrong": "wrong_result"}
    found = reports["double on fake"]
    assert found.key["kind"] == "fake"
    assert found.default is None
    assert found.best is found.results[0]
    assert found.results[0].device == "fake:0"
    assert "measured in this process: streams and arrays of fake:0 are of one process" in found.results[0].message
    assert not dst.any()
    with graph.compile(machine) as program:
        program.replay(3)
        assert "variant there, on fake:0: " in program.explain()
        program.verify(2)
    assert (dst == 2 * src).all()


def test_slow_copies_keep_it_on_the_cpu(double: Any, device: fake.FakeDevice, machine: ost.Machine) -> None:
    device.core.set_delays(copy=10 * SLOW)

    @ost.task
    def fill(x: ost.Write) -> None:
        x[:] = 1

    src, dst = np.arange(8.0), np.zeros(8)
    graph = ost.Graph()
    graph.task(fill, src)
    graph.task(double, src, dst)
    graph.tune(machine, everything=True, progress=False)
    with graph.compile(machine) as program:
        assert "not on fake:0: " in program.explain()


def test_nothing_that_was_not_measured_runs_there(double: Any, machine: ost.Machine) -> None:
    with graph_of(double).compile(machine) as program:
        assert "fake" not in program.explain()
    with graph_of(double, on="fake").compile(machine) as program:
        program.replay()
        assert "variant there" in program.explain()


def test_the_store_remembers(double: Any, device: fake.FakeDevice, machine: ost.Machine) -> None:
    graph = graph_of(double)
    graph.tune(machine, progress=False)
    reports = graph.tune(machine, progress=False)
    assert [result.cached for report in reports.values() for result in report.results] == [True] * 3
    assert reports["double on fake"].results[0].device == "fake:0"
    device.driver = "2"
    with graph.compile(machine) as program:
        told = program.explain()
    assert "the store's results are for another driver (1 instead of 2)" in told
    assert "variant there" not in told
    reports = graph.tune(machine, progress=False)
    assert [result.miss for result in reports["double on fake"].results] == ["driver", "driver"]
    assert [result.cached for result in reports["double"].results] == [True]


def test_a_changed_default_is_another_case(device: object, machine: ost.Machine) -> None:
    """What a variant was compared with counts, wherever that runs."""

    def graph_with(factor: float) -> ost.Graph:
        @ost.task
        def scale(src: ost.Read, dst: ost.Write) -> None:
            np.multiply(src, factor, out=dst)

        @scale.variant(on="fake")
        def there(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
            fake.launch(stream, doubled, src, dst)

        return graph_of(scale)

    for factor, status in ((2.0, "ok"), (3.0, "wrong_result")):
        reports = graph_with(factor).tune(machine, progress=False)
        assert statuses(reports["scale on fake"]) == {"there": status}
    assert reports["scale on fake"].results[0].miss == "source"


def test_arrays_of_the_device_are_measured_by_copies(double: Any, machine: ost.Machine) -> None:
    memory = machine.processor("fake:0").memory
    src, dst = memory.empty(8), memory.empty(8)
    src.set(np.arange(8.0))
    dst.set(np.ones(8))
    reports = graph_of(double, src, dst).tune(machine, progress=False)
    assert statuses(reports["double"]) == {"double": "ok"}
    assert statuses(reports["double on fake"]) == {"there": "ok", "wrong": "wrong_result"}
    assert (dst.get() == 1).all()


def test_what_a_variant_changes_is_put_back(device: object, machine: ost.Machine) -> None:
    @ost.task
    def add(src: ost.Read, dst: ost.ReadWrite) -> None:
        dst += src

    @add.variant(on="fake")
    def there(src: ost.Read, dst: ost.ReadWrite, stream: ost.Stream) -> None:
        fake.launch(stream, added, src, dst)

    room = np.arange(40.0)
    reports = graph_of(add, room[4:20:2], room[24:8:-2]).tune(machine, progress=False)  # strided, and they overlap
    assert statuses(reports["add on fake"]) == {"there": "ok"}
    assert (room == np.arange(40.0)).all()


def test_variants_that_fail_cost_no_more_than_their_result(device: object, machine: ost.Machine) -> None:
    @ost.task
    def double(src: ost.Read, dst: ost.Write) -> None:
        np.multiply(src, 2, out=dst)

    @double.variant(on="fake")
    def raises(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
        raise ValueError("no")

    def broken(src: Any, dst: Any) -> None:
        raise ValueError("not there either")

    @double.variant(on="fake")
    def fails(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
        fake.launch(stream, broken, src, dst)

    @double.variant(on="fake")
    def works(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
        fake.launch(stream, doubled, src, dst)

    reports = graph_of(double).tune(machine, progress=False)
    assert statuses(reports["double on fake"]) == {"raises": "crash", "fails": "crash", "works": "ok"}


@pytest.fixture
def broken(device: object) -> Any:
    """A task of which each variant for the device does something else than it does."""

    @ost.task
    def double(src: ost.Read, dst: ost.Write) -> None:
        np.multiply(src, 2, out=dst)

    @double.variant(on="fake")
    def wrong(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
        fake.launch(stream, tripled, src, dst)

    @double.variant(on="fake")
    def raises(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
        raise ValueError("no such block")

    return double


@pytest.mark.parametrize("on", ["fake", "fake:0"])
def test_of_variants_that_are_all_wrong_none_is_taken(on: str, broken: Any, machine: ost.Machine) -> None:
    graph = graph_of(broken, on=on)
    for _ in range(2):  # nothing that is wrong keeps tuning from measuring again
        report = graph.tune(machine, progress=False)["double on fake"]
        assert [(str(each.status), each.cached) for each in report.results] == [("wrong_result", 0), ("crash", 0)]
        assert report.best is None
        cost_store._records.clear()  # the store knows it as well
    with pytest.raises(ost.GraphError) as raised:
        graph.compile(machine)
    told = str(raised.value)
    assert "'double' at test_on_devices.py:" in told
    assert f"is bound to '{on}'" in told
    assert "\n  wrong: wrong_result: argument 2 'dst'" in told
    assert "\n  raises: crash: ValueError: no such block" in told
    assert "rtol=" in told
    with graph_of(broken).compile(machine) as program:  # bound to nothing, it runs by itself, and why is told
        program.replay()
        assert "no variant for fake may run: wrong: wrong_result: " in program.explain()


def test_what_was_not_measured_is_taken_rather_than_what_is_wrong(broken: Any, machine: ost.Machine) -> None:
    src, dst = np.arange(8.0), np.zeros(8)
    graph = graph_of(broken, src, dst, on="fake")
    graph.tune(machine, progress=False, budget=ost.Budget(candidates=1))
    with graph.compile(machine) as program:
        assert "variant raises" in program.explain()

    @broken.variant(on="fake")
    def mended(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
        fake.launch(stream, doubled, src, dst)

    graph.tune(machine, progress=False)
    with graph.compile(machine) as program:
        program.replay()
        assert "variant mended" in program.explain()
    assert (dst == 2 * src).all()


def test_what_was_right_elsewhere_is_taken_rather_than_what_is_wrong(broken: Any, machine: ost.Machine) -> None:
    @broken.variant(on="fake")
    def right(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
        fake.launch(stream, doubled, src, dst)

    graph_of(broken, on="fake").tune(machine, progress=False)
    room = np.zeros(16)
    with graph_of(broken, room[::2], room[1::2], on="fake").compile(machine) as program:  # was not compared so
        assert "variant right" in program.explain()


def test_what_is_right_within_a_tolerance_is_taken_with_it(device: object, machine: ost.Machine) -> None:
    @ost.task
    def double(src: ost.Read, dst: ost.Write) -> None:
        np.multiply(src, 2, out=dst)

    @double.variant(on="fake")
    def nearly(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
        fake.launch(stream, lambda src, dst: np.multiply(src, 2 + 1e-9, out=dst), src, dst)

    graph = graph_of(double, on="fake")
    graph.tune(machine, progress=False)
    with pytest.raises(ost.GraphError, match="nearly: wrong_result"):
        graph.compile(machine)
    graph.tune(machine, progress=False, rtol=1e-6)
    graph.compile(machine).close()


def test_what_could_not_be_compared_is_taken(device: fake.FakeDevice, machine: ost.Machine) -> None:
    """Where the task itself cannot run, or there is no room for copies, nothing is known of its variants."""

    @ost.task
    def double(src: ost.Read, dst: ost.Write) -> None:
        raise NotImplementedError

    @double.variant(on="fake")
    def there(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
        fake.launch(stream, doubled, src, dst)

    src, dst = np.arange(8.0), np.zeros(8)
    graph = graph_of(double, src, dst, on="fake")
    assert statuses(graph.tune(machine, progress=False)["double on fake"]) == {"there": "invalid"}
    with graph.compile(machine) as program:
        program.replay()
    assert (dst == 2 * src).all()


def test_without_memory_there_is_nothing_to_measure(double: Any, device: fake.FakeDevice, machine: ost.Machine) -> None:
    device.core.set_capacity(64)
    reports = graph_of(double).tune(machine, progress=False)
    assert statuses(reports["double"]) == {"double": "ok"}
    assert statuses(reports["double on fake"]) == {"there": "invalid", "wrong": "invalid"}
    assert "copies of its arguments cannot be made on fake:0" in reports["double on fake"].results[0].message


def test_a_task_for_devices_alone_is_measured_there(device: object, machine: ost.Machine) -> None:
    @ost.task
    def double(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
        fake.launch(stream, doubled, src, dst, delay=SLOW)

    @double.variant
    def faster(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
        fake.launch(stream, doubled, src, dst, delay=FAST)

    graph = graph_of(double)
    reports = graph.tune(machine, progress=False)
    assert list(reports) == ["double on fake"]
    report = reports["double on fake"]
    assert statuses(report) == {"double": "ok", "faster": "ok"}
    assert report.default is report.results[0]
    with graph.compile(machine) as program:
        assert "variant faster" in program.explain()


def test_kinds_and_arrays_tell_cases_apart(double: Any, machine: ost.Machine) -> None:
    graph = graph_of(double)
    graph.task(double, np.zeros(9), np.zeros(9))
    assert list(graph.tune(machine, progress=False, budget=ost.Budget(candidates=1))) == [
        "double[8 float64, 8 float64]",
        "double[9 float64, 9 float64]",
        "double[8 float64, 8 float64] on fake",
        "double[9 float64, 9 float64] on fake",
    ]


def test_the_device_is_leased_meanwhile(double: Any, machine: ost.Machine) -> None:
    seen: list[tuple[str, set[str]]] = []

    class Looking(Progress):
        def running(self, device: str, candidate: object, what: str) -> None:
            seen.append((device, {holder.identity for holder in holders()}))

    graph_of(double).tune(machine, progress=Looking())
    there = [held for device, held in seen if device == "fake:0"]
    assert there
    assert all("fake:0" in held and any(each.startswith("cpu-core-") for each in held) for held in there)
    assert not any("fake:0" in held for device, held in seen if device != "fake:0")
    assert not holders()


def test_a_machine_without_devices_measures_none(double: Any) -> None:
    with ost.Machine(cpus=1, gpus=0) as machine:
        graph = graph_of(double)
        assert list(graph.tune(machine, progress=False)) == ["double"]
        with graph.compile(machine) as program:
            assert "fake" not in program.explain()


def test_copies_are_measured_once(device: fake.FakeDevice) -> None:
    assert calibrate.recall_device(device).source == "assumed"
    model = calibrate.measure_device(device)
    assert model.source.startswith("measured ")
    calibrate._known_devices.clear()
    assert calibrate.recall_device(device) == model
    device.driver = "2"
    assert calibrate.recall_device(device).source == "assumed"


def test_a_trace_tells_what_devices_take(double: Any, machine: ost.Machine) -> None:
    """Copies, and what waits for the device, are none of the graph's ops."""
    src, dst = np.arange(8.0), np.zeros(8)
    graph = graph_of(double, src, dst, on="fake")
    graph.task(double, dst, src)
    with graph.compile(machine) as program:
        trace = program.trace(3)
    assert len(trace.op_names) > 2
    with graph.compile(machine, costs=trace) as program:
        program.replay()
        costs, ops = program._engine.executable.step.costs, program._engine.executable.step.recorded.nodes
        assert [op.variant.label if op.variant else "" for op in ops] == ["there", ""]
        traced = costs.sources.index("traced")
        assert {op.name for op in program._engine.executable.step.nodes if costs.source[op.index] == traced} == {
            "double",
            "double: done",
        }


def test_arrays_of_other_libraries_on_a_device_are_not_copied(
    double: Any, device: fake.FakeDevice, machine: ost.Machine
) -> None:
    foreign = fake.ForeignArray(empty(device, 8))
    reports = graph_of(double, foreign, np.zeros(8)).tune(machine, progress=False)
    for report in reports.values():
        assert not report.best
        assert "a ForeignArray, is another library's in the memory of fake:0" in report.results[0].message


def test_arrays_that_overlap_on_a_device_do_so_in_copies(device: fake.FakeDevice, machine: ost.Machine) -> None:
    def shifted(src: Any, dst: Any) -> None:
        for i in range(len(src)):
            dst[i] = src[i] + 2

    @ost.task
    def shift(src: ost.Read, dst: ost.ReadWrite) -> None:
        shifted(src, dst)

    @shift.variant(on="fake")
    def there(src: ost.Read, dst: ost.ReadWrite, stream: ost.Stream) -> None:
        fake.launch(stream, shifted, src, dst)

    @shift.variant(on="fake")
    def apart(src: ost.Read, dst: ost.ReadWrite, stream: ost.Stream) -> None:
        fake.launch(stream, lambda src, dst: np.copyto(dst, src.copy() + 2), src, dst)

    room = empty(device, 8)
    room.set(np.arange(8.0))
    reports = graph_of(shift, room[:6], room[1:7]).tune(machine, progress=False)
    assert statuses(reports["shift on fake"]) == {"there": "ok", "apart": "wrong_result"}
    assert (room.get() == np.arange(8.0)).all()


@pytest.mark.parametrize("home", ["host", "fake:0"])
def test_verify_runs_the_task_itself_beside_a_variant_of_a_device(home: str, machine: ost.Machine) -> None:
    @ost.task
    def clipped(src: ost.Read, dst: ost.Write) -> None:
        time.sleep(SLOW)
        np.multiply(src, 2, out=dst)
        dst[src > 100] = 0

    @clipped.variant(on="fake")
    def there(src: ost.Read, dst: ost.Write, stream: ost.Stream) -> None:
        fake.launch(stream, doubled, src, dst, delay=FAST)

    src: Any = np.arange(8.0)
    dst: Any = np.zeros(8)
    if home != "host":
        src, dst = (machine.processor(home).memory.empty(8, np.float64) for _ in range(2))
        src.set(np.arange(8.0))
        dst.set(0)
    graph = graph_of(clipped, src, dst)
    graph.tune(machine)
    with graph.compile(machine) as program:
        assert "variant there" in program.explain()
        program.verify(2)
        if home == "host":
            src += 200
        else:
            src.set(src.get() + 200)
        with pytest.raises(
            ost.ContractError, match=r"'clipped' \(variant there\) does not give what .* argument 2 'dst'"
        ):
            program.verify()
    assert not (dst if home == "host" else dst.get()).any()


def test_the_trace_of_the_process_leaves_out_what_measures(
    double: Any, machine: ost.Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trace = traces.ProcessTrace(str(tmp_path / "trace.json"))
    monkeypatch.setenv("OSTINATO_TRACE", str(tmp_path / "trace.json"))
    monkeypatch.setattr(traces, "process_trace", lambda: trace)
    graph = graph_of(double)
    graph.tune(machine, progress=False)
    trace.save()
    assert not (tmp_path / "trace.json").exists()
    graph.compile(machine).replay()
    trace.save()
    assert (tmp_path / "trace.json").exists()
