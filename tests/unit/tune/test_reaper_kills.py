"""What is killed: at a limit, when asked, and what a command leaves behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ostinato.tune.leases.processes import descendants
from ostinato.tune.workers.reaper import Reaper, Started, Swept
from tune.reaping import DAEMON, ENVIRONMENT, end, eventually, living, marked, python, run, wait_for


def test_at_the_time_limit_all_are_killed(reaper: Reaper, mark: str) -> None:
    held, kept = os.pipe()
    python(reaper, DAEMON, mark=mark, fds={0: held}, seconds=0.5)
    exited = end(reaper)
    assert marked(mark) == set()
    assert (exited.status, exited.cause, exited.leftovers) == (-9, "time", 1)
    assert exited.seconds >= 0.5
    os.close(held)
    os.close(kept)


@contextmanager
def unattended(reaper: Reaper) -> Iterator[None]:
    """The reaper learns what happens meanwhile only afterwards, all at once."""
    os.kill(reaper.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(reaper.pid, signal.SIGCONT)


def test_what_has_ended_in_time_is_never_a_timeout(reaper: Reaper, mark: str) -> None:
    read, write = os.pipe()
    reaper.spawn(["cat"], env=ENVIRONMENT | {"MARK": mark}, fds={0: read}, seconds=0.3)
    os.close(read)
    wait_for(reaper, Started)
    limit = time.monotonic() + 0.3
    with unattended(reaper):
        os.close(write)
        eventually(lambda: not marked(mark), "cat ends")
        in_time = time.monotonic() < limit
        time.sleep(max(0, limit + 0.01 - time.monotonic()))
    exited = end(reaper)
    assert (exited.status, exited.cause) == (0, "exit") or not in_time


def all_have_ended(reaper: Reaper) -> bool:
    """Whether all processes below the reaper are zombies: none of those listed can have made another meanwhile."""
    listed = descendants(reaper.pid)
    return not any(map(living, listed - {reaper.pid})) and descendants(reaper.pid) == listed


def test_what_has_ended_was_not_killed(reaper: Reaper) -> None:
    read, write = os.pipe()
    reaper.spawn(["sh", "-c", "read line; (exit 0 &)"], env=ENVIRONMENT, fds={0: read})
    os.close(read)
    wait_for(reaper, Started)
    with unattended(reaper):
        os.write(write, b"\n")
        eventually(lambda: all_have_ended(reaper), "all end")
        reaper.kill()
    os.close(write)
    exited = end(reaper)
    assert (exited.status, exited.cause, exited.leftovers) == (0, "exit", 0)


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
    # A child that posix_spawn has made runs in its parent's memory until it executes its program; this one waits.
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


def test_a_sweep_does_not_wait_for_the_command_to_wait(reaper: Reaper) -> None:
    script = """
import os, sys, time
child = os.fork()
if child > 0:
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    print("there", flush=True)
    time.sleep(1000)
"""
    python(reaper, script)
    reaper.sweep()
    assert wait_for(reaper, Swept) == [Swept(0)]
