"""What traces say beside the operations: waits, steps, arrows, and where the time went."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.compiler.ir import edges_of
from ostinato.view.trace import RECORD, Trace
from support import fake_device as fake

BOOT = 10**15


def trace_of(rows: list[tuple[int, int, int, int, int]], edges: list[tuple[int, int, int]], **more: Any) -> Trace:
    """Of records of (op, step, thread, start, end), each op on a lane of its own."""
    names = ["load", "filter", "store"]
    return Trace(
        np.array(
            [(op, step, thread, op, BOOT + start, BOOT + end, 0) for op, step, thread, start, end in rows], RECORD
        ),
        names,
        [f"a.py:{line}" for line in range(3)],
        ["cpu:0", "cpu:1", "cpu:0"],
        edges=edges_of(3, *np.array(edges, np.int32).reshape(-1, 3).T),
        **more,
    )


@pytest.fixture
def pipeline() -> Trace:
    """Thread 0 loads and stores, thread 1 filters; each stage waits for the one before, loads for old stores."""
    rows = [
        (0, 0, 0, 100, 200),
        (1, 0, 1, 250, 450),  # 150 since its begin, of which 100 before load ended
        (0, 1, 0, 210, 300),
        (2, 0, 0, 470, 500),  # waits for filter from 300 to 450
        (1, 1, 1, 460, 700),
        (2, 1, 0, 720, 750),
    ]
    return trace_of(rows, [(0, 1, 0), (1, 2, 0), (2, 0, 2)], submitted=BOOT + 50)


def check_format(saved: dict[str, Any]) -> None:
    """Raise unless a trace is one by the Trace Event Format: https://perfetto.dev/docs/getting-started/other-formats"""
    assert set(saved) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert saved["displayTimeUnit"] in ("ms", "ns")
    needed = {
        "M": {"name", "pid", "args"},
        "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
        "B": {"name", "cat", "pid", "tid", "ts"},
        "E": {"name", "cat", "pid", "tid", "ts"},
        "i": {"name", "cat", "pid", "tid", "ts", "s", "args"},
        "s": {"name", "cat", "pid", "tid", "ts", "id"},
        "f": {"name", "cat", "pid", "tid", "ts", "id", "bp"},
    }
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    begun: dict[tuple[int, int], list[dict[str, Any]]] = {}
    arrows: dict[int, list[dict[str, Any]]] = {}
    for event in saved["traceEvents"]:
        kind = event["ph"]
        assert needed[kind] <= set(event) <= needed[kind] | {"ph", "tid"}, event
        assert all(isinstance(event[name], int | float) and event[name] >= 0 for name in {"ts", "dur"} & set(event))
        track = event["pid"], event.get("tid", -1)
        if kind == "X":
            tracks.setdefault(track, []).append((event["ts"], event["ts"] + event["dur"]))
        elif kind == "B":
            begun.setdefault(track, []).append(event)
        elif kind == "E":
            begin = begun[track].pop()
            assert (begin["name"], begin["cat"]) == (event["name"], event["cat"])
            tracks.setdefault(track, []).append((begin["ts"], event["ts"]))
        elif kind in "sf":
            arrows.setdefault(event["id"], []).append(event)
    assert not any(begun.values())
    named_tracks = {(event["pid"], event["tid"]) for event in saved["traceEvents"] if event["name"] == "thread_name"}
    assert set(tracks) <= named_tracks
    for track, slices in tracks.items():
        slices.sort()
        ends = [end for _, end in slices]
        assert all(begin >= end - 1e-6 for (begin, _), end in zip(slices[1:], ends, strict=False)), track
    for begin, end in arrows.values():  # each begins and ends at something
        assert (begin["ph"], end["ph"], end["bp"]) == ("s", "f", "e")
        assert begin["ts"] <= end["ts"]
        for each in (begin, end):
            own = tracks[each["pid"], each["tid"]]
            assert any(first <= each["ts"] < max(last, first + 1e-9) for first, last in own), each


def named(trace: Trace, kind: str) -> list[tuple[str, int, float]]:
    events = trace.to_dict()["traceEvents"]
    return [(event["name"], event["tid"], event["ts"]) for event in events if event["ph"] == kind]


def test_waits_and_steps_are_slices(pipeline):
    check_format(pipeline.to_dict())
    begins, ends = named(pipeline, "B"), named(pipeline, "E")
    assert begins[:2] == [("step 0", 2, 0.05), ("step 1", 3, 0.16)]
    assert ends[:2] == [("step 0", 2, 0.45), ("step 1", 3, 0.7)]
    waits = list(zip(begins[2:], ends[2:], strict=True))
    assert (("waits for filter", 0, 0.25), ("waits for filter", 0, 0.4)) in waits
    assert (("waits for filter", 0, 0.45), ("waits for filter", 0, 0.65)) in waits
    assert (("waits for load", 1, 0.0), ("waits for load", 1, 0.15)) in waits
    assert len(waits) == 3


def test_arrows_go_from_thread_to_thread(pipeline):
    begins, ends = (
        sorted(named(pipeline, "s"), key=lambda each: each[2]),
        sorted(named(pipeline, "f"), key=lambda each: each[2]),
    )
    assert [(tid, ts) for _, tid, ts in begins] == [(0, 0.149), (0, 0.249), (1, 0.399), (1, 0.649)]
    assert [(tid, ts) for _, tid, ts in ends] == [(1, 0.2), (1, 0.41), (0, 0.42), (0, 0.67)]
    alone = trace_of([(0, 0, 0, 0, 10), (1, 0, 0, 20, 30)], [(0, 1, 0)])
    assert not named(alone, "s")
    check_format(alone.to_dict())


def test_summary(pipeline):
    found = pipeline.summary()
    assert found.seconds == pytest.approx(700e-9)
    assert found.steps == 2
    one, _ = found.threads
    assert one.name == "thread 0"
    ns = [round(each * 1e9) for each in one[1:]]
    assert ns == [250, 350, 30, 70, 0]  # work, waiting, publishing, starting, idle
    assert [sum(each[1:]) for each in found.threads] == pytest.approx([700e-9] * 2)
    assert [(w.name, w.awaited, w.thread, w.on, w.times) for w in found.waits] == [
        ("store", "filter", "thread 0", "thread 1", 2),
        ("filter", "load", "thread 1", "thread 0", 1),
    ]
    assert [(each.name, each.step) for each in found.critical_path] == [
        ("load", 0),
        ("filter", 0),
        ("filter", 1),
        ("store", 1),
    ]
    assert [round(each.gap * 1e9) for each in found.critical_path] == [50, 50, 10, 20]
    assert str(found).splitlines()[0] == "2 steps in 700 ns"
    for words in (
        "time in µs",
        "store on thread 0",
        "filter on thread 1",
        "critical path: 4 operations, 570 ns of work",
    ):
        assert words in str(found)
    assert repr(found) == "<TraceSummary: 2 steps in 700 ns>"


def test_summary_of_nothing():
    empty = Trace(np.empty(0, RECORD), [], [], [])
    assert empty.summary().critical_path == ()
    assert "0 steps" in str(empty.summary())
    assert "0 records" in empty._repr_html_()
    check_format(empty.to_dict())


@ost.task
def add(x: ost.Read, y: ost.ReadWrite):
    y += x.sum()


@pytest.mark.parametrize("cpus", [1, 3])
def test_traces_of_programs(cpus):
    tiles, total = np.ones((9, 4)), np.zeros(1)
    with ost.capture() as graph:
        for index, tile in enumerate(tiles):
            ost.current_graph().task(add, tile, tiles[index - 1], on=f"cpu:{index % cpus}")
        ost.current_graph().task(add, tiles[0], total, on="cpu:0", name="total <&>")
    with ost.Machine(cpus=cpus) as machine, graph.compile(machine) as program:
        trace = program.trace(5)
    check_format(trace.to_dict())
    assert bool(named(trace, "s")) == (cpus > 1)
    assert Counter(name for name, _, _ in named(trace, "B") if name.startswith("step ")) == {
        f"step {step}": 1 for step in range(5)
    }
    found = trace.summary()
    for row in found.threads:
        assert sum(row[1:]) == pytest.approx(found.seconds)
        assert min(row[1:]) >= 0
    order = [(each.step, each.name) for each in found.critical_path]
    assert order[-1][0] == 4
    assert [step for step, _ in order] == sorted(step for step, _ in order) or cpus > 1
    page = trace._repr_html_()
    assert "total &lt;&amp;&gt;" in page
    assert "total <&>" not in page
    assert "step 4" in page


def test_traces_of_devices():
    @ost.task
    def smooth(stream: ost.Stream, x: ost.Read, y: ost.Write) -> None:
        fake.launch(stream, lambda a, b: np.multiply(a, 2, out=b), x, y)

    x, y, z = np.ones(4), np.zeros(4), np.zeros(1)
    with ost.capture() as graph:
        smooth(x, y)
        add(y, z)
    with fake.install(), ost.Machine(cpus=1) as machine, graph.compile(machine) as program:
        trace = program.trace(3)
    check_format(trace.to_dict())
    arrows = list(zip(named(trace, "s"), named(trace, "f"), strict=True))
    assert any(begin[1] == 1 and end[1] == 0 for begin, end in arrows)  # from the device, through the fence
    assert "fake:0" in trace._repr_html_()
    assert any(each.on == "fake:0" for each in trace.summary().waits)


def test_streams_that_work_at_once_have_tracks_of_their_own():
    rows = [(0, 0, 1, 0, 100, 300, 50), (1, 0, 1, 1, 200, 400, 60)]
    trace = Trace(np.array(rows, RECORD), ["a", "b"], ["", ""], ["cpu:0", "cpu:0"], devices={1: "fake:0"})
    check_format(trace.to_dict())
    assert [tid for _, tid, _ in named(trace, "X")] == [1, 2]
