"""A completion lasts until the device is done, whatever happens to its run, and the device's word finds it there.

A device calls back while the lane that waits for it goes on, its run is aborted, and the program ends. Mirrors
`FenceOp::wait`, `completed` and `fences_settled` (fences.cpp), `record_token` (device_ops.cpp), and the
part of `Program::abort` that looks at signals. The issue lane enqueues one piece of work a step, and records it in a
notify of two tokens; the completion's lane is lazy where told so: it waits in every second step, and before it ends.

In step s the signal is to reach s + 1. That who sleeps is woken by a publish is `publish_and_park`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, add, explore, load, lock, store, swap, unlock

RING = 2


@dataclass(frozen=True)
class Protocol:
    window: bool = True  # the issue lane is never so far ahead that it records a token that is still to be looked at
    firm: bool = True  # an abort does not end the wait
    holds: bool = True  # what is armed keeps its signal
    lets_go_first: bool = True  # the callback takes what keeps the signal before it lets the lane go on
    code_first: bool = True  # likewise, it says how the work ended before that
    settles: bool = True  # a lazy completion waits before its lane ends


def issue_lane(p: Protocol, steps: int) -> Thread:
    for step in range(steps):
        if p.window and step >= RING:
            gone = yield load("completed")
            while gone <= step - RING:
                gone = yield load("completed")
        yield store(f"token {step % RING}", step)
        yield store("issued", step + 1)


def device(p: Protocol, fails: int | None) -> Thread:
    """Does the work in order; calls back when it was asked to and the work is done, in either order."""
    done, told = 0, 0
    while True:
        asked = yield load("asked")
        if told < asked <= done:
            told = asked
            yield from called(p, int(asked - 1 == fails))
        over = yield load("over")
        if over:
            return
        issued = yield load("issued")
        if done < issued:
            done += 1
            yield store("done", done)


def called(p: Protocol, code: int) -> Thread:
    mine = 0
    if p.lets_go_first:
        mine = yield swap("held", 0)
    if p.code_first:
        yield store("code", code)
    armed = yield load("armed")
    yield lock("signal")
    freed = yield load("freed")
    assert not freed, "the signal is gone when it is reached"
    yield store("value", armed)
    if not p.lets_go_first:
        mine = yield swap("held", 0)
    freed = yield load("freed")
    assert not freed, "the signal is gone while it is published"
    yield unlock("signal")
    if not p.code_first:
        yield store("code", code)
    if mine:
        yield from let_go()


def let_go() -> Thread:
    count = yield add("references", -1)
    if count == 1:
        yield store("freed", 1)


def wait(p: Protocol, step: int) -> Thread:
    token = yield load(f"token {step % RING}")
    assert token == step, f"the token of step {step} stands for {token}"
    yield store("armed", step + 1)
    if p.holds:
        yield add("references", 1)
        before = yield swap("held", 1)
        if before:
            yield from let_go()
    yield store("asked", step + 1)
    value = yield load("value")
    while value < step + 1:
        value = yield load("value")
    done = yield load("done")
    assert done >= step + 1, f"step {step} is completed before the device has done it"
    code = yield swap("code", 0)
    if code:
        yield add("failures", 1)


def completion_lane(p: Protocol, steps: int, lazy: bool) -> Thread:
    for step in range(steps):
        issued = yield load("issued")
        while issued <= step:
            issued = yield load("issued")
        if not lazy or step % 2 == 1:
            yield from wait(p, step)
        yield store("completed", step + 1)
    if lazy and steps % 2 == 1 and p.settles:
        yield from wait(p, steps - 1)
    done = yield load("done")
    assert done == steps, "the run ends before the device has done all of it"
    yield from let_go()  # the program ends
    yield store("over", 1)


def aborter(p: Protocol) -> Thread:
    yield lock("signal")
    armed = yield load("armed")
    value = yield load("value")
    if value < armed and not p.firm:
        yield store("value", armed)
    yield unlock("signal")


def check(p: Protocol, steps: int, lazy: bool = False, fails: int | None = None, aborts: bool = False) -> int:
    """All that the device was given is done when the program ends, and failures that were waited for are known."""
    words = dict.fromkeys(("issued", "completed", "done", "asked", "armed", "value", "code", "signal"), 0)
    words |= dict.fromkeys(("held", "freed", "failures", "over"), 0) | {"references": 1}
    words |= {f"token {i}": -1 for i in range(RING)}
    threads = {
        "issue lane": lambda: issue_lane(p, steps),
        "fence": lambda: completion_lane(p, steps, lazy),
        "device": lambda: device(p, fails),
    }
    if aborts:
        threads["aborter"] = lambda: aborter(p)

    def good(memory):
        return memory["failures"] == (0 if fails is None else 1) and memory["freed"] == 1

    return explore(words, threads, good)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("fails", [None, 1])
def test_completions_end_with_the_work(lazy, fails):
    assert check(Protocol(), 3 if lazy else 2, lazy, fails) > 100


@pytest.mark.parametrize("lazy", [False, True])
def test_an_abort_does_not_end_them_before(lazy):
    assert check(Protocol(), 1, lazy, aborts=True) > 100


def test_tokens_are_used_again_when_nobody_looks_at_them():
    assert check(Protocol(), 3) > 100
    with pytest.raises(ProtocolError, match="stands for"):
        check(Protocol(window=False), 3)


def test_an_abort_ends_them_too_early_where_they_are_not_firm():
    with pytest.raises(ProtocolError, match="before the device has done it"):
        check(Protocol(firm=False), 1, aborts=True)


@pytest.mark.parametrize("broken", [Protocol(holds=False), Protocol(lets_go_first=False)], ids=str)
def test_the_signal_is_gone_too_early_without(broken):
    with pytest.raises(ProtocolError, match="the signal is gone"):
        check(broken, 2)


def test_failures_are_missed_where_the_code_comes_late():
    with pytest.raises(ProtocolError, match="bad end"):
        check(Protocol(code_first=False), 2, fails=0)


def test_a_run_ends_too_early_where_lazy_completions_do_not_settle():
    with pytest.raises(ProtocolError, match="before the device has done all"):
        check(Protocol(settles=False), 1, lazy=True)
