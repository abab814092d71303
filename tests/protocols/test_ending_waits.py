"""A wait inside a task ends with its event or an abort. The run ends after the task, and tells how the task ended.

A task that may block waits for an event while its run is aborted. Mirrors `BlockingTaskOp::advance`
(python/external.cpp), `EndingWaits` and `PythonThread::check` (python/thread.cpp), `wait_until_done` (caller.cpp),
`Place::happened` and `Program::abort`. The lane passes through two runs of one step, in each of which the same task
waits; in run r its signal is to reach r. One thread runs both tasks.

A thread that waits looks at the flag now and then, so nobody has to wake it: here it looks all the time. What becomes
of signals and listeners otherwise is `external_events`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, choose, commit_wait, explore, load, lock, store, unlock


@dataclass(frozen=True)
class Protocol:
    firm: bool = True  # an abort does not end the lane's wait for the task
    wait_looks: bool = True  # whether the run was aborted
    flag_of_own_run: bool = True  # the thread forgets the flag of a run with the task
    asks_why: bool = True  # CancelledError of a run that was not aborted is a failure
    told_first: bool = True  # how the task ended, before its event happens
    takes_left: bool = True  # the lane, so that it holds for one step only


def aborter(p: Protocol) -> Thread:
    """`Program::abort` of the first run."""
    yield store("run 1 aborted", 1)
    yield lock("signal")
    run = yield load("run_index")
    firm = yield load("firm")
    armed = yield load("armed")
    reached = yield load("value")
    if run == 1 and not firm and reached < armed:
        yield store("value", armed)
    yield unlock("signal")


def lane(p: Protocol) -> Thread:
    for run in (1, 2):
        yield store("run_index", run)
        aborted = yield load(f"run {run} aborted")
        if aborted:
            yield store(f"outcome of run {run}", "skipped")
            continue
        if p.firm:
            yield lock("signal")
            yield store("firm", 1)
            yield unlock("signal")
        yield store("job", run)
        yield from wait_for_task(run)
        at_work = yield load("at work")
        assert not at_work, f"run {run} ends while its task is at work"
        left = yield load("left")
        failure = yield load("failure")
        if left and p.takes_left:
            yield store("left", 0)
        if failure:
            yield store("failure", 0)
        yield store(f"outcome of run {run}", "skipped" if left else "failed" if failure else "ran")


def wait_for_task(run: int) -> Thread:
    """`Place::happened`, again and again."""
    while True:
        ended = yield load(f"task {run} ended")
        if ended:
            return
        yield lock("signal")
        aborted = yield load(f"run {run} aborted")
        firm = yield load("firm")
        if aborted and not firm:
            yield unlock("signal")
            return
        yield store("armed", run)
        yield unlock("signal")
        reached = yield load("value")
        while reached < run:
            reached = yield load("value")


def pool(p: Protocol, raises: bool) -> Thread:
    flag = 0  # the run whose abort ends waits of this thread; 0: none
    job = 0
    while True:
        yield commit_wait("job", job)
        job = yield load("job")
        yield store("at work", 1)
        if flag == 0:
            flag = job
        cancelled = yield from task(p, job, flag, raises)
        if p.flag_of_own_run:
            flag = 0
        yield store("at work", 0)
        if p.told_first:
            yield from tell(p, job, cancelled)
        yield store(f"task {job} ended", 1)
        yield lock("signal")
        yield store("value", job)
        yield unlock("signal")
        if not p.told_first:
            yield from tell(p, job, cancelled)


def task(p: Protocol, run: int, flag: int, raises: bool) -> Thread:
    """Whether it ends with CancelledError: since its wait does, or on its own account."""
    if raises and run == 1:
        own = yield choose(2)
        if own:
            return True
    while True:
        happened = yield load(f"event {run}")
        if happened:
            return False
        if p.wait_looks:
            aborted = yield load(f"run {flag} aborted")
            if aborted:
                return True


def tell(p: Protocol, run: int, cancelled: bool) -> Thread:
    aborted = 1
    if p.asks_why:
        aborted = yield load(f"run {run} aborted")
    if cancelled and aborted:
        yield store("left", 1)
    elif cancelled:
        yield store("failure", 1)


def trigger(run: int) -> Thread:
    yield store(f"event {run}", 1)


def check(p: Protocol, aborts: bool, happens: bool, raises: bool = False) -> int:
    """`aborts`: the first run is aborted. `happens`: the event that its task waits for does. `raises`: or the task
    raises CancelledError on its own account.
    """
    words = {"value": 0, "armed": 0, "signal": 0, "run_index": 0, "firm": 0, "job": 0, "at work": 0}
    words |= {"left": 0, "failure": 0}
    for run in (1, 2):
        words |= {f"run {run} aborted": 0, f"event {run}": 0, f"task {run} ended": 0}
        words |= {f"outcome of run {run}": None}
    threads = {"lane": lambda: lane(p), "pool": lambda: pool(p, raises), "event 2": lambda: trigger(2)}
    if happens:
        threads["event 1"] = lambda: trigger(1)
    if aborts:
        threads["aborter"] = lambda: aborter(p)
    outcomes = {"ran"} if happens else set()
    if aborts:
        outcomes.add("skipped")
    if raises:
        outcomes.add("failed")

    def good(memory):
        return memory["outcome of run 1"] in outcomes and memory["outcome of run 2"] == "ran"

    return explore(words, threads, good)


@pytest.mark.parametrize(
    ("aborts", "happens", "raises"),
    [(False, True, False), (True, False, False), (True, True, False), (False, True, True), (True, False, True)],
)
def test_runs_end_after_their_tasks(aborts, happens, raises):
    assert check(Protocol(), aborts, happens, raises) > 10


@pytest.mark.parametrize(
    ("broken", "aborts", "happens", "raises"),
    [
        (Protocol(firm=False), True, True, False),
        (Protocol(wait_looks=False), True, False, False),
        (Protocol(flag_of_own_run=False), True, False, False),
        (Protocol(asks_why=False), False, True, True),
        (Protocol(told_first=False), True, False, False),
        (Protocol(takes_left=False), True, False, False),
    ],
    ids=str,
)
def test_runs_end_wrongly_or_never_without(broken, aborts, happens, raises):
    with pytest.raises(ProtocolError):
        check(broken, aborts, happens, raises)
