"""A rank that dies: the others raise `RankLost` within seconds, and go on without it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ostinato as ost
from ostinato import _core
from support.mpi import OPEN_MPI, OWN, on_open_mpi, on_own, run_ranks

ULFM = OPEN_MPI.with_options("--with-ft", "ulfm")

LOST = """
import os, signal, sys, threading, time
import numpy as np
import ostinato as ost
from mpi4py import MPI

case, transport, dies = sys.argv[1], sys.argv[2], int(sys.argv[3])
ranks = ost.Ranks(transport=transport)
a, b = np.zeros(2), np.zeros(2)

def tell(what):
    sys.stdout.write(f"rank {ranks.rank}: {what}\\n")
    sys.stdout.flush()

def die():
    os.kill(os.getpid(), signal.SIGKILL)

@ost.task
def work(x: ost.Write, step):
    x[:] = step
    time.sleep(1e-3)

def step():
    work(a, ost.step)
    ranks.send(a, to=(ranks.rank + 1) % ranks.size)
    ranks.recv(b, source=(ranks.rank - 1) % ranks.size)

program = ost.compile(step, ranks=ranks)
assert program.replay(3) == 3
if ranks.rank == dies:
    if case == "replay":
        threading.Timer(0.2, die).start()
    else:  # the others compile or replay without it
        time.sleep(0.2)
        die()
begun = time.monotonic()
try:
    ost.compile(step, ranks=ranks) if case == "compile" else program.replay(10**9)
except ost.RankLost as error:
    tell(f"{isinstance(error, ost.DeviceError)} {error.rank} {error}")
assert time.monotonic() - begun < 10
for call in (lambda: program.replay(1), lambda: ost.compile(step, ranks=ranks), lambda: ranks.array(4).get()):
    try:
        call()
    except ost.RankLost:
        tell("again")
program.close()
with ost.capture() as graph:
    work(a, ost.step)
with graph.compile() as alone:
    tell(f"alone {alone.replay(2)}")
if ranks.size > 2:
    left, total = ost.Ranks(MPI.COMM_WORLD.Shrink(), transport=transport), np.zeros(1)
    with ost.capture() as graph:
        left.allreduce(np.ones(1), total, "sum")
    with graph.compile() as program:
        program.replay(2)
    tell(f"left {left.size} {total[0]}")
os._exit(0)  # in MPI_Finalize, Open MPI 5.0 at times waits for ever once a rank was lost
"""

ALL_CASES = [(case, transport) for case in ("replay", "compile", "idle") for transport in ("shared", "mpi")]


class TestOnOpenMpi:
    pytestmark = on_open_mpi

    def check(self, ranks: int, case: str, transport: str, dies: int) -> None:
        found = run_ranks(ranks, "-c", LOST, case, transport, str(dies), timeout=60, library=ULFM)
        assert found.returncode == 0, found.stdout + found.stderr
        for rank in set(range(ranks)) - {dies}:
            told = [line for line in found.stdout.splitlines() if line.startswith(f"rank {rank}: ")]
            assert f"rank {rank}: True {dies} rank {dies} was lost: " in told[0]
            assert told[1:5] == [*[f"rank {rank}: again"] * 3, f"rank {rank}: alone 2"]
            assert told[5:] == ([f"rank {rank}: left 2 2.0"] if ranks > 2 else [])

    def test_the_others_raise_and_go_on_without_it(self) -> None:
        self.check(3, "replay", "shared", 1)

    def test_the_last_one_goes_on_alone(self) -> None:
        self.check(2, "compile", "mpi", 0)

    @pytest.mark.slow
    @pytest.mark.parametrize(("case", "transport"), ALL_CASES)
    @pytest.mark.parametrize(("ranks", "dies"), [(2, 1), (2, 0), (3, 0), (3, 2)])
    def test_in_all_cases(self, case: str, transport: str, ranks: int, dies: int) -> None:
        self.check(ranks, case, transport, dies)


class TestWhereTheLauncherEndsTheJob:
    @pytest.mark.slow
    @pytest.mark.parametrize(("case", "transport"), ALL_CASES)
    @pytest.mark.parametrize(
        "library",
        [
            pytest.param(OWN, id="own", marks=on_own),
            pytest.param(OPEN_MPI, id="openmpi", marks=on_open_mpi),
        ],
    )
    def test_it_does(self, case: str, transport: str, library: object) -> None:
        found = run_ranks(3, "-c", LOST, case, transport, "1", timeout=60, library=library)  # type: ignore[arg-type]
        assert found.returncode != 0
        assert "left" not in found.stdout


@pytest.fixture
def peer() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for that of rank 1."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@ost.task
def number(x: ost.Write, step: int) -> None:
    x[:] = step


def both(messengers: list[_core.messages.Messenger]) -> list[tuple[ost.Ranks, ost.Program]]:
    """Return two ranks of this process, each with a program that exchanges messages."""

    def make(rank: int) -> tuple[ost.Ranks, ost.Program]:
        ranks = ost.Ranks.over(messengers[rank], rank, 2, lambda code: 1)
        a, b = np.zeros(1), np.zeros(1)
        with ost.capture() as graph:
            number(a, ost.step)
            ranks.send(a, to=1 - rank)
            ranks.recv(b, source=1 - rank)
        return ranks, graph.compile(ost.Machine(cpus=1))

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(make, range(2)))


@pytest.mark.parametrize("noticed_by", ["process", "transport"])
@pytest.mark.parametrize("while_it", ["replays", "compiles", "submits"])
def test_however_it_is_noticed(peer: subprocess.Popen[bytes], noticed_by: str, while_it: str) -> None:
    local = _core.messages.LocalRanks(2)
    messengers = [local.messenger(rank) for rank in range(2)]
    (ranks, program), (_, other) = both(messengers)
    with ThreadPoolExecutor(1) as threads:
        theirs = threads.submit(other.replay, 5)
        assert program.replay(5) == 5
        assert theirs.result() == 5
    if noticed_by == "process":
        messengers[0].watch_process(1, os.pidfd_open(peer.pid))

    def die() -> None:
        local.kill(1, noticed=noticed_by == "transport")
        peer.send_signal(signal.SIGKILL)

    calls = {
        "replays": lambda: program.replay(10**9),
        "compiles": lambda: ost.compile(lambda: number(np.zeros(1), ost.step), ranks=ranks),
        "submits": lambda: program.submit(10).result(20),
    }
    timer = threading.Timer(0.1, die)
    timer.start()
    with pytest.raises(ost.RankLost, match="rank 1 was lost: ") as caught:
        calls[while_it]()
    assert caught.value.rank == 1
    with pytest.raises(ost.RankLost):
        program.replay(1)
    program.close()
    timer.join()
    messengers[1].close()  # its thread would wait for a message that never comes


def test_a_rank_that_ends_as_it_should_is_not_lost(peer: subprocess.Popen[bytes]) -> None:
    local = _core.messages.LocalRanks(2)
    messengers = [local.messenger(rank) for rank in range(2)]
    (_, program), (other_ranks, other) = both(messengers)
    messengers[0].watch_process(1, os.pidfd_open(peer.pid))
    with ThreadPoolExecutor(1) as threads:
        closed = threads.submit(other.close)
        program.close()
        closed.result()
    other_ranks.agreement.exit()  # type: ignore[union-attr]
    peer.kill()
    timer = threading.Event()
    assert not timer.wait(0.3)  # until it is noticed
    with pytest.raises(ost.ContractError, match=re.escape("rank 1 has ended without that")):
        ost.compile(lambda: number(np.zeros(1), ost.step), ranks=program.graph.group)
