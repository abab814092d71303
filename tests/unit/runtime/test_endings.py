"""How runs, programs and machines end when nobody looks, and how the next run starts."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest

import ostinato as ost
from ostinato.compiler.lower.lower import lower


@ost.task
def count(x: ost.ReadWrite):
    x += 1


def capture_count(x):
    with ost.capture() as graph:
        count(x)
    return graph


def test_closing_a_machine_waits_for_runs_that_nobody_holds():
    x = np.zeros(1)
    with ost.Machine(cpus=2) as machine:
        capture_count(x).compile(machine).submit(50_000)
    assert x[0] == 50_000


def test_a_machine_closed_while_a_program_is_compiled_for_it_refuses_the_program(monkeypatch):
    machine = ost.Machine(cpus=1)

    def lower_while_another_closes(*arguments):
        closer = threading.Thread(target=machine.close)
        closer.start()
        closer.join()
        return lower(*arguments)

    monkeypatch.setattr("ostinato.runtime.engine.lower", lower_while_another_closes)
    with pytest.raises(RuntimeError, match="closed"):
        capture_count(np.zeros(1)).compile(machine)


def test_a_forgotten_machine_ends_after_its_runs():
    x, gate = np.zeros(1), threading.Event()

    @ost.task
    def last(x: ost.ReadWrite, number):
        if number == 19_999:
            x += 1
            gate.set()
        else:
            x += 1

    with ost.capture() as graph:
        last(x, ost.step)
    graph.compile(ost.Machine(cpus=2)).submit(20_000)
    assert gate.wait(60)
    assert x[0] == 20_000


def test_the_interpreter_ends_while_a_forgotten_machine_runs():
    text = """
        import numpy as np, ostinato as ost
        x = np.zeros(1)
        @ost.task
        def count(x: ost.ReadWrite):
            x += 1
        with ost.capture() as graph:
            count(x)
        for _ in range(3):
            graph.compile(ost.Machine(cpus=2)).submit(10**12)
        print("end")
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode, done.stderr) == ("end\n", 0, "")


def test_a_clean_start_is_clean_on_every_lane_even_after_a_failure_of_its_own():
    # Lane "left" fails in the clean run before lane "right", whose processor is held up, enters it.
    x, y, z = np.zeros(1), np.zeros(1), np.zeros(1)
    gates = {name: threading.Event() for name in ("earlier", "held", "other", "failed")}

    @ost.task(releases_gil=True)
    def left(x: ost.ReadWrite, number):
        if number == 1:
            gates["earlier"].wait(60)
        if number == 2:
            gates["failed"].set()
            raise ValueError("in the clean run")

    @ost.task(releases_gil=True)
    def right(y: ost.ReadWrite, number):
        if number == 0:
            raise ValueError("in the first run")
        y += 1

    @ost.task(releases_gil=True)
    def hold(z: ost.ReadWrite):
        z += 1
        gates["held"].set()
        gates["other"].wait(60)

    graph, other = ost.Graph(), ost.Graph()
    graph.task(left, x, ost.step, on="cpu:0")
    graph.task(right, y, ost.step, on="cpu:1")
    other.task(hold, z, on="cpu:1")
    with ost.Machine(cpus=2) as machine, graph.compile(machine) as program, other.compile(machine) as holding:
        failed = program.submit(on_error="continue")
        earlier = program.submit()
        assert isinstance(failed.exception(30), ost.TaskError)
        clean = program.submit(on_error="continue")
        held = holding.submit()
        assert gates["held"].wait(60)
        gates["earlier"].set()
        assert gates["failed"].wait(60)
        time.sleep(0.02)  # until the core has taken note
        gates["other"].set()
        assert isinstance(clean.exception(30), ost.TaskError)
        assert y[0] == 1
        assert held.result(60) == 1
        assert isinstance(earlier.exception(30), ost.PoisonError)


def test_a_callback_may_cancel_another_run_and_wait_for_it():
    """The thread that runs callbacks is the one that aborts runs which do not end."""
    x, y, ended = np.zeros(1), np.zeros(1), threading.Event()
    with ost.Machine(cpus=1) as machine:
        stuck = ost.Graph()
        stuck.task(count, x, after=stuck.precondition("never"))
        graph = ost.Graph()
        graph.task(count, y)
        with stuck.compile(machine) as held, graph.compile(machine) as program:
            other = held.submit(after={"never": ost.UserEvent()})

            def cancel(_):
                other.cancel()
                with pytest.raises(CancelledError):
                    other.result(60)
                ended.set()

            event = ost.UserEvent()
            program.submit(after=event).add_done_callback(cancel)
            event.trigger()
            assert ended.wait(60)
