"""A command on a reaper: how it is started, what it is given, how it ends."""

from __future__ import annotations

import errno
import gc
import hashlib
import os
import signal
import socket
import struct
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato
from ostinato.errors import TuningError
from ostinato.tune.workers.reaper import Exited, Lost, Reaper, Started
from tune.reaping import (
    DAEMON,
    ENVIRONMENT,
    end,
    eventually,
    living,
    marked,
    not_started,
    output,
    python,
    run,
    wait_for,
)


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
    assert Path(f"/proc/{reaper.pid}/task/{reaper.pid}/children").read_text() == ""
    assert run(reaper, "true").status == 0


def test_cores_that_are_not_there(mark: str) -> None:
    with Reaper(cores=frozenset({8000})) as reaper:
        assert not_started(reaper, "true") == (errno.EINVAL, "setup")
    with pytest.raises(ValueError, match="cores must hold"):
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
        assert os.sched_getaffinity(reaper.pid) == os.sched_getaffinity(0)
        assert os.sched_getscheduler(reaper.pid) == os.sched_getscheduler(0)
    with Reaper() as reaper:
        assert output(reaper, sys.executable, "-c", script) == f"{os.sched_getaffinity(0)} False\n"


def test_usage_is_that_of_the_whole_tree(reaper: Reaper) -> None:
    script = """
import os, time
def burn():
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
read, write = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        burn()  # an orphan
    os._exit(0)
os.wait()
burn()
os.close(write)
os.read(read, 1)
"""
    assert run(reaper, sys.executable, "-c", script).cpu_ns >= 200_000_000


def test_no_descriptor_is_left_after_many_commands(reaper: Reaper) -> None:
    def open_descriptors() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{reaper.pid}/fd"))

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
    with pytest.raises(ValueError, match="argv must hold"):
        reaper.spawn([], env={})
    with pytest.raises(ValueError, match="null character"):
        reaper.spawn(["true", "a\0b"], env={})
    with pytest.raises(ValueError, match="env must hold names of environment variables, got 'A=B'"):
        reaper.spawn(["true"], env={"A=B": "c"})
    with pytest.raises(ValueError, match="seconds must be positive"):
        reaper.spawn(["true"], env={}, seconds=0)
    with pytest.raises(ValueError, match="memory must be positive"):
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
        pid = reaper.pid
    assert marked(mark) == set()
    assert not living(pid)
    os.close(held)
    os.close(kept)


def test_a_lost_reaper_says_so_once(reaper: Reaper, mark: str) -> None:
    reaper.spawn(["sleep", "1000"], env=ENVIRONMENT | {"MARK": mark})
    wait_for(reaper, Started)
    os.kill(reaper.pid, signal.SIGKILL)
    assert wait_for(reaper, Lost) == [Lost(-9)]
    assert reaper.read() == []
    eventually(lambda: not marked(mark), "the command is killed")
    with pytest.raises(RuntimeError, match="lost"):
        reaper.spawn(["true"], env=ENVIRONMENT)
    reaper.kill()


def test_a_reaper_that_is_asked_to_end_kills_first(reaper: Reaper, mark: str) -> None:
    held, kept = os.pipe()
    python(reaper, DAEMON, mark=mark, fds={0: held})
    os.kill(reaper.pid, signal.SIGTERM)
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


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=80) | st.tuples(st.integers(0, 9), st.binary(max_size=60))))
def test_messages_that_make_no_sense_count_for_nothing(messages: list[bytes | tuple[int, bytes]]) -> None:
    """A candidate may have taken the reaper's descriptor."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with Reaper() as reaper, ours, theirs:
        right, reaper._socket = reaper._socket, ours
        try:
            for message in messages:
                whole = message if isinstance(message, bytes) else struct.pack("=I", message[0]) + message[1]
                theirs.send(whole)
                reaper.read()
        finally:
            reaper._socket, reaper.running = right, False
        assert run(reaper, "true").status == 0
