"""Processes that die, fork, or close what others need, while a reaper is at work."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostinato.tune.workers.reaper import Reaper
from tune.reaping import DEADLINE, eventually, living, marked

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000  # __WALL
ENVIRONMENT = dict(os.environ)

# Holds a lease, and runs a command that has left a crowd behind, each in a session of its own.
TUNER = """
import fcntl, os, sys, time
from ostinato.tune.workers.reaper import Reaper, Started
from tune.reaping import ENVIRONMENT, wait_for

path, mark, forks = sys.argv[1:]
lease = os.open(path, os.O_RDWR | os.O_CREAT)
fcntl.flock(lease, fcntl.LOCK_EX)
reaper = Reaper(leases=[lease])
crowd = '''
import os, time
for _ in range(30):
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
os.write(1, b"there")
time.sleep(1000)
'''
read, write = os.pipe()
reaper.spawn([sys.executable, "-c", crowd], env=ENVIRONMENT | {"MARK": mark}, fds={1: write})
assert os.read(read, 5) == b"there"
copy = os.fork() if forks == "True" else 0
if copy == 0 and forks == "True":
    time.sleep(1000)
print(copy, reaper.pid, flush=True)
time.sleep(1000)
"""


def script(text: str, *arguments: str) -> str:
    """Run a script to its end, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("forks", [False, True])
def test_a_lease_is_free_when_nothing_of_a_killed_tuner_is_left(tmp_path: Path, forks: bool) -> None:
    mark, path = uuid.uuid4().hex, tmp_path / "lease"
    tuner = subprocess.Popen(
        [sys.executable, "-c", TUNER, str(path), mark, str(forks)], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    assert tuner.stdout is not None
    copy, reaper = map(int, tuner.stdout.readline().split())
    assert len(marked(mark)) == 31
    left_behind: set[int] | None = None

    def wait_for_lease() -> None:
        nonlocal left_behind
        with open(path, "r+") as lease:
            fcntl.flock(lease, fcntl.LOCK_EX)
            left_behind = marked(mark)

    waiting = threading.Thread(target=wait_for_lease, daemon=True)
    waiting.start()
    tuner.kill()
    waiting.join(DEADLINE)
    assert left_behind == set()
    eventually(lambda: not living(reaper), "the reaper ends")
    if forks:
        os.kill(copy, signal.SIGKILL)  # it was still there, and held copies of everything
    tuner.stdout.close()
    tuner.wait()


TUNER_OF_TWO = """
import fcntl, os, sys, time
from ostinato.tune.workers.reaper import Reaper, Started
from tune.reaping import ENVIRONMENT, wait_for

lease = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lease, fcntl.LOCK_EX)
reapers = [Reaper(leases=[lease]) for _ in range(2)]
for reaper in reapers:
    reaper.spawn(["sleep", "1000"], env=ENVIRONMENT)
    wait_for(reaper, Started)
copy = os.fork()
if copy:
    print(copy, *(reaper.pid for reaper in reapers), flush=True)
time.sleep(1000)
"""


@contextlib.contextmanager
def held_up(pid: int) -> Iterator[None]:
    """Stop a process as a debugger does: SIGCONT, which the kernel sends when the tuner dies, is not enough."""
    trace = ctypes.CDLL(None, use_errno=True).ptrace
    trace.argtypes = [ctypes.c_long] * 4
    if trace(PTRACE_SEIZE, pid, 0, 0) or trace(PTRACE_INTERRUPT, pid, 0, 0):
        pytest.skip(f"ptrace: {os.strerror(ctypes.get_errno())}")
    os.waitpid(pid, WALL)
    try:
        yield
    finally:
        assert trace(PTRACE_DETACH, pid, 0, 0) == 0


@pytest.mark.parametrize("slower", [0, 1])
def test_a_lease_is_free_when_the_slower_of_two_reapers_is_through(tmp_path: Path, slower: int) -> None:
    path = tmp_path / "lease"
    command = [sys.executable, "-c", TUNER_OF_TWO, str(path)]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as tuner:
        assert tuner.stdout is not None
        copy, *reapers = map(int, tuner.stdout.readline().split())
        try:
            with open(path, "r+") as lease:
                with held_up(reapers[slower]):
                    tuner.kill()
                    eventually(lambda: not living(reapers[1 - slower]), "the other reaper ends")
                    with pytest.raises(BlockingIOError):
                        fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(lease, fcntl.LOCK_EX)
            eventually(lambda: not living(reapers[slower]), "the slower one ends")
        finally:
            os.kill(copy, signal.SIGKILL)  # it was still there, and held the lease's descriptor


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_reaper_does_not_outlive_the_tuner(tmp_path: Path, end: signal.Signals) -> None:
    mark, path = uuid.uuid4().hex, tmp_path / "lease"
    command = [sys.executable, "-c", TUNER, str(path), mark, "False"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as tuner:
        assert tuner.stdout is not None
        reaper = int(tuner.stdout.readline().split()[1])
        os.kill(reaper, signal.SIGSTOP)
        tuner.send_signal(end)
    eventually(lambda: not living(reaper), "the reaper ends")
    assert marked(mark) == set()
    with open(path, "r+") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_leases_are_held_until_others_are_given(tmp_path: Path) -> None:
    def locked(name: str) -> bool:
        with open(tmp_path / name, "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    first, second = (open(tmp_path / name, "w") for name in ("first", "second"))  # noqa: SIM115
    with Reaper(leases=[first.fileno()]) as reaper:
        for file in (first, second):
            fcntl.flock(file, fcntl.LOCK_EX)
        first.close()
        assert locked("first")
        reaper.hold([second.fileno()])
        second.close()
        eventually(lambda: not locked("first"), "the first lease is let go")
        assert locked("second")
        reaper.hold(())
        eventually(lambda: not locked("second"), "the second lease is let go")


def test_a_reaper_that_is_closed_leaves_the_leases_to_the_tuner(tmp_path: Path) -> None:
    with open(tmp_path / "lease", "w") as ours, open(tmp_path / "lease", "w") as theirs:
        fcntl.flock(ours, fcntl.LOCK_EX)
        Reaper(leases=[ours.fileno()]).close()
        with pytest.raises(BlockingIOError):
            fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_tuner_that_becomes_another_program_leaves_nothing_behind(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    becomes = TUNER.rpartition("print(")[0] + "os.execvp('true', ['true'])"
    assert script(becomes, str(tmp_path / "lease"), mark, "False") == ""
    eventually(lambda: not marked(mark), "the command is killed")


def test_nothing_of_the_group_survives_a_killed_reaper() -> None:
    mark = uuid.uuid4().hex
    told = script(
        """
import os, signal, sys
from ostinato.tune.workers.reaper import Lost, Reaper, Started
from tune.reaping import ENVIRONMENT, eventually, marked, wait_for

mark = sys.argv[1]
reaper = Reaper()
read, write = os.pipe()
command = ["sh", "-c", "sleep 1000 & sleep 1000 & echo; wait"]
reaper.spawn(command, env=ENVIRONMENT | {"MARK": mark}, fds={1: write})
wait_for(reaper, Started)
os.read(read, 1)
os.kill(reaper.pid, signal.SIGKILL)
print(wait_for(reaper, Lost)[-1])
eventually(lambda: not marked(mark), "the group is killed")
reaper.close()
""",
        mark,
    )
    assert told == "Lost(status=-9)\n"
    assert marked(mark) == set()


def test_a_forked_process_cannot_touch_the_reaper() -> None:
    told = script("""
import os
from ostinato.tune.workers.reaper import Exited, Reaper
from tune.reaping import ENVIRONMENT, end

reaper = Reaper()
read, write = os.pipe()
reaper.spawn(["cat"], env=ENVIRONMENT, fds={0: read})
child = os.fork()
if child == 0:
    os.close(write)
    for call in (reaper.read, reaper.kill, reaper.sweep, lambda: reaper.spawn(["true"], env={})):
        try:
            call()
        except RuntimeError as error:
            print(error, flush=True)
    reaper.close()
    reaper.close()
    os._exit(0)
os.waitpid(child, 0)
os.close(write)
os.close(read)
print(end(reaper).cause)
reaper.close()
""")
    assert told == "a reaper serves the process that made it, not one forked from it\n" * 4 + "exit\n"


def test_a_process_without_standard_descriptors_can_have_a_reaper(tmp_path: Path) -> None:
    path = tmp_path / "told"
    script(
        """
import os, sys
from ostinato.tune.workers.reaper import Reaper
from tune.reaping import ENVIRONMENT, end

os.closerange(0, 3)
with Reaper() as reaper:
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
    assert file == 0
    reaper.spawn(["sh", "-c", "echo out; echo err >&2"], env=ENVIRONMENT, fds={1: file, 2: file})
    assert end(reaper).status == 0
""",
        str(path),
    )
    assert path.read_text() == "out\nerr\n"


def test_somebody_else_may_wait_for_all_children() -> None:
    script("""
import os, signal
from ostinato.tune.workers.reaper import Lost, Reaper
from tune.reaping import wait_for

reaper = Reaper()
os.kill(reaper.pid, signal.SIGKILL)
os.wait()
assert wait_for(reaper, Lost) == [Lost(None)]
reaper.close()
""")


def test_the_reaper_is_not_in_the_session_of_the_tuner() -> None:
    script("""
import os
from ostinato.tune.workers.reaper import Reaper
from tune.reaping import ENVIRONMENT, end

with Reaper() as reaper:
    reaper.spawn(["true"], env=ENVIRONMENT)
    end(reaper)
    assert os.getsid(reaper.pid) == os.getpgid(reaper.pid) == reaper.pid
""")


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0 or shutil.which("cc") is None, reason="needs root and a C compiler")
def test_what_cannot_be_killed_is_named_and_waited_for() -> None:
    # A program that another user owns stands for one that hangs in the kernel: SIGKILL does not reach it.
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        program = Path(name, "program")
        source = "int main() { char c; return setresuid(0, 0, 0) || write(1, &c, 1) != 1 || read(0, &c, 1); }"
        subprocess.run(["cc", "-w", "-x", "c", "-", "-o", program], input=source, text=True, check=True)
        program.chmod(0o4755)
        told = script(
            """
import os, sys
from ostinato.tune.workers.reaper import Exited, Reaper, Started, Stuck
from tune.reaping import ENVIRONMENT, living, wait_for

os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
read, write = os.pipe()
told, tells = os.pipe()
reaper = Reaper()
reaper.spawn([sys.argv[1]], env=ENVIRONMENT, fds={0: read, 1: tells})
(started,) = wait_for(reaper, Started)
assert len(os.read(told, 1)) == 1
reaper.kill()
reaper.sweep()
assert wait_for(reaper, Stuck) == [Stuck((started.pid,))]
try:
    reaper.close(timeout=0)
except TimeoutError as error:
    assert str(error) == f"processes are still there 0 s after SIGKILL: {started.pid}", error
assert living(started.pid)
os.close(read)
os.close(write)
print(*(type(event).__name__ for event in wait_for(reaper, Exited)))
reaper.close()
assert not living(reaper.pid)
""",
            str(program),
        )
    assert told.split()[:2] == ["Swept", "Exited"]
