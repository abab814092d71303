"""The contract on `graph.tune`: every variant of every op is measured once, on copies."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from measuring import (
    IN_BETWEEN,
    RIGHT,
    SCALED,
    USER,
    by_variant,
    graph_of,
    output,
    the_only,
    tune,
    variant,
)
from naming import stable_repr, stable_str

pytestmark = pytest.mark.usefixtures("places")


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2, gpus=0) as machine:
        yield machine


# What is returned


def test_a_dict_of_reports(tasks, machine, tmp_path):
    graph, _src, _dst = graph_of(tasks(RIGHT).relax)
    reports = tune(graph, machine)
    assert isinstance(reports, dict)
    assert list(reports) == ["relax"]
    report = reports["relax"]
    assert isinstance(report, ost.Report)
    assert [variant(result) for result in report.results] == ["relax", "quick"]
    assert [result.status for result in report.results][1] == "ok"
    assert variant(report.best) == "quick"
    assert report.best in report.results
    assert report.best in report.ties
    assert variant(report.default) == "relax"
    best = report.best
    assert best.time_ns > 0
    assert best.interval_ns[0] <= best.time_ns <= best.interval_ns[1]
    assert len(best.samples) > 0
    assert best.device == "cpu:0" or best.device.startswith("cpu")
    assert (best.cached, best.miss) == (False, None)
    assert by_variant(report)["relax"].time_ns > 10 * best.time_ns
    assert "quick" in report.table()
    for suffix in (".json", ".csv", ".html"):
        report.save(tmp_path / f"report{suffix}")
        assert "quick" in (tmp_path / f"report{suffix}").read_text()


def test_the_configuration_is_in_the_candidate(here, machine):
    module = here(
        """
        @relax.variant(config={"pause": 0.001})
        @relax.variant(config={"pause": 0.0})
        @relax.variant(config={"pause": 0.002})
        def paused(src: ost.Read, dst: ost.Write, pause):
            slow(pause)
            np.multiply(src, 2, out=dst)
        """.replace("\n        ", "\n")
    )
    report = tune(graph_of(module.relax)[0], machine)["relax"]
    assert len(report.results) == 4
    assert report.best.candidate.config == {"variant": "paused", "pause": 0.0}


def test_everything_that_was_measured_is_said(here, machine):
    report = tune(graph_of(here(RIGHT).relax)[0], machine)["relax"]
    assert report.op
    assert "relax" in str(report.op)
    assert isinstance(report.key, dict)
    assert isinstance(report.why(), str)
    assert report.seconds > 0
    json.dumps(report.key)


# Once per distinct case


def test_equal_calls_are_measured_once(here, machine):
    module = here(RIGHT)
    graph, *_ = graph_of(module.relax, times=30)
    reports = tune(graph, machine)
    assert list(reports) == ["relax"]
    assert len(reports["relax"].results) == 2


def test_shapes_and_dtypes_are_told_apart(here, machine):
    module = here(RIGHT)
    with ost.capture() as graph:
        for shape, dtype in (((8,), float), ((9,), float), ((8,), np.float32), ((2, 4), float), ((8,), float)):
            module.relax(np.ones(shape, dtype), np.zeros(shape, dtype))
    reports = tune(graph, machine)
    assert len(reports) == 4
    assert all("relax" in name for name in reports)
    assert any("float32" in name for name in reports)
    assert len({json.dumps(report.key, sort_keys=True) for report in reports.values()}) == 4


def test_scalars_are_not_told_apart(here, machine):
    source = """
@ost.task
def scale(src: ost.Read, dst: ost.Write, factor):
    dst[...] = src * factor
"""
    module = here(source)
    with ost.capture() as graph:
        for factor in range(5):
            module.scale(np.ones(4), np.zeros(4), factor)
    assert len(tune(graph, machine)) == 1


def test_tasks_of_one_name_are_told_apart(tasks, machine):
    with ost.capture() as graph:
        for module in (tasks(RIGHT), tasks(IN_BETWEEN)):
            module.relax(np.ones(8), np.zeros(8))
    reports = tune(graph, machine)
    assert len(reports) == 2
    assert sorted(variant(report.best) for report in reports.values()) == ["quick", "relax"]


def test_each_shape_has_its_own_winner(here, machine):
    source = """
@relax.variant()
def for_small(src: ost.Read, dst: ost.Write):
    slow(0.0 if len(src) < 10 else 0.02)
    np.multiply(src, 2, out=dst)
"""
    module = here(source)
    with ost.capture() as graph:
        for n in (8, 16):
            module.relax(np.ones(n), np.zeros(n))
    best = [variant(report.best) for report in tune(graph, machine).values()]
    assert best == ["for_small", "relax"]


def test_variants_for_processors_that_are_not_there_are_left_out(here):
    source = """
@relax.variant(on="cuda")
def for_cuda(src: ost.Read, dst: ost.Write):
    note("cuda")
    dst[...] = 0

@relax.variant(on="cpu")
def for_cpu(src: ost.Read, dst: ost.Write):
    dst[...] = src * 2
"""
    with ost.Machine(cpus=1, gpus=0) as machine:
        graph, *_ = graph_of(here(source).relax)
        report = tune(graph, machine)["relax"]
        assert "for_cuda" not in [variant(result) for result in report.results if result.status == "ok"]
        assert variant(report.best) == "for_cpu"


# What is left alone


@pytest.mark.parametrize("where", ["here", "tasks"])
def test_arrays_and_objects_are_left_as_they_are(request, machine, where):
    source = (
        RIGHT
        + """
@ost.task
def append(log: ost.ReadWrite, x: ost.Read, y: ost.Write):
    log.append(1)
    y[...] = x + len(log)

@ost.task
def count(log: list, y: ost.Write):
    log.append(2)
    y[...] = 1
"""
    )
    module = request.getfixturevalue(where)(source)
    log, plain, x, y = [], [], np.ones(8), np.full(8, 7.0)
    x.flags.writeable = False
    with ost.capture() as graph:
        module.relax(x, y)
        module.append(log, x, y)
        module.count(plain, y)
    for _ in range(2):
        tune(graph, machine)
        assert (log, plain) == ([], [])
        assert x.tolist() == [1.0] * 8
        assert y.tolist() == [7.0] * 8
        assert not x.flags.writeable
        assert y.flags.writeable
    with graph.compile(machine) as program:
        program.replay(2)
    assert (log, plain) == ([1, 1], [2, 2])


def test_what_cannot_be_copied_is_left_alone(here, machine):
    source = """
@ost.task
def draw(file: ost.ReadWrite, y: ost.Write):
    file.write("x")
    y[...] = 1
"""
    module = here(source)
    y = np.zeros(3)
    with open(os.devnull, "w") as file, ost.capture() as graph:
        module.draw(file, y)
        module.draw(threading.Lock(), y)
    tune(graph, machine)
    assert y.tolist() == [0] * 3


def test_tasks_without_arrays_are_not_called(here, machine, lines):
    source = """
@ost.task
def say(text):
    note(text)
"""
    module = here(RIGHT + source)
    with ost.capture() as graph:
        module.say("hello")
        module.relax(np.ones(8), np.zeros(8))
    reports = tune(graph, machine)
    assert variant(reports["relax"].best) == "quick"
    assert lines() == []
    with graph.compile(machine) as program:
        program.replay()
    assert [line.split()[0] for line in lines()] == ["hello"]


def test_the_rest_of_a_graph_is_left_alone(here, machine):
    module = here(RIGHT)
    barrier, reservation, event = ost.Barrier(1), ost.Reservation(), ost.UserEvent()
    a, b, flag = np.ones(8), np.zeros(8), np.ones(1, np.int64)
    inner, *_ = graph_of(module.relax)
    graph = ost.Graph()
    before = graph.precondition("before")
    first = graph.acquire(reservation, after=before)
    op = graph.task(module.relax, a, b, after=first)
    graph.release(reservation, after=op)
    graph.arrive(barrier, after=op)
    graph.copy(a, b)
    graph.fill(b, 3.0)
    graph.subgraph(inner)
    graph.until(flag)
    graph.postcondition("afterwards", op)
    reports = tune(graph, machine)
    assert variant(reports["relax"].best) == "quick"
    assert barrier.phase == 0
    assert not event.done
    assert reservation.acquire().done
    assert a.tolist() == [1.0] * 8
    assert b.tolist() == [0.0] * 8
    assert flag[0] == 1


def test_copies_and_fills_alone(machine):
    a, b = np.ones(8), np.zeros(8)
    graph = ost.Graph()
    graph.copy(a, b)
    graph.fill(a, 5.0)
    reports = tune(graph, machine)
    assert all(isinstance(report, ost.Report) for report in reports.values())
    assert (a[0], b[0]) == (1, 0)


def test_an_empty_graph(machine):
    assert dict(tune(ost.Graph(), machine)) == {}


def test_nested_graphs_are_looked_into(tasks, machine):
    module = tasks(RIGHT)
    inner, _, dst = graph_of(module.relax)
    middle, outer = ost.Graph(), ost.Graph()
    middle.subgraph(inner)
    outer.subgraph(middle)
    outer.subgraph(inner)
    reports = tune(outer, machine)
    assert variant(the_only(reports).best) == "quick"
    with outer.compile(machine) as program:
        assert "quick" in program.explain()
        program.replay()
    assert dst.tolist() == [2.0] * 8


def test_params_of_nested_graphs(here, machine):
    module = here(SCALED)
    a, b = np.ones(8), np.zeros(8)
    with ost.capture() as inner:
        module.scale(a, b, ost.param("factor"))
    outer = ost.Graph()
    outer.subgraph(inner, params={"factor": 3})
    tune(outer, machine)
    with outer.compile(machine) as program:
        program.replay()
    assert b.tolist() == [3.0] * 8


def test_a_param_without_a_value_does_not_stop_it(here, machine):
    module = here(SCALED + RIGHT)
    a, b = np.ones(8), np.zeros(8)
    with ost.capture() as graph:
        module.scale(a, b, ost.param("factor"))
        module.relax(a, b)
    assert variant(tune(graph, machine)["relax"].best) == "quick"
    with graph.compile(machine) as program:
        program.replay(factor=3)


def test_blocking_tasks_do_not_stop_it(here, machine):
    source = (
        RIGHT
        + """
@ost.task(blocking=True)
def waits(event, x: ost.ReadWrite):
    event.wait()
"""
    )
    module = here(source)
    with ost.capture() as graph:
        module.waits(ost.UserEvent(), np.zeros(3))
        module.relax(np.ones(8), np.zeros(8))
    assert variant(tune(graph, machine)["relax"].best) == "quick"


def test_empty_and_odd_arrays(here, machine):
    module = here(RIGHT)
    for src in (
        np.ones(0),
        np.ones((3, 0)),
        np.ones(()),
        np.ones((2, 3, 4))[::-1, ::2],
        np.asfortranarray(np.ones((3, 4))),
    ):
        with ost.capture() as graph:
            module.relax(src, np.zeros_like(src))
        assert variant(the_only(tune(graph, machine)).best) == "quick"


# Arguments


def test_the_default_store_and_a_store_of_ones_own(here, machine, tmp_path):
    module = here(RIGHT)
    for store in (tmp_path / "one.db", str(tmp_path / "two.db"), None):
        report = tune(graph_of(module.relax)[0], machine, store=store)["relax"]
        assert not any(result.cached for result in report.results)
        report = tune(graph_of(module.relax)[0], machine, store=store)["relax"]
        assert all(result.cached for result in report.results)
    assert (tmp_path / "one.db").exists()
    assert list(Path(os.environ["OSTINATO_CACHE_DIR"]).rglob("*.db"))


def test_a_file_that_is_no_store(here, machine, tmp_path):
    graph, *_ = graph_of(here(RIGHT).relax)
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, thousands of words of them\n" * 100)
    with pytest.raises(ost.TuningError, match=r"notes\.txt"):
        tune(graph, machine, store=path)
    assert path.read_text().startswith("these are my notes")
    with pytest.raises(ost.TuningError):
        tune(graph, machine, store=tmp_path)
    with pytest.raises(ost.TuningError):
        tune(graph, machine, store=path / "store.db")


@pytest.mark.parametrize("store", [3, b"x", object()], ids=stable_str)
def test_wrong_stores(here, machine, store):
    with pytest.raises((TypeError, ValueError), match="store"):
        tune(graph_of(here(RIGHT).relax)[0], machine, store=store)


@pytest.mark.parametrize("machine", ["cpu:0", 3, object()], ids=stable_repr)
def test_wrong_machines(here, machine):
    with pytest.raises(TypeError, match=r"[Mm]achine"):
        tune(graph_of(here(RIGHT).relax)[0], machine)


def test_a_closed_machine(here):
    with ost.Machine(cpus=1, gpus=0) as machine:
        pass
    with pytest.raises(RuntimeError):
        tune(graph_of(here(RIGHT).relax)[0], machine)


def test_the_default_machine(here):
    report = graph_of(here(RIGHT).relax)[0].tune(progress=False)["relax"]
    assert variant(report.best) == "quick"


def test_everything_but_the_machine_is_a_keyword(here, machine):
    graph, *_ = graph_of(here(RIGHT).relax)
    with pytest.raises(TypeError):
        graph.tune(machine, "store.db")
    with pytest.raises(TypeError):
        graph.tune(machine, unknown=1)


@pytest.mark.parametrize("budget", [-1, 0, "x", float("nan"), [1], True], ids=stable_repr)
def test_wrong_budgets(here, machine, budget):
    with pytest.raises((TypeError, ValueError), match=r"budget|seconds"):
        tune(graph_of(here(RIGHT).relax)[0], machine, budget=budget)


@pytest.mark.parametrize("budget", [60, 60.0, ost.Budget(seconds=60)], ids=stable_repr)
def test_a_budget_that_is_enough(here, machine, budget):
    assert variant(tune(graph_of(here(RIGHT).relax)[0], machine, budget=budget)["relax"].best) == "quick"


def test_a_budget_that_is_not_enough(here, machine):
    module = here(RIGHT)
    with ost.capture() as graph:
        for n in range(1, 60):
            module.relax(np.ones(n), np.zeros(n))
    begin = time.monotonic()
    reports = tune(graph, machine, budget=0.3)
    assert time.monotonic() - begin < 30
    assert len(reports) == 59
    statuses = {result.status for report in reports.values() for result in report.results}
    assert "cancelled" in statuses
    for report in reports.values():
        for result in report.results:
            assert result.status in ("ok", "raced", "cancelled")
            if result.status == "cancelled":
                assert report.best is not result
    with graph.compile(machine) as program:
        program.replay()


def test_what_a_budget_cut_is_measured_next_time(tasks, machine):
    module = tasks(RIGHT)
    graph, *_ = graph_of(module.relax)
    tune(graph, machine, budget=1e-6)
    report = tune(graph, machine)["relax"]
    assert variant(report.best) == "quick"
    assert {result.status for result in report.results} == {"ok"}


# Interrupted


MANY = (
    "".join(
        f"""
@relax.variant()
def number_{number}(src: ost.Read, dst: ost.Write):
    note("{number}")
    slow(0.002)
    np.multiply(src, 2, out=dst)
"""
        for number in range(6)
    )
    + """
@relax.variant()
def wrong(src: ost.Read, dst: ost.Write):
    note("wrong")
    dst[...] = 3
"""
)

INTERRUPTED = """
import sys
import numpy as np
import ostinato as ost

def imported():
    import importlib
    return importlib.import_module({module!r})

def in_process():
    exec(open({file!r}).read(), globals())
    return sys.modules["__main__"]

module = {make}()
with ost.capture() as graph:
    module.relax(np.ones(8), np.zeros(8))
if __name__ == "__main__":
    with ost.Machine(cpus=1, gpus=0) as machine:
        report = graph.tune(machine, store={store!r}, progress=False, budget={budget})["relax"]
    for r in report.results:
        print(r.candidate.config["variant"], r.status, r.cached, r.miss, sep=",")
"""


@pytest.mark.parametrize(
    ("how", "make"),
    [("SIGKILL", "imported"), ("SIGINT", "in_process"), ("budget", "imported"), ("budget", "in_process")],
)
def test_variants_of_a_case_that_was_not_finished_are_not_measured_again(
    tasks, user, lines, tmp_path, eventually, make, how
):
    module = tasks(MANY)
    about = {"module": module.__name__, "file": module.__file__, "make": make, "store": str(tmp_path / "tune.db")}

    def began():
        """The variants that were called, in this order."""
        return list(dict.fromkeys(line.split()[0] for line in lines()))

    first = user(INTERRUPTED.format(**about, budget="ost.Budget(candidates=5)" if how == "budget" else None))
    told = []
    if how == "budget":
        told = [name for name, status, *_ in (line.split(",") for line in output(first)) if status == "ok"]
    else:
        eventually(lambda: len(began()) >= 5 or first.poll() is not None)
        first.send_signal(getattr(signal, how))
        first.communicate(timeout=60)
        assert first.returncode != 0
    before = began()
    assert len(before) >= 4
    second = user(INTERRUPTED.format(**about, budget=None))
    found = {name: rest for name, *rest in (line.split(",") for line in output(second))}
    assert set(found) == {"relax", "wrong", *(f"number_{number}" for number in range(6))}
    assert [name for name, (status, *_) in found.items() if status not in ("ok", "raced", "contended")] == ["wrong"]
    # A search that ended says which are known for good. Of one that was killed, some may be measured again: what was
    # being measured or had just ended, what another process disturbed, what was cut but could win by what is known now.
    known = told or ["relax", *(f"number_{name}" for name in before[:-2])]
    again = [name for name in known if found[name][1:] != ["True", "None"]]
    assert len(again) < (1 if told else len(known)), (again, found, before)
    assert found["number_5"][1] == "False"


def test_nothing_is_kept_of_a_case_whose_default_failed(tasks, lines, tmp_path):
    """Why it failed may be gone the next time."""
    module = tasks(
        """
@ost.task
def relax(src: ost.Read, dst: ost.Write):
    with open(LOG + ".there") as file:
        dst[...] = src * 2
"""
        + RIGHT
    )
    graph, *_ = graph_of(module.relax)
    report = tune(graph, store=tmp_path / "tune.db")["relax"]
    assert report.best is None
    Path(f"{lines.path}.there").touch()
    report = tune(graph, store=tmp_path / "tune.db")["relax"]
    assert not any(result.cached for result in report.results)
    assert {result.status for result in report.results} <= {"ok", "raced"}


# Progress


@pytest.mark.parametrize("progress", [True, False, None])
def test_progress_stays_off_the_standard_output(here, machine, capfd, progress):
    graph, *_ = graph_of(here(RIGHT).relax)
    graph.tune(machine, progress=progress)
    out, err = capfd.readouterr()
    assert out == ""
    if progress is not True:  # stderr is no terminal
        assert err == ""


def test_progress_on_a_terminal(tasks, tmp_path, places):
    module = tasks(RIGHT)
    leader, follower = pty.openpty()
    path = tmp_path / "user.py"
    path.write_text(USER.replace(", progress=False", ""))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TERM": "xterm"}
    command = [sys.executable, path, module.__name__, str(tmp_path / "store.db")]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    shown = b""
    with contextlib.suppress(OSError):  # it says so when the other side is closed
        while piece := os.read(leader, 4096):
            shown += piece
    os.close(leader)
    assert process.wait(60) == 0, shown.decode()
    assert b"relax" in shown


def test_progress_is_told_to_who_asks(here, machine):
    from ostinato.tune.progress import Progress

    class Listener(Progress):
        def __init__(self):
            self.told = []

        def begin(self, op, total):
            self.told.append(("begin", op))

        def end(self, report):
            self.told.append(("end", report.op))

    listener = Listener()
    tune(graph_of(here(RIGHT).relax)[0], machine, progress=listener)
    assert any("relax" in str(what) for _, what in listener.told)


@pytest.mark.parametrize("progress", ["yes", 3, object()], ids=stable_repr)
def test_wrong_progress(here, machine, progress):
    with pytest.raises((TypeError, ValueError), match="progress"):
        tune(graph_of(here(RIGHT).relax)[0], machine, progress=progress)
