"""What the tests of the reaper share: waiting for what it says, and looking at processes behind its back."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from pathlib import Path

from ostinato.tune.reaper import Event, Exited, Lost, NotStarted, Reaper

DEADLINE = 60.0
ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath)}


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
