"""What the caller and the agents of hosts tell each other; each message arrives once and in order.

An *exchange* carries all messages of one side that the other has not acknowledged, and returns the same of the other
side. It may be lost, repeated, late or overtaken by another one, and can always be tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ostinato.tune.candidate import Candidate
from ostinato.tune.outcome import Outcome
from ostinato.tune.policy import Policy


class Data(NamedTuple):
    """A file or a directory of files that goes with a search: its name, and bytes by path below it; a file's is ""."""

    name: str
    files: tuple[tuple[str, bytes], ...]


def read(path: str) -> Data:
    """Return what a file is, or a directory with all files below it."""
    top = Path(path)
    files = [each for each in sorted(top.rglob("*")) if each.is_file()] if top.is_dir() else [top]
    return Data(
        top.name, tuple(("" if each is top else str(each.relative_to(top)), each.read_bytes()) for each in files)
    )


class Begin(NamedTuple):
    """A search begins."""

    op: str
    key: dict[str, Any]
    verify: str | None
    policy: Policy
    turn: Policy
    seconds: float
    data: Data | None


class Start(NamedTuple):
    """A candidate is to be measured on a device; `source` is the digest of its code on the caller's host."""

    device: str
    number: int
    what: str
    candidate: Candidate
    bound: float | None
    source: str


class Order(NamedTuple):
    """Something else that a device is to do: ``"lease"``, ``"release"``, ``"cancel"``, ``"forget"`` or ``"close"``."""

    device: str
    what: str


class End(NamedTuple):
    """The search is over."""


class Finished(NamedTuple):
    """The outcome of a candidate, how many seconds it took, and when it ended by the clock of the host."""

    device: str
    number: int
    outcome: Outcome
    seconds: float
    ended: float


class Leased(NamedTuple):
    """The device is leased for the search, or somebody else has it: `holder`."""

    device: str
    holder: str


class DeviceLost(NamedTuple):
    """A device cannot be used any more."""

    device: str
    why: str


class Failed(NamedTuple):
    """The search cannot go on: what `TuningError` says."""

    why: str


class Unfit(NamedTuple):
    """Nothing can be measured on this host for now, such as when its disk is full."""

    why: str


class Ended(NamedTuple):
    """Nothing of the search is left there."""


Command: TypeAlias = Begin | Start | Order | End
Event: TypeAlias = Finished | Leased | DeviceLost | Failed | Unfit | Ended
CLOSED = -1
"""In place of an acknowledgement: the agent has ended."""
Numbered: TypeAlias = "tuple[int, Any]"


class Outbox:
    """The messages of one side that the other one may not have yet.

    Examples
    --------
    >>> outbox = Outbox()
    >>> outbox.put("a"), outbox.put("b")
    (None, None)
    >>> outbox.acknowledge(1)
    >>> outbox.waiting
    [(2, 'b')]
    """

    def __init__(self) -> None:
        self._number = 0
        self.waiting: list[Numbered] = []

    def put(self, message: Any) -> None:
        """Add a message."""
        self._number += 1
        self.waiting.append((self._number, message))

    def acknowledge(self, number: int) -> None:
        """Note that the other side has all messages up to one."""
        if self.waiting and self.waiting[0][0] <= number:
            self.waiting = [each for each in self.waiting if each[0] > number]


class Inbox:
    """Puts the messages of the other side in order, and drops what it has had.

    Examples
    --------
    >>> inbox = Inbox()
    >>> inbox.take([(2, "b")]), inbox.take([(1, "a"), (2, "b")]), inbox.last
    ([], ['a', 'b'], 2)
    """

    def __init__(self) -> None:
        self.last = 0
        """The number of the last message before which none is missing."""
        self._early: dict[int, Any] = {}

    def take(self, messages: Sequence[Numbered]) -> list[Any]:
        """Return what can be read now."""
        self._early.update((number, message) for number, message in messages if number > self.last)
        ready = []
        while self.last + 1 in self._early:
            self.last += 1
            ready.append(self._early.pop(self.last))
        return ready
