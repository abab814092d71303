"""Rank 0's part in what all ranks do together: it hears of everything, compares, and tells what follows.

All ranks do the same things in the same order: agree on variants, compile, open channels, run, close, end. These are
numbered. Each rank tells of each; what differs is *abandoned* on all of them. A rank that an exception keeps from doing
its part tells that instead, or that it leaves what it has begun, so none is waited for. Runs are also stopped and ended
together:

* A rank that is to end a run before its time says so (`Stop`). All ranks then begin no further step, and say how many
  they have begun (`Halted`). All run as many as the furthest one (`Bound`).
* A rank whose lanes have left a run reports how (`Ended`). When all have, all are told how the run ended (`Verdict`).

A rank that finds that the process of another one has ended says so (`Missing`). If that had not said that it ends, all
are told that it is lost (`Lost`), and do nothing together any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from ostinato.ranks.channels import NOTHING_IN_COMMON, Common, End, find_difference, find_mismatch
from ostinato.ranks.host import Slots

COMPILE, OPEN, RUN, PARAMETERS, CLOSE, EXIT = "compile", "open", "run", "parameters", "close", "exit"
WINNERS, GATHER = "winners", "gather"
LEAVE = "leave"  # a rank does not do what the others do


class Offer(NamedTuple):
    """A rank's variants of a task for arrays of some shapes, and the measurements in its store."""

    task: str
    variants: tuple[str, ...]
    """Their names in error messages, the task itself first."""
    source: str | None
    """A digest of their code; None if it cannot be compared between processes."""
    winner: str = ""
    """The fastest one; empty if the rank does not know."""
    record: bytes = b""
    """The measurements, pickled; empty if there are none."""


Offers: TypeAlias = Mapping[str, Offer]
"""By what identifies the task, its arrays and the kind of processor."""


class Winners(NamedTuple):
    """The measurements with which all ranks compile."""

    digest: str
    records: Mapping[str, bytes]
    """By the keys of `Offers`."""


NO_WINNERS = Winners("", {})


@dataclass(frozen=True, slots=True)
class Begun:
    """A rank does something that all ranks do together."""

    number: int
    what: str
    key: object
    """Equal on all ranks."""
    words: str
    """What it is, for people: "replays 3 steps of ..."."""
    ends: Sequence[End] = ()
    failure: str = ""
    """Why this rank cannot do it."""
    program: int = 0
    """The program that it concerns, by the tag of its first channel; 0: none."""
    common: Common = NOTHING_IN_COMMON
    """Of a program, what must be the same on all ranks."""
    slots: Slots | None = None
    """Of a program, the memory for messages that this rank receives from others of its host."""
    offers: Offers | None = None
    """Of a program, the variants that this rank has; None if it was given costs."""
    data: bytes = b""
    """The data of this rank, which all ranks will receive."""


@dataclass(frozen=True, slots=True)
class Left:
    """A rank does not wait any more for what it has begun."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Missing:
    """The process of a rank has ended."""

    rank: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """A rank has died."""

    rank: int | None
    why: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Stop:
    """A rank is to end a run before its time."""

    number: int
    cancels: bool


@dataclass(frozen=True, slots=True)
class Halt:
    """No further step of a run is to begin on a rank, until it has a `Bound`."""

    number: int
    cancels: bool


@dataclass(frozen=True, slots=True)
class Halted:
    """So many steps of a run have begun on a rank."""

    number: int
    steps: int
    met: bool
    """Whether `ostinato.until` said that the last of them is the last one."""


@dataclass(frozen=True, slots=True)
class Bound:
    """All ranks run so many steps of a run."""

    number: int
    steps: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The least failure of a rank."""

    step: int
    index: int
    rank: int
    op: str
    message: str
    cause: bytes
    """The exception, pickled; empty if it cannot be."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended on a rank."""

    number: int
    met: bool
    disagreed: bool
    cancelled: bool
    poisoned: str
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run ended on all ranks together; `contract` says what ranks did differently."""

    number: int
    failure: Failure | None = None
    contract: str = ""
    cancelled: bool = False
    poisoned: str = ""
    lost: Lost | None = None

    @property
    def good(self) -> bool:
        """Whether it ended as it should."""
        return self.failure is None and self.lost is None and not (self.contract or self.cancelled or self.poisoned)


@dataclass(frozen=True, slots=True)
class Agreed:
    """All ranks do the same."""

    number: int
    tag: int = 0
    """Of a program, that of its first channel."""
    opens: bool = False
    """Whether some ranks of the program share memory, so that all say next whether they have opened it."""
    slots: Mapping[int, Slots] = field(default_factory=dict)
    """Of ranks that this one sends to through memory."""
    winners: Winners = NO_WINNERS
    """The variants that all ranks run."""
    data: tuple[bytes, ...] = ()
    """The data of all ranks, by rank."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The ranks do not do the same, or it cannot be done: `what` says which error that is."""

    number: int
    what: str
    why: str
    programs: frozenset[int] = frozenset()
    """Those that cannot run any more: it is unknown which of their messages will still arrive."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A rank asks what time it is on rank 0."""

    number: int


@dataclass(frozen=True, slots=True)
class Time:
    """It is so late on rank 0, in nanoseconds."""

    number: int
    ns: int


ToCoordinator: TypeAlias = Asked | Begun | Left | Missing | Stop | Halted | Ended
Message: TypeAlias = ToCoordinator | Halt | Bound | Verdict | Agreed | Time | Abandoned | Lost


@dataclass(slots=True)
class _Record:
    """Something that ranks do together, as far as it has come."""

    begun: dict[int, Begun] = field(default_factory=dict)
    stopping: bool = False
    cancels: bool = False
    halted: dict[int, Halted] = field(default_factory=dict)
    bound: int | None = None
    ended: dict[int, Ended] = field(default_factory=dict)
    abandoned: Abandoned | None = None


class Coordinator:
    """Compares what ranks say; `send` takes a rank and a message for it."""

    def __init__(self, size: int, most_tag: int, send: Callable[[int, Message], None]) -> None:
        self._size, self._most_tag, self._send = size, most_tag, send
        self._records: dict[int, _Record] = {}
        self._tag = 1
        self._gone: dict[int, int] = {}  # by rank that has ended, the number of that

    def hear(self, rank: int, message: Message) -> None:
        """Take a message from a rank."""
        if isinstance(message, Begun) and message.what == EXIT:
            self._exit(rank, message)
        elif isinstance(message, Begun):
            self._begin(rank, message)
        elif isinstance(message, Missing):
            if message.rank not in self._gone:
                self._tell(Lost(message.rank, f"its process has ended, as rank {rank} found"))
        elif (record := self._records.get(message.number)) is not None and record.abandoned is None:
            if isinstance(message, Left):
                self._abandon(message.number, record, LEAVE, f"rank {rank} left it: {message.why}")
            elif isinstance(message, Stop):
                self._stop(message, record)
            elif isinstance(message, Halted):
                self._halt(rank, message, record)
            elif isinstance(message, Ended):
                self._end(rank, message, record)

    def _tell(self, message: Message) -> None:
        for rank in range(self._size):
            self._send(rank, message)

    def _exit(self, rank: int, message: Begun) -> None:
        self._gone[rank] = message.number
        for number, record in list(self._records.items()):
            if number >= message.number and record.abandoned is None:
                self._miss(number, record)
        if len(self._gone) == self._size:
            self._send(0, Agreed(self._gone[0]))

    def _miss(self, number: int, record: _Record) -> None:
        """Abandon what a rank that has ended cannot take part in."""
        rank, begun = next(iter(record.begun.items()))
        gone = next(each for each, end in self._gone.items() if end <= number)
        self._abandon(number, record, RUN, f"rank {rank} {begun.words}, but rank {gone} has ended without that")

    def _begin(self, rank: int, message: Begun) -> None:
        record = self._records.setdefault(message.number, _Record())
        record.begun[rank] = message
        if record.abandoned is not None:
            if message.program and message.program not in record.abandoned.programs:
                self._abandon(message.number, record, record.abandoned.what, record.abandoned.why)
            else:
                self._forget_if_over(message.number, record)
            return
        first_rank, first = next(iter(record.begun.items()))
        left = next((each for each, begun in record.begun.items() if begun.what == LEAVE), None)
        if left is not None:
            if any(begun.what != LEAVE for begun in record.begun.values()):
                self._abandon(message.number, record, LEAVE, f"rank {left}: {record.begun[left].failure}")
            else:  # none waits
                self._forget_if_over(message.number, record)
        elif message.what != first.what or (message.key != first.key and message.what != PARAMETERS):
            both = sorted([(first_rank, first.words), (rank, message.words)])
            told = ", but ".join(f"rank {each} {words}" for each, words in both)
            self._abandon(message.number, record, RUN, f"{told}; all ranks must do the same things in the same order")
        elif message.key != first.key:
            self._abandon(
                message.number,
                record,
                PARAMETERS,
                f"parameters must have the same values on all ranks, but those of rank {rank} differ from those of "
                f"rank {first_rank}",
            )
        elif any(number <= message.number for number in self._gone.values()):
            self._miss(message.number, record)
        elif len(record.begun) == self._size and message.what != RUN:
            self._agree(message, record)

    def _agree(self, message: Begun, record: _Record) -> None:
        told = [Agreed(message.number)] * self._size
        if message.what == COMPILE:
            ends = [record.begun[rank].ends for rank in range(self._size)]
            most = max(1, *map(len, ends))  # the first tag names the program, even one without channels
            common = [record.begun[rank].common for rank in range(self._size)]
            mismatch = find_difference(common) or find_mismatch(ends)
            if not mismatch and self._tag + most > self._most_tag:
                mismatch = f"this MPI library has {self._most_tag} tags, and earlier programs have used them up"
            if mismatch:
                self._abandon(message.number, record, COMPILE, mismatch)
                return
            slots = {rank: begun.slots for rank, begun in sorted(record.begun.items()) if begun.slots is not None}
            told = [
                Agreed(
                    message.number,
                    self._tag,
                    bool(slots),
                    {to: each for to, each in slots.items() if rank in each.offsets},
                )
                for rank in range(self._size)
            ]
            self._tag += most
        elif message.what == WINNERS:
            winners, problem = choose_winners([record.begun[rank].offers for rank in range(self._size)])
            if problem:
                self._abandon(message.number, record, COMPILE, problem)
                return
            told = [Agreed(message.number, winners=winners)] * self._size
        elif message.what == GATHER:
            told = [Agreed(message.number, data=tuple(record.begun[rank].data for rank in range(self._size)))]
            told *= self._size
        del self._records[message.number]
        for rank, agreed in enumerate(told):
            self._send(rank, agreed)

    def _abandon(self, number: int, record: _Record, what: str, why: str) -> None:
        programs = frozenset(each.program for each in record.begun.values() if each.program and what != PARAMETERS)
        told = record.abandoned = Abandoned(number, what, why, programs)
        for other in self._records.values():  # runs that are under way end, too
            runs = {each.program for each in other.begun.values() if each.what == RUN}
            if other.abandoned is None and runs & programs:
                other.abandoned = told
        self._tell(told)
        for each, other in list(self._records.items()):
            if other.abandoned is told:
                self._forget_if_over(each, other)
        self._halt_next()

    def _forget_if_over(self, number: int, record: _Record) -> None:
        if len(record.begun) == self._size:
            del self._records[number]

    def _stop(self, message: Stop, record: _Record) -> None:
        if message.cancels and not record.cancels and record.stopping:
            self._tell(Halt(message.number, True))  # no rank answers a second time
        record.cancels = record.cancels or message.cancels
        if not record.stopping:
            record.stopping = True
            self._halt_next()

    def _halt_next(self) -> None:
        """Halt the first run that is stopping; those after it wait until it has a bound."""
        for number in sorted(self._records):
            record = self._records[number]
            if record.stopping and record.bound is None and record.abandoned is None:
                if not record.halted:
                    record.halted[-1] = Halted(number, 0, False)  # asked
                    self._tell(Halt(number, record.cancels))
                return

    def _halt(self, rank: int, message: Halted, record: _Record) -> None:
        record.halted[rank] = message
        if record.bound is None and len(record.halted) == self._size + 1:
            record.bound = max(each.steps for each in record.halted.values())
            self._tell(Bound(message.number, record.bound))
            self._halt_next()

    def _end(self, rank: int, message: Ended, record: _Record) -> None:
        record.ended[rank] = message
        if len(record.ended) < self._size:
            return
        del self._records[message.number]
        self._tell(_verdict(message.number, record.ended))
        self._halt_next()


def _verdict(number: int, ended: dict[int, Ended]) -> Verdict:
    met = sorted(rank for rank, each in ended.items() if each.met)
    differ = [rank for rank, each in ended.items() if each.disagreed or (met and not each.met)]
    failures = [each.failure for each in ended.values() if each.failure is not None]
    cancelled = any(each.cancelled for each in ended.values())
    if failures:
        first, *others = sorted(failures, key=lambda failure: (failure.step, failure.index, failure.rank))
        notes = (*first.notes, *(f"also, on rank {each.rank}: {each.message}" for each in others))
        return Verdict(
            number,
            Failure(first.step, first.index, first.rank, first.op, first.message, first.cause, notes),
            cancelled=cancelled,
        )
    if differ and not cancelled:
        here = met[0] if met else differ[0]
        other = next(rank for rank in [*differ, *sorted(ended)] if rank != here)
        return Verdict(
            number,
            contract=f"until() ended the run on rank {here} in another step than on rank {other}: its flag must agree "
            "between ranks",
        )
    poisoned = next((each.poisoned for _, each in sorted(ended.items()) if each.poisoned), "")
    return Verdict(number, cancelled=cancelled, poisoned="" if cancelled else poisoned)


def choose_winners(ranks: Sequence[Offers | None]) -> tuple[Winners, str]:
    """Return the measurements with which all ranks compile, and the problem; empty if there is none.

    `ranks`: the offers of each rank; None where it was given costs instead of a store.

    Examples
    --------
    >>> fast = Offer("relax", ("relax", "fast"), None, "fast", b"measured")
    >>> winners, problem = choose_winners([{"key": fast._replace(winner="", record=b"")}, {"key": fast}])
    >>> winners.records, problem
    ({'key': b'measured'}, '')
    """
    found: dict[str, tuple[int, Offer]] = {}
    for rank, offers in enumerate(ranks):
        for key, offer in (offers or {}).items():
            if offer.record:
                found.setdefault(key, (rank, offer))
    for key, (first, chosen) in found.items():
        for rank, offers in enumerate(ranks):
            problem = _find_problem(first, chosen, rank, None if offers is None else offers.get(key, chosen))
            if problem:
                return NO_WINNERS, problem
    if not found:
        return NO_WINNERS, ""
    digest = blake2b(digest_size=16)
    for key, (_, chosen) in sorted(found.items()):
        digest.update(repr((key, chosen.winner, chosen.record)).encode())
    records = {key: chosen.record for key, (_, chosen) in found.items()}
    return Winners(digest.hexdigest(), records), ""


def _find_problem(first: int, chosen: Offer, rank: int, own: Offer | None) -> str:
    """Say why a rank cannot run the fastest variant of another rank; return "" if it can."""
    told = f"{chosen.task!r}: by the store of rank {first}, {chosen.winner or 'no variant'} is the one to run"
    if own is None:
        return f"{told}, but rank {rank} was given costs=; give all ranks the same costs="
    if chosen.winner not in ("", *own.variants):
        return f"{told}, but rank {rank} has {', '.join(own.variants)}; declare the same variants on all ranks"
    if own.variants != chosen.variants:
        both = (f"rank {at} has {', '.join(each.variants)}" for at, each in ((first, chosen), (rank, own)))
        return f"{told}, but {' and '.join(both)}; declare the same variants on all ranks, in the same order"
    if own.source != chosen.source and None not in (own.source, chosen.source):
        return f"{told}, but the code of its variants on rank {rank} differs; install the same version for all ranks"
    return ""
