"""The contract on `graph.tune`: where variants are measured, interrupts, threads and processes."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from measuring import (
    IN_BETWEEN,
    RIGHT,
    USER,
    WATCHED,
    by_variant,
    graph_of,
    output,
    tune,
    variant,
    wrong,
)

pytestmark = pytest.mark.usefixtures("places")


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2, gpus=0) as machine:
        yield machine


# Where it is measured


def test_what_can_be_imported_is_measured_in_other_processes(tasks, machine, lines):
    graph, *_ = graph_of(tasks(WATCHED).relax)
    report = tune(graph, machine)["relax"]
    assert lines()
    assert {int(line.split()[1]) for line in lines()}.isdisjoint({os.getpid()})
    assert "this process" not in report.best.message


def test_closures_are_measured_in_this_process_and_it_says_so(machine):
    processes = set()

    @ost.task
    def relax(src: ost.Read, dst: ost.Write):
        time.sleep(0.003)
        dst[...] = src * 2

    @relax.variant()
    def quick(src: ost.Read, dst: ost.Write):
        processes.add(os.getpid())
        np.multiply(src, 2, out=dst)

    @relax.variant()
    def broken(src: ost.Read, dst: ost.Write):
        dst[...] = 1

    @relax.variant()
    def raises(src: ost.Read, dst: ost.Write):
        raise ValueError("no")

    graph, _src, dst = graph_of(relax)
    report = tune(graph, machine)["relax"]
    assert processes == {os.getpid()}
    assert variant(report.best) == "quick"
    assert "this process" in report.best.message
    found = by_variant(report)
    assert found["broken"].status == "wrong_result"
    assert found["raises"].status == "crash"
    assert "no" in found["raises"].message
    assert dst.tolist() == [7.0] * 8
    with graph.compile(machine) as program:
        assert "quick" in program.explain()
        program.replay()
    assert dst.tolist() == [2.0] * 8


MAIN = """
import sys, time
import numpy as np
import ostinato as ost

@ost.task
def relax(src: ost.Read, dst: ost.Write):
    time.sleep(0.003)
    dst[...] = src * 2

@relax.variant()
def quick(src: ost.Read, dst: ost.Write):
    FACTOR

if __name__ == "__main__":
    a, b = np.ones(8), np.zeros(8)
    with ost.capture() as graph:
        relax(a, b)
    with ost.Machine(cpus=1, gpus=0) as machine:
        report = graph.tune(machine, progress=False)["relax"]
        for result in report.results:
            config = result.candidate.config
            print(config["variant"], result.status, result.cached, result.miss, "this process" in result.message)
        print("best", report.best.candidate.config["variant"])
"""


def test_main_is_measured_in_this_process_and_found_again(user):
    right = MAIN.replace("FACTOR", "np.multiply(src, 2, out=dst)")
    assert output(user(right)) == ["relax ok False None True", "quick ok False None True", "best quick"]
    assert [line.split()[:3] for line in output(user(right))[:2]] == [["relax", "ok", "True"], ["quick", "ok", "True"]]
    changed = output(user(MAIN.replace("FACTOR", "np.multiply(src, 3, out=dst)")))
    assert changed[1].split()[:3] == ["quick", "wrong_result", "False"]
    assert changed[2] == "best relax"


def test_one_that_would_end_this_process_does_not(machine):
    @ost.task
    def relax(src: ost.Read, dst: ost.Write):
        time.sleep(0.003)
        dst[...] = src * 2

    @relax.variant()
    def leaves(src: ost.Read, dst: ost.Write):
        raise SystemExit(3)

    graph, *_ = graph_of(relax)
    report = tune(graph, machine)["relax"]
    assert variant(report.best) == "relax"
    assert by_variant(report)["leaves"].status == "crash"


def test_closures_of_other_values_are_not_the_same(machine):
    """One line of source, two functions: what one was measured to do says nothing of the other."""

    def make(factor):
        @ost.task
        def relax(src: ost.Read, dst: ost.Write):
            time.sleep(0.003)
            dst[...] = src * 2

        @relax.variant()
        def quick(src: ost.Read, dst: ost.Write):
            np.multiply(src, factor, out=dst)

        return relax

    for factor, best in ((2, "quick"), (3, "relax"), (2, "quick")):
        graph, _src, dst = graph_of(make(factor))
        assert variant(tune(graph, machine)["relax"].best) == best
        with graph.compile(machine) as program:
            program.replay()
        assert dst.tolist() == [2.0] * 8


def test_defaults_of_other_values_are_not_the_same(machine):
    def make(factor):
        @ost.task
        def relax(src: ost.Read, dst: ost.Write):
            time.sleep(0.003)
            dst[...] = src * 2

        @relax.variant()
        def quick(src: ost.Read, dst: ost.Write, by=factor):
            np.multiply(src, by, out=dst)

        return relax

    for factor, best in ((2, "quick"), (3, "relax")):
        graph, *_ = graph_of(make(factor))
        assert variant(tune(graph, machine)["relax"].best) == best
        with graph.compile(machine) as program:
            assert ("quick" in program.explain()) == (best == "quick")


def test_source_that_nobody_can_read(machine):
    for factor, best in ((2, "quick"), (3, "relax")):
        names = {"ost": ost, "np": np, "time": time}
        exec(
            "@ost.task\n"
            "def relax(src: ost.Read, dst: ost.Write):\n"
            "    time.sleep(0.003)\n"
            "    dst[...] = src * 2\n"
            "@relax.variant()\n"
            "def quick(src: ost.Read, dst: ost.Write):\n"
            f"    np.multiply(src, {factor}, out=dst)\n",
            names,
        )
        graph, _src, dst = graph_of(names["relax"])
        assert variant(tune(graph, machine)["relax"].best) == best
        with graph.compile(machine) as program:
            program.replay()
        assert dst.tolist() == [2.0] * 8


# Interrupts, threads, processes


def interrupt_once(path):
    """Send SIGINT to this process as soon as a file has a line."""

    def wait():
        deadline = time.monotonic() + 30
        while not Path(path).exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_an_interrupt_in_other_processes(tasks, machine, lines):
    source = """
@relax.variant()
def sleepy(src: ost.Read, dst: ost.Write):
    note("sleepy")
    slow(0.3)
    np.multiply(src, 2, out=dst)
"""
    module = tasks(source)
    graph, _src, dst = graph_of(module.relax)
    thread = interrupt_once(lines.path)
    with pytest.raises(KeyboardInterrupt):
        tune(graph, machine)
    thread.join()
    assert dst.tolist() == [7.0] * 8
    with graph.compile(machine) as program:
        program.replay()
    assert dst.tolist() == [2.0] * 8


def test_an_interrupt_in_this_process(machine, tmp_path):
    path = tmp_path / "ran"

    @ost.task
    def relax(src: ost.Read, dst: ost.Write):
        dst[...] = src * 2

    @relax.variant()
    def sleepy(src: ost.Read, dst: ost.Write):
        path.touch()
        time.sleep(0.2)
        np.multiply(src, 2, out=dst)

    graph, _src, dst = graph_of(relax)
    thread = interrupt_once(path)
    with pytest.raises(KeyboardInterrupt):
        tune(graph, machine)
    thread.join()
    assert dst.tolist() == [7.0] * 8
    assert variant(tune(graph, machine, budget=10)["relax"].best) == "relax"


def test_two_processes_at_once(tasks, user, tmp_path):
    module = tasks(WATCHED + IN_BETWEEN)
    processes = [user(USER, module.__name__, tmp_path / "store.db") for _ in range(2)]
    for process in processes:
        assert "best quick" in output(process)


def test_two_threads_at_once(tasks, machine, in_threads):
    graphs = [graph_of(tasks(RIGHT).relax)[0] for _ in range(2)]
    best = []
    in_threads(*(lambda graph=graph: best.append(variant(tune(graph, machine)["relax"].best)) for graph in graphs))
    assert best == ["quick", "quick"]


def test_inside_a_capture(tasks, machine):
    """Nothing that is measured is recorded."""
    module = tasks(RIGHT)
    other, *_ = graph_of(module.relax)

    @ost.task
    def closure(src: ost.Read, dst: ost.Write):
        dst[...] = src

    another, *_ = graph_of(closure)
    a, b = np.ones(8), np.zeros(8)
    with ost.capture() as graph:
        module.relax(a, b)
        tune(other, machine)
        tune(another, machine)
        with pytest.raises(ost.GraphError, match="captured"):
            tune(graph, machine)
    assert len(graph) == 1
    with graph.compile(machine) as program:
        program.replay()
    assert b.tolist() == [2.0] * 8


def test_while_a_program_of_the_machine_runs(tasks, machine, eventually):
    module = tasks(RIGHT)
    x = np.zeros(1)

    @ost.task
    def count(x: ost.ReadWrite):
        x += 1
        time.sleep(0.0005)

    with ost.capture() as running:
        count(x)
    with running.compile(machine) as program:
        run = program.submit(1_000_000)
        eventually(lambda: run.steps_done > 0)
        try:
            graph, *_ = graph_of(module.relax)
            assert variant(tune(graph, machine)["relax"].best) == "quick"
            assert run.running()
        finally:
            assert run.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            run.result(60)
    assert x[0] == run.steps_done


def test_nothing_is_left_running(tasks, machine, alive):
    def children():
        return {
            int(pid)
            for task in Path("/proc/self/task").iterdir()
            for pid in (task / "children").read_text().split()
            if alive(int(pid))
        }

    before, threads = children(), set(threading.enumerate())
    descriptors = len(os.listdir("/proc/self/fd"))
    graph, *_ = graph_of(tasks(RIGHT + wrong("os.abort()")).relax)
    tune(graph, machine)
    tune(graph, machine)
    assert children() == before
    assert set(threading.enumerate()) <= threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1
