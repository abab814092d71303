"""The contract on measured costs, where things go wrong around them: killed processes, full disks, forks, crowds."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from measuring import RIGHT, USER, WATCHED, graph_of, output, the_only, tune, variant

pytestmark = pytest.mark.usefixtures("places")

MANY = """
import importlib, sys
import numpy as np
import ostinato as ost

module = importlib.import_module(sys.argv[1])
with ost.capture() as graph:
    for n in range(1, 200):
        module.relax(np.ones(n), np.zeros(n))
with ost.Machine(cpus=1, gpus=0) as machine:
    graph.tune(machine, store=sys.argv[2], progress=False)
"""


# Each call says how long its arrays are: one knows which case is being measured.
TOLD = """
@relax.variant()
def quick(src: ost.Read, dst: ost.Write):
    note(len(src))
    np.multiply(src, 2, out=dst)
"""


def has_come_to(lines, length):
    return any(int(line.split()[0]) >= length for line in lines())


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2, gpus=0) as machine:
        yield machine


def test_a_killed_process_leaves_a_store_that_can_be_used(tasks, machine, user, lines, eventually, alive, tmp_path):
    module = tasks(TOLD)
    store = tmp_path / "store.db"
    process = user(MANY, module.__name__, store)
    eventually(lambda: has_come_to(lines, 3) or process.poll() is not None)
    process.kill()
    process.wait(60)
    workers = {int(line.split()[1]) for line in lines()}
    eventually(lambda: not any(map(alive, workers)))
    with ost.capture() as graph:
        for n in range(1, 4):
            module.relax(np.ones(n), np.zeros(n))
    reports = tune(graph, machine, store=store)
    assert [variant(report.best) for report in reports.values()] == ["quick"] * 3
    assert all(result.cached for result in next(iter(reports.values())).results)
    with graph.compile(machine, costs=store) as program:
        assert "quick" in program.explain()
        program.replay()


def test_an_interrupted_process_keeps_what_it_measured(tasks, machine, user, lines, eventually, tmp_path):
    module = tasks(TOLD)
    store = tmp_path / "store.db"
    process = user(MANY, module.__name__, store)
    eventually(lambda: has_come_to(lines, 3) or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    graph, *_ = graph_of(module.relax, (1,))
    assert all(result.cached for result in the_only(tune(graph, machine, store=store)).results)


def test_a_full_disk(tasks, user, tmp_path):
    """What cannot be stored is measured, and told, all the same."""
    module = tasks(RIGHT)
    full = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
import ostinato.tune.store.store, ostinato.tune.searching.tuner
LIMIT = 4096 * 8
"""
    source = USER.replace("module =", full + "\nmodule =", 1).replace(
        "    if ", "    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))\n    if ", 1
    )
    source = source.replace(
        "module.relax(a, b)", "[module.relax(np.ones(n), np.zeros(n)) for n in range(1, 7)]; module.relax(a, b)"
    )
    source = source.replace('["relax"]', '["relax[8 float64, 8 float64]"]').replace('["relax', '["relax')
    process = user(source, module.__name__, tmp_path / "store.db")
    out, errors = process.communicate(timeout=60)
    assert process.returncode >= 0, errors
    if process.returncode:
        assert "TuningError" in errors or "StoreError" in errors, errors
        assert "store.db" in errors
    else:
        assert "best quick" in out


def test_without_a_home_nothing_is_remembered(tasks, machine, monkeypatch, caplog):
    monkeypatch.setenv("OSTINATO_CACHE_DIR", "/proc/nowhere")
    module = tasks(RIGHT)
    graph, *_ = graph_of(module.relax)
    with caplog.at_level("WARNING"):
        assert variant(tune(graph, machine)["relax"].best) == "quick"
    assert "/proc/nowhere" in caplog.text
    with graph.compile(machine) as program:
        program.replay()
    with pytest.raises(ost.TuningError):
        tune(graph, machine, store="/proc/nowhere/store.db")


def test_a_store_that_goes_away(tasks, machine):
    module = tasks(RIGHT)
    graph, *_ = graph_of(module.relax)
    tune(graph, machine)
    with graph.compile(machine) as program:
        assert "quick" in program.explain()
    for path in Path(os.environ["OSTINATO_CACHE_DIR"]).glob("tune.db*"):
        path.unlink()
    with graph.compile(machine) as program:
        assert "quick" not in program.explain()
        program.replay()
    assert not any(result.cached for result in tune(graph, machine)["relax"].results)


def test_a_store_that_becomes_something_else(tasks, machine, caplog):
    module = tasks(RIGHT)
    graph, *_ = graph_of(module.relax)
    tune(graph, machine)
    for path in Path(os.environ["OSTINATO_CACHE_DIR"]).glob("tune.db*"):
        path.unlink()
    Path(os.environ["OSTINATO_CACHE_DIR"], "tune.db").write_bytes(b"garbage" * 1000)
    with graph.compile(machine) as program:
        assert "quick" not in program.explain()
        program.replay()
    with caplog.at_level("WARNING"):
        assert variant(tune(graph, machine)["relax"].best) == "quick"
    assert "tune.db" in caplog.text


FORKS = """
import importlib, os, sys
import numpy as np
import ostinato as ost

module = importlib.import_module(sys.argv[1])
with ost.capture() as graph:
    module.relax(np.ones(8), np.zeros(8))
machine = ost.Machine(cpus=2, gpus=0)
graph.tune(machine, progress=False)
program = graph.compile(machine)
assert "quick" in program.explain()
child = os.fork()
if child == 0:
    try:
        for use in (lambda: graph.tune(machine, progress=False), lambda: graph.compile(machine), program.replay):
            try:
                use()
            except RuntimeError:
                pass
            else:
                os._exit(2)
        with ost.Machine(cpus=1, gpus=0) as own, graph.compile(own) as again:
            assert "quick" in again.explain()
            again.replay()
            report = graph.tune(own, progress=False)["relax"]
            assert all(result.cached for result in report.results)
            with ost.capture() as other:
                module.relax(np.ones(9), np.zeros(9))
            report = other.tune(own, progress=False)["relax"]
            assert report.best.candidate.config == {"variant": "quick"}, report.table()
        os._exit(0)
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status))
program.replay()
with ost.capture() as other:
    module.relax(np.ones(9), np.zeros(9))
print(all(result.cached for result in other.tune(machine, progress=False)["relax"].results))
machine.close()
"""


@pytest.mark.forks
def test_forked_children(tasks, user):
    module = tasks(RIGHT)
    process = user(
        FORKS.replace("import importlib", "import warnings; warnings.simplefilter('ignore')\nimport importlib", 1),
        module.__name__,
    )
    assert output(process) == ["child 0", "True"]


@pytest.mark.parametrize("cpus", [1, 8])
def test_more_processors_than_cores(here, cpus):
    module = here(RIGHT)
    with ost.Machine(cpus=cpus, gpus=0) as machine:
        graph, *_ = graph_of(module.relax, times=12)
        assert variant(the_only(tune(graph, machine)).best) == "quick"
        with graph.compile(machine) as program:
            assert "quick" in program.explain()
            program.replay(10)
            program.retune(steps=30)


def test_what_one_machine_measured_holds_for_others(here):
    module = here(RIGHT)
    graph, *_ = graph_of(module.relax)
    with ost.Machine(cpus=1, gpus=0) as machine:
        tune(graph, machine)
    with ost.Machine(cpus=3, gpus=0) as machine:
        assert all(result.cached for result in tune(graph, machine)["relax"].results)
        with graph.compile(machine) as program:
            assert "quick" in program.explain()


def test_tuning_and_compiling_in_many_threads(here, in_threads):
    modules = [here(RIGHT) for _ in range(2)]
    wrong = []
    with ost.Machine(cpus=2, gpus=0) as machine:

        def measure(module):
            for n in (8, 9):
                graph, *_ = graph_of(module.relax, (n,))
                if variant(tune(graph, machine)["relax"].best) != "quick":
                    wrong.append("tune")

        def compiles(module):
            for _ in range(30):
                graph, _src, dst = graph_of(module.relax)
                with graph.compile(machine) as program:
                    program.replay(2)
                    program.explain()
                if dst.tolist() != [2.0] * 8:
                    wrong.append("replay")

        in_threads(*(lambda m=m: measure(m) for m in modules), *(lambda m=m: compiles(m) for m in modules))
    assert wrong == []


def test_inside_a_running_task(here, machine):
    """It ends, one way or the other, and nothing is recorded or left behind."""
    module = here(RIGHT)
    inner, *_ = graph_of(module.relax)
    outcome = []

    @ost.task
    def outer(x: ost.ReadWrite):
        try:
            outcome.append(variant(tune(inner, machine)["relax"].best))
        except (ost.ContractError, RuntimeError) as error:
            outcome.append(type(error).__name__)

    with ost.capture() as graph:
        outer(np.zeros(1))
    with graph.compile(machine) as program:
        program.replay()
    assert outcome in (["quick"], ["ContractError"], ["RuntimeError"])
    assert variant(tune(inner, machine)["relax"].best) == "quick"


def test_a_machine_that_is_closed_meanwhile(here, lines, eventually):
    module = here(WATCHED)
    machine = ost.Machine(cpus=1, gpus=0)
    with ost.capture() as graph:
        for n in range(1, 7):
            module.relax(np.ones(n), np.zeros(n))
    outcome = []

    def measure():
        try:
            outcome.append(len(tune(graph, machine)))
        except (RuntimeError, ost.OstinatoError) as error:
            outcome.append(error)

    thread = threading.Thread(target=measure, daemon=True)
    thread.start()
    eventually(lambda: lines() or not thread.is_alive())
    machine.close()
    thread.join(60)
    assert not thread.is_alive()
    assert len(outcome) == 1


def test_a_large_graph_is_tuned_as_a_small_one(here, machine):
    module = here(RIGHT)
    a, b = np.ones(8), np.zeros(8)
    with ost.capture() as graph:
        for _ in range(20000):
            module.relax(a, b)
    assert variant(the_only(tune(graph, machine)).best) == "quick"
    assert all(result.cached for result in the_only(tune(graph, machine)).results)


def test_buffers_that_are_no_numpy_arrays(here, machine):
    source = """
@ost.task
def move(src: ost.Read, dst: ost.Write):
    slow()
    dst[:] = src

@move.variant()
def quick(src: ost.Read, dst: ost.Write):
    memoryview(dst)[:] = src

@move.variant()
def broken(src: ost.Read, dst: ost.Write):
    dst[:-1] = src[:-1]
"""
    module = here(source)
    src, dst = bytearray(b"12345678"), bytearray(8)
    with ost.capture() as graph:
        module.move(src, dst)
    report = the_only(tune(graph, machine))
    assert (src, dst) == (b"12345678", bytes(8))
    assert {variant(r): str(r.status) for r in report.results}["broken"] != "ok"
    with graph.compile(machine) as program:
        program.replay()
    assert dst == src
