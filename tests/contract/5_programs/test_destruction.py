"""The contract on ends: close, garbage collection, exceptions and interpreter exit, with everything in flight."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from concurrent.futures import CancelledError

import numpy as np
import pytest

import ostinato as ost


@ost.task
def add(x: ost.ReadWrite, k=1):
    x += k


def graph_of(x):
    g = ost.Graph()
    op = g.task(add, x, after=g.precondition("go"))
    g.postcondition("done", after=op)
    return g


def later(function):
    """Call a function soon, from another thread."""
    timer = threading.Timer(0.02, function)
    timer.daemon = True
    timer.start()


@pytest.fixture(scope="module", autouse=True)
def quick_collections():
    """Leave what the tests before have made out of the many collections here."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


# close


def test_close_waits_for_runs_whose_conditions_come_later():
    x, go, start = np.zeros(1), ost.UserEvent(), ost.UserEvent()
    machine = ost.Machine(cpus=2)
    program = graph_of(x).compile(machine)
    runs = [program.submit(2, after={"go": go, None: start}) for _ in range(5)]
    later(lambda: (go.trigger(), start.trigger()))
    program.close()
    assert all(run.done() for run in runs)
    assert x[0] == 10
    machine.close()


def test_close_of_the_machine_waits_likewise():
    x, go = np.zeros(1), ost.UserEvent()
    with ost.Machine(cpus=2) as machine:
        program = graph_of(x).compile(machine)
        run = program.submit(3, after={"go": go})
        spawned = machine.spawn(add, x, after=run)
        later(go.trigger)
    assert run.done()
    assert spawned.done()
    assert x[0] == 4


def test_use_after_close_raises_while_it_still_waits():
    x, go, closing = np.zeros(1), ost.UserEvent(), threading.Event()
    with ost.Machine(cpus=2) as machine:
        program = graph_of(x).compile(machine)
        run = program.submit(after={"go": go})
        thread = threading.Thread(target=lambda: (closing.set(), program.close()))
        thread.start()
        assert closing.wait(60)
        with pytest.raises(RuntimeError):  # noqa: PT012
            while True:  # until close() has begun
                program.submit(0, after={"go": go})
        go.trigger()
        thread.join(60)
        assert not thread.is_alive()
        assert run.result(60) == 1
        program.close()


def test_close_from_many_threads_at_once(in_threads):
    for _ in range(5):
        go = ost.UserEvent()
        machine = ost.Machine(cpus=2)
        programs = [graph_of(np.zeros(1)).compile(machine) for _ in range(3)]
        runs = [program.submit(2, after={"go": go}) for program in programs for _ in range(3)]
        later(go.trigger)
        in_threads(*[program.close for program in programs], *[program.close for program in programs], machine.close)
        assert all(run.done() for run in runs)


def test_close_that_waits_ends_when_others_cancel():
    machine = ost.Machine(cpus=2)
    program = graph_of(np.zeros(1)).compile(machine)
    runs = [program.submit(after={"go": ost.UserEvent()}) for _ in range(3)]
    later(lambda: [run.cancel() for run in runs])
    machine.close()
    assert all(run.cancelled() for run in runs)


def test_close_in_a_callback_and_events_that_are_told_meanwhile():
    x, go, finished = np.zeros(1), ost.UserEvent(), threading.Event()
    machine = ost.Machine(cpus=1)
    program = graph_of(x).compile(machine)
    runs = [program.submit(after={"go": go}) for _ in range(3)]
    runs[0].add_done_callback(lambda r: (program.close(), finished.set()))
    go.trigger()
    assert finished.wait(60)
    assert all(run.done() for run in runs)
    machine.close()


# Exceptions inside `with`


@pytest.mark.parametrize("which", ["program", "machine", "both"])
def test_exception_inside_with_cancels_what_would_never_end(which):
    x, barrier, reservation = np.zeros(1), ost.Barrier(2), ost.Reservation()
    reservation.acquire().wait(60)
    g = graph_of(x)
    h = ost.Graph()
    h.wait(barrier, after=h.arrive(barrier))
    k = ost.Graph()
    k.release(reservation, after=k.acquire(reservation))
    runs = []
    machine = ost.Machine(cpus=1)

    def use(programs):
        runs.append(programs[0].submit(5, after={"go": ost.UserEvent()}))
        runs.append(programs[0].submit(5, after={"go": ost.merge(), None: ost.UserEvent()}))
        runs.append(programs[1].submit(5))
        runs.append(programs[2].submit(5))
        raise ZeroDivisionError

    if which == "program":
        with pytest.raises(ZeroDivisionError), g.compile(machine) as p, h.compile(machine) as q, \
                k.compile(machine) as r:  # fmt: skip
            use([p, q, r])
        machine.close()
    elif which == "machine":
        with pytest.raises(ZeroDivisionError), machine:
            use([graph.compile(machine) for graph in (g, h, k)])
    else:
        with pytest.raises(ZeroDivisionError), machine, g.compile(machine) as p, h.compile(machine) as q, \
                k.compile(machine) as r:  # fmt: skip
            use([p, q, r])
    assert len(runs) == 4
    for run in runs:
        assert run.done()
        with pytest.raises(CancelledError):
            run.result(0)
    reservation.release()
    reservation.acquire().wait(60)


def test_exception_inside_with_cancels_spawned_tasks_that_wait():
    with pytest.raises(KeyError), ost.Machine(cpus=1) as machine:  # noqa: PT012
        run = machine.spawn(add, np.zeros(1), after=ost.UserEvent())
        raise KeyError
    assert run.cancelled()


# Garbage collection


@pytest.mark.parametrize("order", list(itertools.permutations(["machine", "program", "run", "go", "post"])))
def test_everything_is_dropped_in_every_order(order):
    """While a run waits; its event is triggered where somebody still has it."""
    x = np.zeros(1)
    machine = ost.Machine(cpus=1)
    go = ost.UserEvent()
    program = graph_of(x).compile(machine)
    run = program.submit(after={"go": go})
    things = {"machine": machine, "program": program, "run": run, "go": go, "post": run.posts["done"]}
    del machine, program, run, go
    for name in order:
        thing = things.pop(name)
        if name == "go":
            thing.trigger()
        del thing
        gc.collect()
        if "post" in things and "go" not in things:
            things["post"].wait(60)
            assert x[0] == 1


def test_a_run_in_flight_keeps_all_it_needs_alive():
    x, go = np.zeros(1), ost.UserEvent()
    run = graph_of(x).compile(ost.Machine(cpus=2)).submit(3, after={"go": go})
    gc.collect()
    go.trigger()
    assert run.result(60) == 3
    assert x[0] == 3


def test_an_event_outlives_program_and_machine():
    x, go = np.zeros(1), ost.UserEvent()
    machine = ost.Machine(cpus=2)
    program = graph_of(x).compile(machine)
    run = program.submit(after={"go": go})
    post, event, spawned = run.posts["done"], run.event, machine.spawn(add, x, after=run).event
    del program, machine, run
    gc.collect()
    assert not post.done
    go.trigger()
    for each in (post, event, spawned):
        each.wait(60)
    assert x[0] == 2


def test_what_is_done_is_collected():
    refs = []
    with ost.Machine(cpus=1) as machine:
        for _ in range(3):
            x, go, barrier, reservation = np.zeros(1), ost.UserEvent(), ost.Barrier(1), ost.Reservation()
            g = graph_of(x)
            g.release(reservation, after=g.wait(barrier, after=g.arrive(barrier, after=g.acquire(reservation))))
            program = g.compile(machine)
            run = program.submit(2, after={"go": go})
            run.add_done_callback(lambda r, run=run, program=program: None)  # a cycle
            go.trigger()
            run.result(60)
            program.close()
            refs.append(weakref.ref(x))
            del x, go, barrier, reservation, g, program, run
        deadline = time.monotonic() + 60  # callbacks come on a thread of their own, maybe late
        while any(ref() is not None for ref in refs) and time.monotonic() < deadline:
            time.sleep(0.01)
            gc.collect()
        assert [ref() for ref in refs] == [None] * 3


def test_programs_made_run_and_dropped_without_close_do_not_pile_up():
    with ost.Machine(cpus=1) as machine:
        refs = []
        for k in range(50):
            x, go = np.zeros(1), ost.UserEvent()
            run = graph_of(x).compile(machine).submit(after={"go": go})
            go.trigger()
            run.result(60)
            refs.append(weakref.ref(x))
            del x, run
            if k % 10 == 9:
                gc.collect()
        gc.collect()
        assert sum(ref() is not None for ref in refs) <= 1


# Interpreter exit

PRELUDE = """
import sys, threading, time, gc
import numpy as np, ostinato as ost
@ost.task
def add(x: ost.ReadWrite, k=1):
    x += k
machine = ost.Machine(cpus=2)
x, go, barrier, reservation = np.zeros(1), ost.UserEvent(), ost.Barrier(2), ost.Reservation()
g = ost.Graph()
op = g.task(add, x, after=g.precondition("go"))
g.postcondition("done", after=op)
program = g.compile(machine)
"""

ENDS = {
    "a run that waits for an event": "run = program.submit(after={'go': go})",
    "a run that waits for its start": "run = program.submit(after={'go': ost.merge(), None: go})",
    "a run that waits at a barrier": """
        h = ost.Graph()
        h.wait(barrier, after=h.arrive(barrier))
        run = h.compile(machine).submit(3)
    """,
    "a run that waits for a reservation": """
        reservation.acquire().wait()
        h = ost.Graph()
        h.release(reservation, after=h.acquire(reservation))
        run = h.compile(machine).submit(3)
    """,
    "an endless run": """
        h = ost.Graph()
        h.task(add, x)
        run = h.compile(machine).submit(10**15)
    """,
    "runs of every relation": """
        runs = [g.compile(machine, runs=relation).submit(after={"go": go})
                for relation in ("pipelined", "serial", "concurrent", "once")]
    """,
    "a spawned task that waits": "run = machine.spawn(add, x, after=go)",
    "callbacks and merges": """
        program.submit(after={'go': go}).event.add_done_callback(print)
        ost.merge(go, program.submit(after={'go': go})).add_done_callback(print)
        go.add_done_callback(print)
    """,
    "a thread that waits": """
        run = program.submit(after={'go': go})
        def quietly(wait):
            try:
                wait()
            except BaseException:
                pass
        for wait in (run.result, run.event.wait, go.wait, program.close):
            threading.Thread(target=quietly, args=(wait,), daemon=True).start()
        time.sleep(0.05)
    """,
    "what happens at the same time": "run = program.submit(10**6, after={'go': go}); go.trigger()",
    "everything kept in cycles": """
        run = program.submit(after={'go': go})
        cycle = [run, program, machine, go, g, op]
        cycle.append(cycle)
        sys.cycle = cycle
    """,
    "everything dropped": "program.submit(after={'go': go}); del program, machine, go, g, op, x; gc.collect()",
}


@pytest.mark.parametrize("what", list(ENDS))
def test_interpreter_exit_with(what):
    interpreter_exit(what, "", 0)


@pytest.mark.parametrize("what", ["a run that waits for an event", "an endless run", "everything kept in cycles"])
def test_interpreter_exit_by_an_exception_with(what):
    interpreter_exit(what, "raise SystemExit('over')", 1)


def interpreter_exit(what, last, status):
    code = "\n".join([PRELUDE, textwrap.dedent(ENDS[what]), "print('ready', flush=True)", last])
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", code],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert out.startswith("ready"), err
    assert process.returncode == status, (process.returncode, err)
    assert "Traceback" not in err
    assert "Fatal" not in err


WAITS = {
    "for its start": ("h.task(add, x)", "after=go"),
    "for an event": ("h.task(add, x, after=h.precondition('go'))", "after={'go': go}"),
    "at a barrier": ("h.wait(barrier, after=h.arrive(barrier))", ""),
    "for a reservation": ("reservation.acquire().wait(); h.release(reservation, after=h.acquire(reservation))", ""),
}


@pytest.mark.parametrize("what", list(WAITS))
def test_ctrl_c_ends_a_replay_that_waits(what):
    """It is cancelled; the program is as usable as before."""
    add_ops, after = WAITS[what]
    code = f"""
h = ost.Graph()
{add_ops}
with h.compile(machine) as other:
    timer = threading.Timer(0.05, lambda: signal.raise_signal(signal.SIGINT))
    try:
        timer.start()
        other.replay(3, {after})
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    timer.join()
go.trigger()
assert program.replay(2, after={{"go": go}}) == 2
print("usable", x[0])
"""
    process = subprocess.run(
        [sys.executable, "-c", PRELUDE.replace("import sys", "import signal, sys") + code],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert process.stdout.split() == ["interrupted", "usable", "2.0"], process.stderr
