"""What the tests of the reaper share: to run commands, wait for what it says, and look at processes behind its back."""

from __future__ import annotations

import os
import select
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ostinato.tune.workers.reaper import Event, Exited, Lost, NotStarted, Reaper, Started

DEADLINE = 110.0  # just below the watchdog of pytest: at a low priority on a busy host, a script takes 50 s to start
ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath)}

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


def wait_for(reaper: Reaper, *kinds: type) -> list[Event]:
    """What the reaper says, up to the first event of one of these kinds."""
    readable = select.poll()
    readable.register(reaper, select.POLLIN)
    events: list[Event] = []
    while not any(isinstance(event, (*kinds, Lost)) for event in events):
        assert readable.poll(DEADLINE * 1000), f"the reaper says nothing more: {events}"
        events += reaper.read()
    assert any(isinstance(event, kinds) for event in events), events
    return events


def end(reaper: Reaper) -> Exited:
    """The end of the command that runs, which did start."""
    last = wait_for(reaper, Exited, NotStarted, Lost)[-1]
    assert isinstance(last, Exited), last
    return last


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


def living(pid: int) -> bool:
    """Whether there is such a process, and it has not ended; somebody else may have to wait for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def marked(mark: str) -> set[int]:
    """Living processes that have MARK=mark in their environment, whoever their parent is."""
    found = set()
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            environment = (directory / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if f"MARK={mark}".encode() in environment.split(b"\0") and living(int(directory.name)):
            found.add(int(directory.name))
    return found


def eventually(holds: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < give_up, f"never happened: {what}"
        time.sleep(0.002)
