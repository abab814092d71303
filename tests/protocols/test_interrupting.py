"""Ctrl-C is raised inside the tasks of one run only, however they begin and end meanwhile.

Mirrors `PythonThread::leave_task`, `interrupt_tasks` and `forget_interrupt` (python/thread.h, python/thread.cpp) where
Python has no lock: one thread leaves a task of run 1 and enters one of run 2, while another interrupts run 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, explore, fence, load, lock, store, unlock


@dataclass(frozen=True)
class Protocol:
    told_before_look: bool = True  # the interrupter sets the flag before it looks at the task again
    looks_again: bool = True  # and does look again
    fences: bool = True
    under_mutex: bool = True  # the thread that leaves waits until the interrupter has done what it does


def tasks(p: Protocol) -> Thread:
    yield store("task", 0)  # leaves the task of run 1
    if p.fences:
        yield fence()
    interrupted = yield load("interrupted")
    if interrupted:
        if p.under_mutex:
            yield lock("mutex")
        yield store("raised", 0)
        yield store("interrupted", 0)
        if p.under_mutex:
            yield unlock("mutex")
    yield store("task", 2)
    raised = yield load("raised")
    assert not raised, "an interrupt of run 1 is raised in a task of run 2"


def interrupter(p: Protocol) -> Thread:
    yield lock("mutex")
    task = yield load("task")
    if task == 1:
        if p.told_before_look:
            yield store("interrupted", 1)
        if p.fences:
            yield fence()
        if p.looks_again:
            task = yield load("task")
        if task == 1:
            yield store("raised", 1)
        if not p.told_before_look:
            yield store("interrupted", 1)
    yield unlock("mutex")


def check(p: Protocol) -> int:
    words = {"task": 1, "interrupted": 0, "raised": 0, "mutex": 0}
    threads = {"tasks": lambda: tasks(p), "interrupter": lambda: interrupter(p)}
    return explore(words, threads, lambda memory: memory["raised"] == 0)


def test_interrupts_stay_in_their_run():
    assert check(Protocol()) > 10


@pytest.mark.parametrize(
    "broken",
    [
        Protocol(told_before_look=False),
        Protocol(looks_again=False),
        Protocol(fences=False),
        Protocol(under_mutex=False),
    ],
    ids=str,
)
def test_interrupts_reach_other_runs_without(broken):
    with pytest.raises(ProtocolError):
        check(broken)
