"""Programs of several ranks over MPI: equal results, and every way to disagree ends with an error, in seconds."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.mpi import MPIEXEC, run_command, run_ranks

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
    pytest.mark.skipif(MPIEXEC is None, reason="mpiexec is not installed"),
]

HEAT = """
import hashlib, sys
import numpy as np
import ostinato as ost

ranks = ost.Ranks()
n = 64 // ranks.size
whole = np.random.default_rng(0).random(66)
low = ranks.rank * n
a, b = (whole[low : low + n + 2].copy() for _ in range(2))
part, total = np.zeros(1), np.zeros(1)

@ost.task
def relax(x: ost.Read, y: ost.Write):
    y[:] = x[1:-1] + 0.25 * (x[:-2] - 2 * x[1:-1] + x[2:])

@ost.task
def peak(x: ost.Read, y: ost.Write):
    y[0] = x.max()

def step(u, part, total):
    up, down = ranks.beside(-1), ranks.beside(1)
    ranks.send(u[0][1:2], to=up)
    ranks.recv(u[0][-1:], source=down)
    ranks.send(u[0][-2:-1], to=down)
    ranks.recv(u[0][:1], source=up)
    relax(u[0], u[1][1:-1])
    peak(u[1][1:-1], part)
    ranks.allreduce(part, total, "max")

whole_after = np.zeros(64)
with ost.Machine(cpus=1) as machine:
    with ost.compile(step, ost.ring(a, b), part, total, ranks=ranks, machine=machine) as program:
        assert program.replay(40) == 40
        runs = [program.submit(20) for _ in range(3)]
        assert [run.result() for run in runs] == [20] * 3
if ranks.size > 1:
    from mpi4py import MPI
    rows = MPI.COMM_WORLD.gather(a[1:-1], 0)
else:
    rows = [a[1:-1]]
if ranks.rank == 0:
    print("digest", hashlib.sha256(np.concatenate(rows).tobytes() + total.tobytes()).hexdigest())
"""

MIXED = """
import numpy as np
import ostinato as ost

ranks = ost.Ranks()
spread, part, total = ranks.array(6, tiles=6), np.ones(1), np.zeros(1)
with ost.capture() as graph:
    for tile in spread.tiles():
        ost.fill(spread[tile.inner], 1.0)
    ranks.allreduce(part, total, "sum")
with graph.compile() as program:
    program.replay(3)
print(total[0], flush=True)
"""

REFUSED = """
import numpy as np
import ostinato as ost

ranks = ost.Ranks()
x, y = np.zeros(1), np.zeros(1)
with ost.capture() as graph:
    ranks.send(x, to=ranks.beside(1))
    ranks.recv(y, source=ranks.beside(-1))
with graph.compile() as program:
    for call in (program.replay_eagerly, program.retune):
        try:
            call()
        except ost.GraphError as error:
            print(error, flush=True)
"""

CASES = """
import sys, time
import numpy as np
import ostinato as ost

case, *transport = sys.argv[1:]
ranks = ost.Ranks(transport=(transport or ["auto"])[0])
here = ranks.rank == 1
a, b, c, flag = np.zeros(2), np.zeros(2), np.zeros(2), np.ones(1)

@ost.task
def work(x: ost.Write, step):
    x[:] = step
    if case == "fail" and here and step == 5:
        raise ValueError("five")
    if case == "cancel":
        time.sleep(1e-3)

@ost.task
def count(x: ost.ReadWrite, y: ost.Read):
    x += 1

@ost.task
def use(value):
    pass

def tell(what):
    print(f"rank {ranks.rank}: {what}", flush=True)

with ost.capture() as graph:
    work(a, ost.step)
    ranks.send(a[:1] if case == "shape" and here else a, to=1 - ranks.rank)
    if not (case == "missing" and here):
        ranks.recv(b, source=1 - ranks.rank)
    ost.copy(b, c)
    if case == "until":
        ost.until(np.zeros(1) if here else flag)
    if case == "parameters":
        use(ost.param("value"))
    if case == "compile" and here:
        graph.task(use, 1, on="rank:9")
    if case == "owners":
        spread = ranks.array(4, owner=lambda index: index[0] % 2 if here else 0)
        ost.fill(spread[:1], 1.0)
    if case == "plain":
        spread = ranks.array(8, tiles=8)
        for tile in spread.tiles(near=1):
            count(a, spread[tile.inner])
try:
    program = graph.compile(ost.Machine(cpus=1), runs="serial" if case == "runs" and here else "pipelined")
    if case == "steps":
        program.replay(3 + here)
    elif case == "parameters":
        program.replay(3, value=1 + here)
    elif case == "close":
        program.close() if here else program.replay(3)
    elif case == "gone":
        if not here:
            program.replay(3)
    elif case == "cancel":
        run = program.submit(10**9)
        if here:
            time.sleep(0.2)
            run.cancel()
        try:
            run.result(20)
        except BaseException as error:
            tell(type(error).__name__)
        assert program.replay(3) == 3
    elif case == "uncaught":
        if here:
            raise KeyError("uncaught")
        program.replay(3)
    else:
        program.replay(1000)
except ost.TaskError as error:
    assert isinstance(error.__cause__, ValueError)
    tell(f"{error} {error.rank} {error.step}")
    tell(program.replay(2))
except (ost.OstinatoError, ValueError) as error:
    tell(f"{type(error).__name__}: {error}")
"""


FAULTS = """
import os, signal, sys, threading, time
import numpy as np
import ostinato as ost

case, transport = sys.argv[1:]
ranks = ost.Ranks(transport=transport)
here = ranks.rank == 1
a, b, c = np.zeros(2), np.zeros(2), np.zeros(2)

def tell(what):
    sys.stdout.write(f"rank {ranks.rank}: {what}\\n")
    sys.stdout.flush()

@ost.task
def work(x: ost.Write, step):
    x[:] = step
    if case == "several" and step == 5:
        raise ValueError(f"first on rank {ranks.rank}")
    if case != "several":
        time.sleep(1e-3)

@ost.task
def other(x: ost.Write, step):
    x[:] = step
    if case == "several" and step == 5:
        raise KeyError("second")

with ost.capture() as graph:
    work(a, ost.step)
    other(c, ost.step)
    ranks.send(a, to=1 - ranks.rank)
    ranks.recv(b, source=1 - ranks.rank)
with graph.compile(ost.Machine(cpus=1)) as program:
    if here and case != "several":
        number = signal.SIGINT if case == "interrupt" else signal.SIGKILL
        threading.Timer(0.5, os.kill, (os.getpid(), number)).start()
    try:
        program.replay(100 if case == "several" else 10**9)
    except BaseException as error:
        tell(f"{type(error).__name__}: {error} {getattr(error, 'rank', '')} {getattr(error, '__notes__', [])}")
    tell(program.replay(3))
"""

STUCK = """
import re, sys, time
from pathlib import Path
import numpy as np
import ostinato as ost

case, transport, words, seen = *sys.argv[1:4], Path(sys.argv[4])
ranks = ost.Ranks(transport=transport)
spread, sums = (ranks.array(8, tiles=2) for _ in range(2))
a, b = np.zeros(3), np.zeros(3)

@ost.task
def work(x: ost.Write, step):
    x[:] = step
    while ranks.rank == 1 and step == 5 and not seen.exists():
        time.sleep(1e-3)

@ost.task
def add(x: ost.Read, y: ost.Write):
    y[:] = x[: len(y)] + x[-len(y) :]

def explicit():
    work(a, ost.step)
    ranks.send(a, to=1 - ranks.rank)
    ranks.recv(b, source=1 - ranks.rank)

def tiles():
    for tile in spread.tiles():
        work(spread[tile.inner], ost.step)
    for tile in sums.tiles(margin=1, near=1):
        add(spread[tile.halo], sums[tile.inner])

def one_way():
    work(a, ost.step)
    ranks.send(a, to=ranks.beside(1))
    ranks.recv(a, source=ranks.beside(-1))

with ost.compile(globals()[case], ranks=ranks, machine=ost.Machine(cpus=1)) as program:
    run = program.submit(1000)
    end = time.monotonic() + 30
    while ranks.rank == 0 and not re.search(words, run.stuck()) and time.monotonic() < end:
        time.sleep(1e-3)
    if ranks.rank == 0:
        print(run.stuck(), flush=True)
        seen.touch()
    assert run.result(30) == 1000
"""

APART = """
import numpy as np
import ostinato as ost

ranks = ost.Ranks()
x, y = np.zeros(1), np.zeros(1)

def first(x):
    ost.fill(x, 1.0)

def second(y):
    ost.fill(y, 2.0)

with ost.compile(first, x, ranks=ranks) as given_up, ost.compile(second, y, ranks=ranks) as kept:
    try:
        given_up.replay(3 + ranks.rank)
    except ost.ContractError as error:
        print(f"rank {ranks.rank}: {error}", flush=True)
    print(f"rank {ranks.rank}: {kept.replay(2)}", flush=True)
"""


def run(ranks: int, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_ranks(ranks, "-c", script, *arguments, timeout=60)


def test_any_number_of_ranks_gives_the_same_bits() -> None:
    over_mpi = HEAT.replace("ost.Ranks()", 'ost.Ranks(transport="mpi")')
    found = [run(ranks, script) for ranks in (1, 2, 4) for script in (HEAT, over_mpi)[:ranks]]
    assert all(each.returncode == 0 for each in found), [each.stderr for each in found]
    assert len({each.stdout for each in found}) == 1
    assert found[0].stdout.startswith("digest ")


@pytest.mark.parametrize(
    ("case", "error", "words"),
    [
        ("steps", "ContractError", "rank 0 runs 3 steps of .* rank 1 runs 4 steps"),
        ("close", "ContractError", "rank 0 runs 3 steps of .*, but rank 1 closes"),
        ("until", "ContractError", r"until\(\) ended the run on rank 0 in another step than on rank 1"),
        ("shape", "GraphError", r"rank 1 sends shape \(1,\).*:32 .*, but rank 0 receives shape \(2,\).*:34 "),
        ("missing", "GraphError", "rank 0 sends .*:32 .*, but rank 1 receives nothing that matches it"),
        ("owners", "GraphError", "distributed array 0 differs: on rank 0 .* on rank 1"),
        ("plain", "GraphError", "rank 0 records 'count' .* where rank 1 records"),
        ("compile", "GraphError", "'use' at .* is bound to 'rank:9'"),
        ("runs", "GraphError", "ValueError: runs must be 'pipelined' or 'once' for a program of ranks, got 'serial'"),
        ("parameters", "ValueError", "parameters must have the same values on all ranks"),
    ],
)
def test_ranks_that_disagree_raise(case: str, error: str, words: str) -> None:
    found = run(2, CASES, case)
    assert found.returncode == 0, found.stderr
    for rank in (0, 1):
        own = "ValueError" if case == "runs" and rank == 1 else error  # the rank's own error, as it is
        assert re.search(rf"rank {rank}: {own}: .*{words.removeprefix('ValueError: ')}", found.stdout), found.stdout


def test_a_program_that_ranks_use_differently_leaves_others_usable() -> None:
    found = run(2, APART)
    assert found.returncode == 0, found.stderr
    for rank in (0, 1):
        assert f"rank {rank}: rank 0 runs 3 steps of the program that begins with 'fill'" in found.stdout, found.stdout
        assert f"rank {rank}: 2\n" in found.stdout


@pytest.mark.parametrize("transport", ["shared", "mpi"])
@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            "explicit",
            r"'recv' at .*:25 in explicit \(shape \(3,\), float64\) waits for the message of step 5 from rank 1; "
            "the last one that came is that of step 4",
        ),
        (
            "tiles",
            r"'receive from rank 1' at .*:31 in tiles \(shape \(1,\), float64\), for 'add', waits for the message of "
            "step 5 from rank 1; the last one that came is that of step 4",
        ),
        (
            "one_way",
            r"'send' at .*:35 in one_way \(shape \(3,\), float64\) waits for rank 1 to take the message of step",
        ),
    ],
)
def test_stuck_says_which_message_is_waited_for(case: str, words: str, transport: str, tmp_path: Path) -> None:
    found = run(2, STUCK, case, transport, words, str(tmp_path / "seen"))
    assert found.returncode == 0, found.stderr
    assert re.search(words, found.stdout), found.stdout


@pytest.mark.parametrize("transport", ["shared", "mpi"])
def test_a_failure_is_the_same_on_every_rank(transport: str) -> None:
    found = run(2, CASES, "fail", transport)
    assert found.returncode == 0, found.stderr
    for rank in (0, 1):
        assert f"rank {rank}: 'work' raised ValueError: five, in step 5;" in found.stdout, found.stdout
        assert f"rank {rank}: 2" in found.stdout  # and the program goes on
    assert found.stdout.count("on rank 1 1 5") == 2


@pytest.mark.parametrize("transport", ["shared", "mpi"])
def test_cancel_on_one_rank_cancels_on_all(transport: str) -> None:
    found = run(2, CASES, "cancel", transport)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("CancelledError") == 2


def test_a_rank_that_ends_is_not_waited_for() -> None:
    found = run(2, CASES, "gone")
    assert "rank 0: ContractError: rank 0 runs 3 steps" in found.stdout, found.stdout + found.stderr
    assert "but rank 1 has ended without that" in found.stdout


def test_the_command_line_starts_ranks(tmp_path: Path) -> None:
    script = tmp_path / "heat.py"
    script.write_text(HEAT)
    found = run_command(sys.executable, "-m", "ostinato", "run", "-n", "2", str(script), timeout=60)
    assert found.returncode == 0, found.stderr
    assert found.stdout == run(1, HEAT).stdout


def test_allreduce_goes_with_distributed_arrays() -> None:
    found = run(3, MIXED)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("3.0") == 3


def test_what_one_process_cannot_do_alone_is_refused() -> None:
    found = run(2, REFUSED)
    assert found.returncode == 0, found.stderr
    for method in ("replay_eagerly", "retune"):
        assert found.stdout.count(f"{method} must be called on a program of one rank, got one of 2 ranks") == 2


@pytest.mark.parametrize("progress", ["workers", "thread"])
def test_each_way_of_progress(progress: str) -> None:
    found = run(2, HEAT.replace("ost.Ranks()", f'ost.Ranks(progress={progress!r}, transport="mpi")'))
    assert found.returncode == 0, found.stderr
    assert found.stdout == run(1, HEAT).stdout


def test_an_uncaught_exception_ends_the_job() -> None:
    found = run(2, CASES, "uncaught")
    assert found.returncode != 0
    assert "KeyError: 'uncaught'" in found.stderr


@pytest.mark.parametrize("transport", ["shared", "mpi"])
class TestFaults:
    def test_the_least_of_several_failures_is_raised_on_every_rank(self, transport: str) -> None:
        found = run(2, FAULTS, "several", transport)
        assert found.returncode == 0, found.stderr
        for rank in (0, 1):
            told = next(line for line in found.stdout.splitlines() if line.startswith(f"rank {rank}: TaskError"))
            assert "'work' raised ValueError: first on rank 0, in step 5" in told
            assert "also: 'other' raised KeyError: 'second', in step 5" in told
            assert "also, on rank 1: 'work' raised ValueError: first on rank 1, in step 5" in told
            assert f"rank {rank}: 3" in found.stdout  # and the program goes on

    def test_interrupting_one_rank_ends_the_run_on_all(self, transport: str) -> None:
        found = run(2, FAULTS, "interrupt", transport)
        assert found.returncode == 0, found.stderr
        assert "rank 1: KeyboardInterrupt" in found.stdout
        assert "rank 0: CancelledError" in found.stdout
        assert found.stdout.count(": 3\n") == 2

    def test_a_rank_that_is_killed_ends_the_job(self, transport: str) -> None:
        found = run(2, FAULTS, "killed", transport)
        assert found.returncode != 0
        assert "rank" not in found.stdout
