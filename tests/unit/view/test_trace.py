"""Traces: what they contain, how they are saved and drawn, and what a failed write leaves."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from ostinato.view import trace as trace_module
from ostinato.view.trace import RECORD, Trace


@pytest.fixture
def trace() -> Trace:
    """Two steps of three operations on two threads."""
    boot = 10**15  # far from zero, as a monotonic clock is
    rows = [
        (op, step, op % 2, op, boot + 1000 * step + 100 * op, boot + 1000 * step + 100 * op + 51, 0)
        for step in (7, 8)
        for op in range(3)
    ]
    return Trace(
        records=np.array(rows, RECORD),
        op_names=["load", "filter", "store"],
        op_sites=["a.py:1", "a.py:2", "a.py:3"],
        lane_processors=["cpu:0", "cpu:1", "cpu:0"],
    )


@pytest.fixture
def of_devices() -> Trace:
    """A copy to a device and a kernel on two streams, issued by thread 1, and a task that thread 0 runs meanwhile."""
    rows = [
        (0, 5, 2, 0, 1200, 1300, 1100),
        (1, 5, 2, 1, 1300, 1900, 1150),
        (2, 5, 0, 2, 1200, 1700, 0),
        (1, 6, 2, 1, 1900, 2200, 1200),
    ]
    return Trace(
        records=np.array(rows, RECORD),
        op_names=["copy to fake:0 for 'smooth'", "smooth", "decode"],
        op_sites=["a.py:1", "a.py:1", "a.py:2"],
        lane_processors=["cpu:1", "cpu:1", "cpu:0"],
        devices={2: "fake:0"},
        added=[True, False, False],
        copies=[True, False, False],
    )


def empty() -> Trace:
    return Trace(np.empty(0, RECORD), [], [], [])


def test_length_and_repr(trace):
    assert len(trace) == 6
    assert repr(trace) == "<Trace: 6 records of 2 steps on 2 threads>"
    assert "3 dropped" in repr(Trace(trace.records, trace.op_names, trace.op_sites, trace.lane_processors, 3))


def test_events_carry_step_lane_site_and_exact_times(trace):
    slices = [event for event in trace.to_dict()["traceEvents"] if event["ph"] == "X"]
    assert slices[4] == {
        "ph": "X",
        "cat": "op",
        "name": "filter",
        "pid": 0,
        "tid": 1,
        "ts": 1.1,
        "dur": 0.051,
        "args": {"step": 8, "op": 1, "lane": 1, "processor": "cpu:1", "recorded at": "a.py:2"},
    }


def test_one_track_per_thread(trace):
    names = {
        event["tid"]: event["args"]["name"]
        for event in trace.to_dict()["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert names == {0: "thread 0", 1: "thread 1", 2: "steps"}


def test_devices_are_tracks_and_what_issued_for_them_is_marked(of_devices):
    assert repr(of_devices) == "<Trace: 4 records of 2 steps on 1 thread, fake:0>"
    saved = of_devices.to_dict()
    events = saved["traceEvents"]
    assert saved["otherData"]["start_ns"] == 1100
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert tracks == {0: "thread 0", 2: "fake:0", 3: "steps 1", 4: "steps 2"}
    (copy, smooth, decode, _) = (event for event in events if event["ph"] == "X")
    assert [copy["cat"], smooth["cat"], decode["cat"]] == ["copy", "op", "op"]
    assert [smooth["tid"], smooth["ts"], smooth["dur"]] == [2, 0.2, 0.6]
    assert [smooth["args"]["processor"], decode["args"]["processor"]] == ["fake:0", "cpu:0"]
    issues = [(event["name"], event["tid"], event["ts"]) for event in events if event["ph"] == "i"]
    assert issues[1:] == [("issue smooth", 1, 0.05), ("issue smooth", 1, 0.1)]


def test_what_streams_do_at_once_keeps_a_device_busy_once(of_devices):
    of_devices.records["end"][0] = 1700  # the copy, under way beside the kernel
    assert of_devices.busy() == {"thread 0": pytest.approx(500e-9), "fake:0": pytest.approx(1000e-9)}
    assert empty().busy() == {}


@pytest.mark.parametrize("make", [lambda trace: trace, lambda trace: empty()])
def test_saved_file_is_the_dict(trace, tmp_path, make):
    made = make(trace)
    made.save(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text()) == made.to_dict()


def test_several_programs_are_several_processes_on_one_clock(trace, tmp_path):
    later = trace.records.copy()
    later["start"] += 5000
    later["end"] += 5000
    trace_module.save(
        [trace, Trace(later, trace.op_names, trace.op_sites, trace.lane_processors, dropped=2)], tmp_path / "all.json"
    )
    saved = json.loads((tmp_path / "all.json").read_text())
    slices = [event for event in saved["traceEvents"] if event["ph"] == "X"]
    assert {event["pid"] for event in slices} == {0, 1}
    assert slices[6]["ts"] == slices[0]["ts"] + 5
    assert saved["otherData"]["dropped"] == 2


def test_missing_directory_is_named_and_nothing_is_made(trace, tmp_path):
    path = tmp_path / "missing" / "trace.json"
    with pytest.raises(FileNotFoundError) as caught:
        trace.save(path)
    assert caught.value.filename == os.fspath(path)
    assert not list(tmp_path.iterdir())


def test_failure_half_way_keeps_the_old_file(trace, tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("old")
    broken = Trace(trace.records, ["load", object()], trace.op_sites, trace.lane_processors)
    with pytest.raises(TypeError):
        broken.save(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_full_disk_raises(trace):
    with pytest.raises(OSError, match="No space left"):
        trace.save("/dev/full")


def test_save_follows_a_symbolic_link(trace, tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    trace.save(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())


@pytest.mark.parametrize("name", ["timeline.png", "timeline.svg", "timeline"])
@pytest.mark.parametrize("make", [lambda trace: trace, lambda trace: empty()])
def test_plot_writes_a_picture(trace, tmp_path, name, make):
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    make(trace).plot(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    head = (tmp_path / name).read_bytes()[:200]
    assert b"<svg" in head or b"<?xml" in head if name.endswith("svg") else head.startswith(b"\x89PNG")


def drawn(trace: Trace, path: Path, steps: int = 4) -> str:
    """The picture, in which words can be read."""
    matplotlib = pytest.importorskip("matplotlib", reason="needs the extra plot")
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        trace.plot(path / "drawn.svg", steps)
    return (path / "drawn.svg").read_text()


def test_plot_shows_the_last_steps_only(trace, tmp_path):
    both, last = (drawn(trace, tmp_path, steps) for steps in (2, 1))
    assert ">step 7<" in both
    assert ">step 7<" not in last
    assert ">step 8<" in last
    with pytest.raises(ValueError, match="at least 1"):
        trace.plot(tmp_path / "none.svg", steps=0)


def test_plot_says_what_is_left_of_earlier_steps(of_devices, tmp_path):
    assert ">earlier steps<" not in drawn(of_devices, tmp_path)
    of_devices.records["step"][2] = 4
    assert ">earlier steps<" in drawn(of_devices, tmp_path, 2)


def test_plot_has_rows_for_the_streams_of_devices(of_devices, tmp_path):
    picture = drawn(of_devices, tmp_path)
    for words in ("thread 0", "thread 1", "fake:0, stream 0", "fake:0, stream 1", "copy", "issue", "step 5", "smooth"):
        assert f">{words}<" in picture
    assert "decode, smooth; busy: thread 0 45%, fake:0 91%" in picture


def test_threads_alone_have_nothing_of_devices_in_their_picture(trace, tmp_path):
    picture = drawn(trace, tmp_path)
    assert "filter, load, store: 6 operations, 12% busy" in picture
    assert not any(f">{words}<" in picture for words in ("copy", "issue"))


def test_plot_without_matplotlib_names_the_extra(trace, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"ostinato\[plot\]"):
        trace.plot(tmp_path / "timeline.png")
