"""What each candidate of the chaos does, how long it takes, and so what must become of it: the oracle.

Everything follows from a seed and the candidate's number, so that the processes that take part need not be told.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import NamedTuple

SECONDS = 5.0
"""What a candidate may take: each needs milliseconds, but of cores that dozens share."""

FASTEST = 200_000
"""ns of the winner; the next is 30 % slower."""

CLAIMED = 1_000
"""ns that failing candidates claim before they fail: whoever believes them crowns the wrong one."""

DEFAULT = 1_500_000
"""ns of candidate 0, the default and the reference."""

FAULTS = {"crash": 0.05, "hang": 0.02, "fork": 0.01, "garbage": 0.01}
"""Shares of all candidates."""

_HANGS = (*("sleep", "stop", "deaf") * 3, "spin")  # few that spin: there are two cores for all of them

WAYS = {
    ("crash", "call"): ("segv", "abort", "kill", "exit", "raise"),
    ("crash", "command"): ("segv", "abort", "kill", "exit"),
    ("hang", "call"): _HANGS,
    ("hang", "command"): _HANGS,
    ("fork", "call"): ("child", "daemon", "many"),
    ("fork", "command"): ("child", "daemon", "many"),
    ("garbage", "call"): ("printed", "reported"),
    ("garbage", "command"): ("bytes", "nan", "negative", "zero", "nothing", "json", "flood"),
    ("good", "call"): ("good",),
    ("good", "command"): ("line", "json-lines"),
}

_OK = frozenset({"ok", "raced"})
_STATUSES = {"crash": {"crash"}, "hang": {"hang_killed"}, "fork": _OK, "good": _OK}
_REASONS = {"segv": "SIGSEGV", "abort": "SIGABRT", "kill": "SIGKILL", "exit": "exit status 3", "raise": "RuntimeError"}


class Part(NamedTuple):
    """What one candidate does.

    Attributes
    ----------
    number
        Which one; 0 is the default.
    runs
        ``"call"`` or ``"command"``.
    fault
        One of `FAULTS`, or ``"good"``.
    way
        How, one of `WAYS`.
    ns
        How long it takes, or says that it took.
    """

    number: int
    runs: str
    fault: str
    way: str
    ns: int

    @property
    def statuses(self) -> frozenset[str]:
        """How it may end. Who calls a callable has its time whatever that prints; a command is taken at its word."""
        if self.fault == "garbage":
            return _OK if self.runs == "call" else frozenset({"bad_output"})
        return frozenset(_STATUSES[self.fault])

    @property
    def reason(self) -> str:
        """What its message must say."""
        return _REASONS[self.way] if self.fault == "crash" else ""


def winner(seed: int, candidates: int) -> int:
    """Return the number of the fastest candidate: with an even seed it is a command, with an odd one a callable."""
    return Random(f"{seed}/winner").randrange(1, candidates)


@cache
def part(seed: int, candidates: int, number: int) -> Part:
    """Return what a candidate does."""
    runs = ("command", "call")[seed % 2]
    if number == 0:
        return Part(0, "call", "good", "good", DEFAULT)
    if number == winner(seed, candidates):
        return Part(number, runs, "good", WAYS["good", runs][0], FASTEST)
    random = Random(f"{seed}/{number}")
    runs = random.choice(("call", "command"))
    drawn = random.random()
    fault = "good"
    for name, share in FAULTS.items():
        if drawn < share:
            fault = name
            break
        drawn -= share
    return Part(number, runs, fault, random.choice(WAYS[fault, runs]), round(FASTEST * random.uniform(1.3, 10)))
