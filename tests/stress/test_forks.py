"""A process forks while its threads replay Python tasks: every child ends, whatever it does, and the parent goes on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SECONDS = float(os.environ.get("OSTINATO_STRESS_SECONDS", 6)) / 6

CODE = """
import os, signal, sys, threading, time, warnings
import numpy as np, ostinato as ost

warnings.simplefilter("ignore", DeprecationWarning)  # Python's, of a fork with threads

@ost.task
def count(x: ost.ReadWrite):
    x += 1

def program_of(x, machine):
    graph = ost.Graph()
    for k in range(len(x)):
        graph.task(count, x[k : k + 1])
    return graph.compile(machine)

def replays(machine, steps):
    x = np.zeros(3)
    with program_of(x, machine) as program:
        while not over.is_set():
            steps.append(program.replay(50))
        assert (x == sum(steps)).all()

def leaves(): os._exit(0)
def exits(): sys.exit(0)
def works():
    x = np.zeros(3)
    with ost.Machine(cpus=2) as machine, program_of(x, machine) as program:
        program.replay(20)
    os._exit(0 if (x == 20).all() else 1)

def status_of(pid):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.0005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hung"

over, counts, steps = threading.Event(), {}, [[] for _ in range(4)]
with ost.Machine(cpus=2) as machine:
    threads = [threading.Thread(target=replays, args=(machine, done)) for done in steps]
    for thread in threads:
        thread.start()
    try:
        end = time.monotonic() + float(sys.argv[1])
        while len(counts) < 3 or time.monotonic() < end:
            child = (leaves, exits, works)[sum(counts.values()) % 3]
            pid = os.fork()
            if pid == 0:
                child()
            status = status_of(pid)
            assert status == 0, (child.__name__, status, counts)
            counts[child.__name__] = counts.get(child.__name__, 0) + 1
        before = [len(done) for done in steps]
        deadline = time.monotonic() + 60
        while any(len(done) == n for done, n in zip(steps, before)) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert all(len(done) > n for done, n in zip(steps, before)), "a thread of the parent stands still"
    finally:
        over.set()
    for thread in threads:
        thread.join()
print("all ended", counts)
"""


@pytest.mark.forks
@pytest.mark.skipif("OSTINATO_STRESS_SECONDS" not in os.environ, reason="for long runs: make soak")
def test_children_of_a_process_that_replays_end():
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", CODE, str(SECONDS)],
        capture_output=True,
        text=True,
        timeout=SECONDS + 300,
        check=False,
    )
    print(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("all ended")
