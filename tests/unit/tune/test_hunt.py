"""Processes are killed by descriptors, never by a number that another process may have by now."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ostinato.tune.workers.reaper import kill_descendants, kill_group, open_child
from tune.reaping import eventually, living, marked

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
LEADER = "import os, sys, time; p = os.fork(); p and (print(p, flush=True), sys.stdin.read()); p or time.sleep(1000)"


@pytest.fixture(params=["of its time", "old"])
def _kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels before 6.9 cannot send a signal to the group of a descriptor."""
    send = signal.pidfd_send_signal

    def sent(pidfd: int, number: int, info: None = None, flags: int = 0) -> None:
        if flags:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        send(pidfd, number, info, flags)

    if request.param == "old":
        monkeypatch.setattr(signal, "pidfd_send_signal", sent)


@pytest.mark.usefixtures("_kernel")
def test_a_group_is_killed_whose_leader_is_gone() -> None:
    command = [sys.executable, "-c", LEADER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        member = int(leader.stdout.readline())
        descriptor = open_child(leader.pid, os.getpid())
        assert descriptor >= 0
    assert living(member)
    kill_group(descriptor, leader.pid)
    os.close(descriptor)
    eventually(lambda: not living(member), "the member is killed")


@pytest.mark.usefixtures("_kernel")
@pytest.mark.skipif(not os.access(LAST_PID, os.W_OK), reason="needs the right to choose process numbers")
def test_who_got_the_number_of_a_leader_lives_on() -> None:
    with subprocess.Popen(["true"], start_new_session=True) as leader:
        descriptor = open_child(leader.pid, os.getpid())
        assert descriptor >= 0
    other = None
    for _ in range(1000):  # until nobody comes between
        LAST_PID.write_text(str(leader.pid - 1))
        other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        if other.pid == leader.pid:
            break
        other.kill()
        other.wait()
    assert other is not None
    try:
        if other.pid != leader.pid:
            pytest.skip("others took the number")
        kill_group(descriptor, leader.pid)
        assert other.poll() is None
        assert open_child(other.pid, 1) == -1
    finally:
        other.kill()
        other.wait()
        os.close(descriptor)


# As a reaper is, the child is a subreaper (36): orphans become its children.
FAMILY = """
import ctypes, os, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
for _ in range(3):
    os.fork()
os.write(1, b"x")
time.sleep(1000)
"""


def test_descendants_are_killed_and_the_child_is_not(mark: str) -> None:
    environment = os.environ | {"MARK": mark}
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        try:
            for _ in range(8):
                assert child.stdout.read(1) == b"x"
            assert len(marked(mark)) == 8
            assert kill_descendants(child.pid)
            eventually(lambda: not kill_descendants(child.pid), "all are killed")
            assert marked(mark) == {child.pid}
        finally:
            child.kill()
