"""A command on a reaper: how it is started, what it is given, how it ends."""

from __future__ import annotations

import errno
import gc
import hashlib
import os
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato
from ostinato.errors import TuningError
from ostinato.tune.reaper import Exited, Lost, NotStarted, Reaper, Started, Swept
from tune.reaping import ENVIRONMENT, end, eventually, living, marked, wait_for

# Leaves a daemon behind, says when it is there, and ends after the next line.
DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
os.wait()
print("there", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    reaper = Reaper()
    yield reaper
    reaper.close()
    assert reaper._lost or reaper._status == 0


@pytest.fixture
def mark() -> str:
    return uuid.uuid4().hex


def run(reaper: Reaper, *argv: str, **given: Any) -> Exited:
    reaper.spawn(argv, env=given.pop("env", ENVIRONMENT), **given)
    return end(reaper)


def output(reaper: Reaper, *argv: str, **given: Any) -> str:
    with tempfile.TemporaryFile() as file:
        exited = run(reaper, *argv, fds={1: file.fileno(), 2: file.fileno()}, **given)
        file.seek(0)
        text = file.read().decode()
    assert exited.status == 0, (exited, text)
    return text


def python(reaper: Reaper, script: str, *, mark: str = "", **given: Any) -> int:
    """Spawn a script, wait until it has printed a line, and return its process number."""
    read, write = os.pipe()
    with open(read) as told:
        try:
            environment = ENVIRONMENT | {"MARK": mark}
            reaper.spawn(
                [sys.executable, "-c", script], env=environment, fds={1: write} | given.pop("fds", {}), **given
            )
        finally:
            os.close(write)
        assert told.readline() == "there\n"
    (started,) = wait_for(reaper, Started)
    assert isinstance(started, Started)
    return started.pid


def not_started(reaper: Reaper, *argv: str, **given: Any) -> NotStarted:
    reaper.spawn(argv, env=given.pop("env", ENVIRONMENT), **given)
    (event,) = wait_for(reaper, NotStarted, Exited)
    assert isinstance(event, NotStarted)
    return event


def test_started_is_told_before_the_end(reaper: Reaper) -> None:
    reaper.spawn(["sh", "-c", "exit 3"], env=ENVIRONMENT)
    assert reaper.running
    started, exited = wait_for(reaper, Exited)
    assert isinstance(started, Started)
    assert isinstance(exited, Exited)
    assert not reaper.running
    assert (exited.status, exited.cause, exited.leftovers) == (3, "exit", 0)
    assert exited.max_rss > 0
    assert exited.cpu_ns > 0
    assert 0 < exited.seconds < 60


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 255", 255), ("kill -SEGV $$", -11), ("kill -KILL $$", -9)]
)
def test_status_is_that_of_the_command(reaper: Reaper, script: str, status: int) -> None:
    exited = run(reaper, "sh", "-c", script)
    assert (exited.status, exited.cause, exited.leftovers) == (status, "exit", 0)


def test_what_cannot_start_says_why_and_costs_nothing(reaper: Reaper, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("nothing that a kernel executes")
    text.chmod(0o755)
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    plain = tmp_path / "plain"
    plain.write_text("")
    plain.chmod(0o644)
    assert not_started(reaper, "no-such-program") == (errno.ENOENT, "exec")
    assert not_started(reaper, str(tmp_path / "none")) == (errno.ENOENT, "exec")
    assert not_started(reaper, str(plain / "below")) == (errno.ENOTDIR, "exec")
    assert not_started(reaper, str(plain)) == (errno.EACCES, "exec")
    assert not_started(reaper, str(tmp_path)) == (errno.EACCES, "exec")
    assert not_started(reaper, str(text)) == (errno.ENOEXEC, "exec")
    assert not_started(reaper, str(script)) == (errno.ENOENT, "exec")
    assert not_started(reaper, "") == (errno.ENOENT, "exec")
    assert not_started(reaper, "true", "x" * 10_000_000) == (errno.E2BIG, "exec")
    assert not_started(reaper, "true", cwd=str(tmp_path / "none")) == (errno.ENOENT, "chdir")
    assert not_started(reaper, "true", cwd=str(plain)) == (errno.ENOTDIR, "chdir")
    assert not_started(reaper, "true", fds={10**9: 1}) == (errno.EINVAL, "setup")
    assert Path(f"/proc/{reaper._pid}/task/{reaper._pid}/children").read_text() == ""
    assert run(reaper, "true").status == 0


def test_cores_that_are_not_there(mark: str) -> None:
    with Reaper(cores=frozenset({8000})) as reaper:
        assert not_started(reaper, "true") == (errno.EINVAL, "setup")
    with pytest.raises(ValueError, match="cores is empty"):
        Reaper(cores=frozenset())


def test_programs_are_found_along_path_of_the_environment_given(reaper: Reaper, tmp_path: Path) -> None:
    for name, mode in (("first", 0o644), ("second", 0o755), ("third", 0o755)):
        (tmp_path / name).mkdir()
        program = tmp_path / name / "program"
        program.write_text(f"#!/bin/sh\necho {name}\n")
        program.chmod(mode)
    path = f"/no/such/directory:{tmp_path}/first:{tmp_path}/second:{tmp_path}/third"
    assert output(reaper, "program", env={"PATH": path}) == "second\n"
    assert output(reaper, "program", env={"PATH": "/nowhere:"}, cwd=str(tmp_path / "third")) == "third\n"
    assert not_started(reaper, "program", env={"PATH": f"{tmp_path}/first:/nowhere"}) == (errno.EACCES, "exec")
    assert not_started(reaper, "program") == (errno.ENOENT, "exec")
    assert output(reaper, "sh", "-c", "echo without PATH", env={}) == "without PATH\n"


def test_working_directory_is_ours_unless_given(
    reaper: Reaper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    assert output(reaper, "/bin/pwd") == f"{tmp_path}\n"
    assert output(reaper, "/bin/pwd", cwd="below") == f"{tmp_path}/below\n"


def test_arguments_and_environment_may_be_large(reaper: Reaper) -> None:
    arguments = ["", "with space", "ünïcode", "\udcff", *("x" * 1000 for _ in range(500))]
    variables = {f"V{i}": "y" * 1000 for i in range(300)} | {"EMPTY": "", "EQUALS": "a=b"}
    script = """
import hashlib, os, sys
environment = {name: value for name, value in os.environ.items() if name not in ("LC_CTYPE", "PWD", "SHLVL", "_")}
print(hashlib.sha256(repr((sys.argv[1:], sorted(environment.items()))).encode("utf-8", "surrogateescape")).hexdigest())
"""
    expected = repr((arguments, sorted(variables.items()))).encode("utf-8", "surrogateescape")
    told = output(reaper, sys.executable, "-c", script, *arguments, env=variables)
    assert told == hashlib.sha256(expected).hexdigest() + "\n"


@settings(max_examples=40)
@given(st.lists(st.integers(3, 80), unique=True, max_size=12))
def test_descriptors_are_those_given_and_no_others(targets: list[int]) -> None:
    with Reaper() as reaper, tempfile.TemporaryDirectory() as name:
        files = [open(Path(name, str(i)), "w") for i in range(len(targets))]  # noqa: SIM115
        fds = dict(zip(targets, (file.fileno() for file in files), strict=True))
        with open(Path(name, "out"), "w+") as out:
            # `ls` itself reads the directory through one more descriptor.
            reaper.spawn(["sh", "-c", "ls -l /proc/$$/fd; :"], env=ENVIRONMENT, fds=fds | {1: out.fileno()})
            assert end(reaper).status == 0
            out.seek(0)
            lines = [line.split()[-3:] for line in out.read().splitlines() if "->" in line]
        seen = {int(number): target for number, _, target in lines}
        assert seen.pop(1) == f"{name}/out"
        assert seen.pop(0) == seen.pop(2) == "/dev/null"
        assert seen == {target: f"{name}/{i}" for i, target in enumerate(targets)}
        for file in files:
            file.close()


def test_signals_are_as_in_a_fresh_process(reaper: Reaper) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        with Reaper() as made_now:
            status = output(made_now, "cat", "/proc/self/status")
    finally:
        signal.signal(signal.SIGUSR2, before)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert int(fields["SigBlk"], 16) == 0
    own_of_libc = 1 << 31 | 1 << 32
    assert int(fields["SigIgn"], 16) & ~own_of_libc == 0
    assert fields["NSpid"] == fields["NSpgid"] == fields["NSsid"]


def test_cores_and_idle_priority_hold_for_commands_only() -> None:
    core = max(os.sched_getaffinity(0))
    script = "import os; print(os.sched_getaffinity(0), os.sched_getscheduler(0) == os.SCHED_IDLE)"
    with Reaper(cores=frozenset({core}), idle_priority=True) as reaper:
        assert output(reaper, sys.executable, "-c", script) == f"{{{core}}} True\n"
        assert os.sched_getaffinity(reaper._pid) == os.sched_getaffinity(0)
        assert os.sched_getscheduler(reaper._pid) == os.sched_getscheduler(0)
    with Reaper() as reaper:
        assert output(reaper, sys.executable, "-c", script) == f"{os.sched_getaffinity(0)} False\n"


def test_at_the_time_limit_all_are_killed(reaper: Reaper, mark: str) -> None:
    held, kept = os.pipe()
    python(reaper, DAEMON, mark=mark, fds={0: held}, seconds=0.5)
    exited = end(reaper)
    assert marked(mark) == set()
    assert (exited.status, exited.cause, exited.leftovers) == (-9, "time", 1)
    assert exited.seconds >= 0.5
    os.close(held)
    os.close(kept)


def test_what_has_ended_in_time_is_never_a_timeout(reaper: Reaper) -> None:
    # The reaper looks when the limit has long passed, and finds a command that had ended before.
    read, write = os.pipe()
    reaper.spawn(["cat"], env=ENVIRONMENT, fds={0: read}, seconds=0.3)
    (started,) = wait_for(reaper, Started)
    assert isinstance(started, Started)
    limit = time.monotonic() + 0.3
    os.kill(reaper._pid, signal.SIGSTOP)
    os.close(read)
    os.close(write)
    eventually(lambda: not living(started.pid), "cat ends")
    in_time = time.monotonic() < limit
    time.sleep(max(0, limit + 0.01 - time.monotonic()))
    os.kill(reaper._pid, signal.SIGCONT)
    exited = end(reaper)
    assert (exited.status, exited.cause) == (0, "exit") or not in_time


def test_kill(reaper: Reaper, mark: str) -> None:
    reaper.kill()  # nothing runs: nothing happens
    held, kept = os.pipe()
    python(reaper, DAEMON, mark=mark, fds={0: held})
    assert len(marked(mark)) == 2
    reaper.kill()
    exited = end(reaper)
    assert marked(mark) == set()
    assert (exited.status, exited.cause, exited.leftovers) == (-9, "killed", 1)
    os.close(held)
    os.close(kept)
    assert run(reaper, "true").status == 0


def test_what_a_command_leaves_behind_is_killed_when_it_ends(reaper: Reaper, mark: str) -> None:
    held, kept = os.pipe()
    python(reaper, DAEMON, mark=mark, fds={0: held})
    os.close(held)
    os.write(kept, b"end\n")
    os.close(kept)
    exited = end(reaper)
    assert marked(mark) == set()
    assert (exited.status, exited.cause, exited.leftovers) == (0, "exit", 1)


def test_orphans_that_end_by_themselves_are_no_leftovers(reaper: Reaper) -> None:
    exited = run(reaper, "sh", "-c", "for i in 1 2 3 4 5; do (true &); done; read line </dev/null; sleep 0.05; exit 0")
    assert (exited.status, exited.leftovers) == (0, 0)


def test_bombs_are_defused(reaper: Reaper, mark: str) -> None:
    # Every process leaves the group, forks two more until there are 128 at the bottom, and asks not to be ended.
    script = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(7):
    if os.fork() == 0:
        os.setsid()
print("there", flush=True)
time.sleep(1000)
"""
    python(reaper, script, mark=mark)
    reaper.kill()
    exited = end(reaper)
    assert marked(mark) == set()
    assert exited.cause == "killed"
    # Some were stillborn.
    assert 1 <= exited.leftovers <= 127


def test_endless_bombs_are_defused(reaper: Reaper, mark: str) -> None:
    # Eight chains: a process that lives for a moment, in a session of its own, after another.
    script = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        while True:
            if os.fork() > 0:
                os._exit(0)
            os.setsid()
print("there", flush=True)
"""
    python(reaper, script, mark=mark)
    exited = end(reaper)
    assert marked(mark) == set()
    assert (exited.status, exited.cause) == (0, "exit")


def test_memory_of_all_processes_counts(reaper: Reaper, mark: str) -> None:
    script = """
import os, time
os.fork()
os.fork()
data = bytearray(60 << 20)
time.sleep(1000)
"""
    environment = ENVIRONMENT | {"MARK": mark}
    reaper.spawn([sys.executable, "-c", script], env=environment, memory=150 << 20)
    exited = end(reaper)
    assert (exited.status, exited.cause) == (-9, "memory")
    assert exited.max_rss < 150 << 20
    assert marked(mark) == set()


def test_memory_that_processes_share_counts_once(reaper: Reaper) -> None:
    script = """
import os, time
data = bytearray(100 << 20)
for _ in range(3):
    if os.fork() == 0:
        time.sleep(1000)
time.sleep(0.15)
"""
    exited = run(reaper, sys.executable, "-c", script, memory=250 << 20)
    assert (exited.status, exited.cause, exited.leftovers) == (0, "exit", 3)


def test_memory_lent_to_a_child_counts_once(reaper: Reaper, tmp_path: Path) -> None:
    # A child that posix_spawn has made runs in its parent's memory until it executes its program; this one waits before.
    script = """
import os, sys, time
os.mkfifo(sys.argv[1])
if os.fork() == 0:
    time.sleep(0.15)
    os._exit(os.open(sys.argv[1], os.O_WRONLY) < 0)
data = bytearray(100 << 20)
opening = [(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)]
os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", ":"], {}, file_actions=opening), 0)
os.wait()
"""
    exited = run(reaper, sys.executable, "-c", script, str(tmp_path / "fifo"), memory=180 << 20)
    assert (exited.status, exited.cause, exited.leftovers) == (0, "exit", 0)


def test_sweep_spares_the_command(reaper: Reaper, mark: str) -> None:
    held, kept = os.pipe()
    pid = python(reaper, DAEMON, mark=mark, fds={0: held})
    reaper.sweep()
    assert wait_for(reaper, Swept) == [Swept(1)]
    assert marked(mark) == {pid}
    reaper.sweep()
    assert wait_for(reaper, Swept) == [Swept(0)]
    os.close(held)
    os.write(kept, b"end\n")
    os.close(kept)
    exited = end(reaper)
    assert (exited.status, exited.leftovers) == (0, 0)
    reaper.sweep()
    assert wait_for(reaper, Swept) == [Swept(0)]


def test_usage_is_that_of_the_whole_tree(reaper: Reaper) -> None:
    script = """
import os, time
def burn():
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
if os.fork() == 0:
    burn()
    os._exit(0)
os.wait()
burn()
"""
    assert run(reaper, sys.executable, "-c", script).cpu_ns >= 200_000_000


def test_no_descriptor_is_left_after_many_commands(reaper: Reaper) -> None:
    def open_descriptors() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{reaper._pid}/fd"))

    run(reaper, "true")
    gc.collect()
    before = open_descriptors()
    for i in range(200):
        if i % 4 == 0:
            not_started(reaper, "no-such-program")
        else:
            run(reaper, "true", fds={1: 1, 2: 2})
    assert open_descriptors() == before


def test_wrong_arguments(reaper: Reaper) -> None:
    with pytest.raises(ValueError, match="argv is empty"):
        reaper.spawn([], env={})
    with pytest.raises(ValueError, match="zero byte"):
        reaper.spawn(["true", "a\0b"], env={})
    with pytest.raises(ValueError, match="not a name of an environment variable: 'A=B'"):
        reaper.spawn(["true"], env={"A=B": "c"})
    with pytest.raises(ValueError, match="seconds is positive"):
        reaper.spawn(["true"], env={}, seconds=0)
    with pytest.raises(ValueError, match="memory is positive"):
        reaper.spawn(["true"], env={}, memory=-1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        reaper.spawn(["true"], env={}, fds={1: 10**6})
    assert not reaper.running
    assert run(reaper, "true").status == 0


def test_one_command_at_a_time(reaper: Reaper) -> None:
    reaper.spawn(["sleep", "1000"], env=ENVIRONMENT)
    with pytest.raises(RuntimeError, match="one command at a time"):
        reaper.spawn(["true"], env=ENVIRONMENT)
    reaper.close()
    reaper.close()
    with pytest.raises(RuntimeError, match="closed"):
        reaper.spawn(["true"], env=ENVIRONMENT)
    assert reaper.read() == []


def test_close_kills(mark: str) -> None:
    held, kept = os.pipe()
    with Reaper() as reaper:
        python(reaper, DAEMON, mark=mark, fds={0: held})
        pid = reaper._pid
    assert marked(mark) == set()
    assert not living(pid)
    os.close(held)
    os.close(kept)


def test_a_lost_reaper_says_so_once(reaper: Reaper, mark: str) -> None:
    reaper.spawn(["sleep", "1000"], env=ENVIRONMENT | {"MARK": mark})
    wait_for(reaper, Started)
    os.kill(reaper._pid, signal.SIGKILL)
    assert wait_for(reaper, Lost) == [Lost(-9)]
    assert reaper.read() == []
    eventually(lambda: not marked(mark), "the command is killed")
    with pytest.raises(RuntimeError, match="lost"):
        reaper.spawn(["true"], env=ENVIRONMENT)
    reaper.kill()


def test_a_reaper_that_is_asked_to_end_kills_first(reaper: Reaper, mark: str) -> None:
    held, kept = os.pipe()
    python(reaper, DAEMON, mark=mark, fds={0: held})
    os.kill(reaper._pid, signal.SIGTERM)
    *_, exited, lost = wait_for(reaper, Lost)
    assert isinstance(exited, Exited)
    assert (exited.cause, exited.leftovers) == ("killed", 1)
    assert lost == Lost(0)
    assert marked(mark) == set()
    os.close(held)
    os.close(kept)


def test_a_missing_program_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ostinato, "__path__", [str(tmp_path)])
    with pytest.raises(TuningError, match=r"bin/ostinato-reaper is not installed .* install Ostinato again"):
        Reaper()
