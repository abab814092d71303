"""Ranks of one host: messages through memory that they share, and cores that they share out."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ostinato.ranks.host import Host, Inbox, Slots
from support.mpi import MPIEXEC, run_ranks

on_mpi = [
    pytest.mark.mpi,
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
    pytest.mark.skipif(MPIEXEC is None, reason="mpiexec is not installed"),
]

MPI = SimpleNamespace(COMM_TYPE_SHARED=0)


class Node:
    """A communicator of this process and others, of which `others` says what they tell, call by call."""

    def __init__(self, rank: int, others: Sequence[dict[int, Any]]) -> None:
        self.rank, self.others = rank, iter(others)

    def Split_type(self, kind: int) -> Node:
        return self

    def Get_rank(self) -> int:
        return self.rank

    def allgather(self, mine: Any) -> list[Any]:
        told = next(self.others) | {self.rank: mine}
        return [told[rank] for rank in sorted(told)]


class Channel:
    """One end of a channel, as far as a host looks at it."""

    def __init__(self, sends: bool, peer: int, number: int, shared_bytes: int = 4096) -> None:
        self.sends, self.peer, self.number, self.shared_bytes = sends, peer, number, shared_bytes
        self.offset = -1

    def share(self, file: int, offset: int) -> None:
        self.inode, self.offset = os.fstat(file).st_ino, offset


def host(rank: int, *others: int) -> Host:
    made = Host.__new__(Host)
    made.ranks = frozenset(others)
    return made


def file_with(token: bytes) -> int:
    file = os.memfd_create("test")
    os.write(file, token)
    return file


OWN = os.getpid()


class TestWhoSharesMemory:
    def test_those_that_can_read_each_other(self) -> None:
        good, wrong = file_with(b"a" * 16), file_with(b"b" * 16)
        told = {
            0: (0, OWN, good, b"a" * 16),
            2: (2, OWN, wrong, b"c" * 16),  # the number means another process here
            3: (3, 0, 0, b"d" * 16),
            4: (4, OWN, good, b"a" * 16),  # it cannot read ours
        }
        found = Host(MPI, Node(1, [told, {0: {1}, 2: {1}, 3: {1}, 4: set()}]), True)
        assert found.ranks == {0}
        assert set(found.processes) == {0, 4}
        assert not [each for each in found.processes.values() if os.close(each)]  # type: ignore[func-returns-value]

    def test_a_pipe_of_another_process_is_not_read(self) -> None:
        read, write = os.pipe()
        told = {0: (0, OWN, read, b"a" * 16)}
        assert not Host(MPI, Node(1, [told, {0: {1}}]), True).ranks
        os.close(read), os.close(write)

    def test_nobody_where_no_file_can_be_made(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told = {0: (0, OWN, file_with(b"a" * 16), b"a" * 16)}

        def refuse(*_: object) -> int:
            raise PermissionError("refused")

        monkeypatch.setattr(os, "memfd_create", refuse)
        assert not Host(MPI, Node(1, [told, {0: {1}}]), True).ranks

    def test_nobody_who_leaves_it_to_mpi(self) -> None:
        told = {0: (0, OWN, file_with(b"a" * 16), b"a" * 16)}
        found = Host(MPI, Node(1, [told, {0: {1}}]), False)
        assert not found.ranks
        assert list(found.processes) == [0]  # but it is noticed when one ends
        os.close(found.processes[0])
        assert not Host(MPI, Node(1, [{0: (0, 1, -1, b"a" * 16)}, {0: set()}]), True).ranks


@pytest.mark.parametrize(
    ("rank", "masks", "wanted"),
    [
        (0, [(0, 1, 2, 3)] * 2, ([0, 1], False)),
        (1, [(0, 1, 2, 3)] * 2, ([2, 3], False)),
        (1, [(4, 5, 6, 7, 8)] * 3, ([5, 6], False)),
        (3, [(2, 5)] * 4, ([5], True)),
        (0, [(0, 1)], None),
        (1, [(0,), (1,)], None),  # the launcher has given each its own
        (1, [(0, 1), (0, 1), (2, 3), (2, 3)], ([1], False)),  # or each two their own
        (2, [(0, 1), (0, 1), (2, 3), (2, 3)], ([2], False)),
        (0, [(0, 1), (2, 3), (2, 3)], None),
    ],
)
def test_cores_are_shared_out(rank: int, masks: list[tuple[int, ...]], wanted: object) -> None:
    made = host(rank)
    made._node = Node(rank, [dict(enumerate(masks))])
    assert made.split_cores(masks[rank]) == wanted


def test_each_core_has_an_owner() -> None:
    for count in range(1, 9):
        parts = []
        for rank in range(count):
            made = host(rank)
            made._node = Node(rank, [dict.fromkeys(range(count), tuple(range(8)))])
            parts += (made.split_cores(range(8)) or (list(range(8)), False))[0]
        assert sorted(parts) == list(range(8))


class TestMemory:
    def test_has_a_part_for_each_channel(self) -> None:
        channels = [
            Channel(False, 2, 1, 8192),
            Channel(False, 2, 0),
            Channel(False, 0, 0),
            Channel(False, 7, 0),  # on another host
            Channel(True, 2, 0),
        ]
        inbox = host(1, 0, 2).prepare(channels, must=True)  # type: ignore[arg-type]
        assert inbox is not None
        assert [each.offset for each in channels] == [8192, 4096, 0, -1, -1]
        assert inbox.slots.offsets == {0: 0, 2: 4096}
        sends = [Channel(True, 1, 0), Channel(True, 1, 1, 8192), Channel(True, 0, 0)]
        host(2, 0, 1).open(sends, 2, {1: inbox.slots})  # type: ignore[arg-type]
        assert [each.offset for each in sends] == [4096, 8192, -1]
        assert sends[0].inode == channels[0].inode == inbox.slots.inode
        inbox.close()

    def test_is_none_without_messages(self) -> None:
        assert host(1, 0).prepare([Channel(True, 0, 0), Channel(False, 7, 0)], must=True) is None  # type: ignore[list-item]

    def test_that_lacks_is_an_error_or_left_to_mpi(self, caplog: pytest.LogCaptureFixture) -> None:
        channel: Any = Channel(False, 0, 0, 2**60)
        files = len(os.listdir("/proc/self/fd"))
        with pytest.raises(MemoryError, match=rf"{2**60} bytes of memory .* available; use transport='auto'"):
            host(1, 0).prepare([channel], must=True)
        assert host(1, 0).prepare([channel], must=False) is None
        assert "MPI carries them" in caplog.text
        assert channel.offset == -1
        assert len(os.listdir("/proc/self/fd")) == files

    def test_of_too_many_channels_is_an_error_or_left_to_mpi(self, caplog: pytest.LogCaptureFixture) -> None:
        channels: Any = [Channel(False, 0, number) for number in range(2**14 + 1)]
        with pytest.raises(MemoryError, match="at most 16384 channels of a program, got 16385; use transport='auto'"):
            host(1, 0).prepare(channels, must=True)
        assert host(1, 0).prepare(channels, must=False) is None
        assert "MPI carries the messages" in caplog.text

    def test_is_not_mistaken_for_a_file_that_was_opened_since(self) -> None:
        inbox = Inbox(4096, {1: 0})
        moved = Slots(inbox.slots.path, inbox.slots.inode + 1, inbox.slots.offsets)
        channel: Any = Channel(True, 0, 0)
        with pytest.raises(RuntimeError, match="rank 0 does not open the channels of this program any more"):
            host(1, 0).open([channel], 1, {0: moved})
        assert channel.offset == -1
        inbox.close()


MESSAGES = """
import gc, os, sys
import numpy as np
import ostinato as ost

ranks = ost.Ranks(transport=sys.argv[1])
here, there = ranks.rank, 1 - ranks.rank

def mapped():
    gc.collect()
    return sum("ostinato-messages" in line for line in open("/proc/self/maps"))

@ost.task
def number(x: ost.Write, step):
    x[...] = 1000 * step + np.arange(x.size).reshape(x.shape) + here

def exchange(sent, received, steps):
    right = np.zeros(1, int)
    @ost.task
    def check(x: ost.Read, right: ost.ReadWrite, step):
        right += (x == (1000 * step + np.arange(x.size).reshape(x.shape) + there).astype(x.dtype)).all()
    with ost.capture() as graph:
        number(sent, ost.step)
        ranks.send(sent, to=there)
        ranks.recv(received, source=there)
        check(received, right, ost.step)
    with graph.compile() as program:
        assert bool(mapped()) == (sys.argv[1] == "shared")
        assert program.replay(steps) == steps
        assert program.replay(1) == 1
    assert right[0] == steps + 1, right

exchange(np.zeros(1), np.zeros(1), 500)
exchange(np.zeros(0), np.zeros(0), 5)
exchange(np.zeros((7, 9))[::2, ::3], np.zeros((4, 3)).T.copy().T, 50)
exchange(np.zeros(2**18), np.zeros(2**18), 5)
exchange(np.zeros(3, np.int16), np.zeros(3, np.int16), 50)
assert not mapped()  # programs that have ended hold no memory
assert not [each for each in os.listdir("/proc/self/fd") if "ostinato" in os.path.realpath(f"/proc/self/fd/{each}")]
sys.stdout.write(f"good {len(ost.Machine(gpus=0).processors)}\\n")
"""


def run(ranks: int, script: str, *arguments: str) -> str:
    found = run_ranks(ranks, "-c", script, *arguments, timeout=60)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize("transport", ["shared", "mpi"])
class TestOnRanks:
    pytestmark = on_mpi

    def test_messages_of_all_sizes_arrive(self, transport: str) -> None:
        told = run(2, MESSAGES, transport)
        cores = len(os.sched_getaffinity(0))
        counts = [int(each) for each in re.findall(r"good (\d+)", told)]
        assert len(counts) == 2
        assert sum(counts) <= max(cores, 2)  # ranks of a host share its cores


DISAGREE = """
import resource, sys
import numpy as np
import ostinato as ost

case = sys.argv[1]
def tell(what):
    print(f"rank {ranks}: {what}", flush=True)

from mpi4py import MPI
ranks = MPI.COMM_WORLD.Get_rank()
try:
    group = ost.Ranks(transport="auto" if case == "auto" else "mpi" if case == "differ" and ranks else "shared")
    if ranks:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # of a file, and so of the memory of messages
    a, b = np.full(4096, 1.0 + ranks), np.zeros(4096)
    with ost.capture() as graph:
        group.send(a, to=1 - ranks)
        group.recv(b, source=1 - ranks)
    with graph.compile() as program:
        program.replay(10)
    tell(f"got {b.min()} {b.max()}")
except Exception as error:
    tell(f"{type(error).__name__}: {error}")
"""


class TestWhatCannotBeShared:
    pytestmark = on_mpi

    def test_transport_differs(self) -> None:
        told = run(2, DISAGREE, "differ")
        for rank in (0, 1):
            words = "ValueError: transport must be the same on all ranks, got 'shared' on rank 0 and 'mpi' on rank 1"
            assert f"rank {rank}: {words}" in told

    def test_memory_lacks(self) -> None:
        told = run(2, DISAGREE, "shared")
        assert re.search(r"rank 1: MemoryError: \d+ bytes of memory .* use transport='auto'", told), told
        assert re.search(r"rank 0: GraphError: rank 1: MemoryError: \d+ bytes of memory", told), told

    def test_memory_lacks_and_mpi_carries_the_messages(self) -> None:
        told = run(2, DISAGREE, "auto")
        assert "rank 0: got 2.0 2.0" in told, told
        assert "rank 1: got 1.0 1.0" in told, told
