"""This rank's part in what all ranks do together, and the thread that hears what other ranks say."""

from __future__ import annotations

import contextlib
import logging
import pickle
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, cast
from weakref import WeakValueDictionary

from ostinato import _core
from ostinato.errors import ContractError, GraphError, RankLost, describe_error
from ostinato.ranks.channels import Common, End
from ostinato.ranks.coordinator import (
    CLOSE,
    COMPILE,
    EXIT,
    GATHER,
    LEAVE,
    OPEN,
    PARAMETERS,
    RUN,
    WINNERS,
    Abandoned,
    Agreed,
    Asked,
    Begun,
    Bound,
    Coordinator,
    Ended,
    Halt,
    Halted,
    Left,
    Lost,
    Message,
    Missing,
    Offers,
    Stop,
    Time,
    ToCoordinator,
    Verdict,
    Winners,
)
from ostinato.ranks.host import Slots

_log = logging.getLogger("ostinato")
_ERRORS = {COMPILE: GraphError, PARAMETERS: ValueError}
_EXIT_SECONDS = 5.0  # for the last messages to leave this process
_LOST_EXIT_SECONDS = 0.5  # the same where a rank has died: what is meant for it does not leave


_CLOCK_LOOKS, _CLOCK_SECONDS = 16, 2.0  # at the clock of rank 0, and for how long an answer is waited for


class Shared(Protocol):
    """A program that several ranks run together, as far as the ranks' agreement is concerned."""

    key: int
    """Equal on all ranks, and of this program only."""

    def in_flight(self) -> list[_core.Run]:
        """Return the runs that have not ended."""

    def report(self, run: _core.Run, number: int) -> Ended:
        """Return how a run ended on this rank."""

    def judge(self, verdict: Verdict) -> None:
        """Take note of how a run ended on all ranks together."""

    def abandon(self, why: str) -> None:
        """Wait for no more messages, and take no more runs."""


class _Entry:
    """Something that this rank does together with others."""

    def __init__(self, begun: Begun, run: _core.Run | None = None, program: Shared | None = None) -> None:
        self.begun, self.run, self.program = begun, run, program
        self.number = 0
        self.left = False  # the lanes have left the run
        self.answered = threading.Event()
        self.answer: Agreed | None = None
        self.error: Exception | None = None


JudgeFailure: TypeAlias = Callable[[int], int | None]
"""See `Agreement`."""


class Agreement:
    """What this rank does together with others, in numbered steps: see `ostinato.ranks.coordinator`.

    Any thread. Handlers run on a thread of its own, which also makes progress with messages where nobody else does.

    `judge_failure` gets the code of a transport that has failed, and returns the rank that has died, or None if it is
    not known which one. Where none has, it does not return.
    """

    def __init__(
        self,
        messenger: _core.messages.Messenger,
        rank: int,
        size: int,
        most_tag: int,
        judge_failure: JudgeFailure,
    ) -> None:
        self._messenger, self._rank, self._size = messenger, rank, size
        self._judge_failure = judge_failure
        self._lock = threading.RLock()
        self._number = 0  # of what was done last
        self._failed = -1  # the number of the last step that ended with an error on all ranks
        self._programs: WeakValueDictionary[int, Shared] = WeakValueDictionary()
        self._lost: Lost | None = None
        self._entries: dict[int, _Entry] = {}
        self._early: dict[int, list[Message]] = {}  # what concerns things that this rank has not begun
        self._own: deque[tuple[bool, Message]] = deque()  # from this rank to itself: whether it is for the coordinator
        self._coordinator = Coordinator(size, most_tag, self._tell) if rank == 0 else None
        self._winners = ""  # a digest of the last agreed variants
        self.ended = False
        self._times: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()  # on rank 0, and when that arrived here
        self._thread = threading.Thread(target=self._serve, name="ostinato ranks", daemon=True)
        self._thread.start()
        _all.append(self)

    def agree_on_winners(self, offers: Offers | None) -> Winners:
        """Return the variants that all ranks run; raise `GraphError` if a rank cannot. `offers`: see `choose_winners`.

        Each rank says it before it compiles a program.
        """
        self._winners = ""
        agreed = self._together(Begun(0, WINNERS, None, "compiles a program", offers=offers))
        self._winners = agreed.winners.digest
        return agreed.winners

    def compile(self, ends: Sequence[End], common: Common, slots: Slots | None) -> Agreed:
        """Return how to open a program's channels; raise `GraphError` if ranks' programs do not fit together."""
        common = common._replace(winners=self._winners)
        return self._together(Begun(0, COMPILE, None, "compiles a program", tuple(ends), common=common, slots=slots))

    def open(self) -> None:
        """Say that this rank has opened a program's channels, and wait for the others; raise if one could not."""
        self._together(Begun(0, OPEN, None, "opens the channels of a program"))

    @contextlib.contextmanager
    def part(self, program: Shared | None = None) -> Iterator[None]:
        """Do this rank's part in something: if an exception ends it, the other ranks do not wait for the rest.

        They raise `GraphError` where they compile, or else `ContractError`. Not if what was done last in this part
        ended with an error on all ranks: that is why they, too, do not go on.
        """
        first = self._number + 1
        try:
            yield
        except BaseException as error:
            told = str(error) if isinstance(error, GraphError) else describe_error(error)
            with self._lock:
                if not (self.ended or self._lost is not None or self._number == self._failed >= first):
                    key = 0 if program is None else program.key
                    entry = _Entry(Begun(0, LEAVE, None, f"raised {told}", failure=told, program=key))
                    self._enter(entry)
                    self._failed = entry.number
                    self._hear_own()
            raise

    def add(self, program: Shared) -> None:
        """Take note of a program that was compiled."""
        with self._lock:
            self._programs[program.key] = program

    def gather(self, data: bytes, words: str) -> Sequence[bytes]:
        """Return the data that each rank gives, by rank."""
        return self._together(Begun(0, GATHER, None, words, data=data)).data

    def compare_clocks(self) -> tuple[int, int]:
        """Return how many ns the clock of rank 0 is ahead of this rank's, and by how much that may be wrong at most.

        The answer that comes soonest tells: it was given between the question and its arrival (Cristian 1989).
        """
        best, error = 0, -1
        for look in range(_CLOCK_LOOKS):
            begin = time.monotonic_ns()
            with self._lock:
                self._tell(0, Asked(look))
                self._hear_own()
            try:
                there, arrived = self._times.get(timeout=_CLOCK_SECONDS)
            except queue.Empty:
                break
            if error < 0 or arrived - begin < 2 * error:
                best, error = there - (begin + arrived) // 2, (arrived - begin) // 2
        return best, error

    def check_parameters(self, program: Shared, digest: bytes, words: str) -> None:
        """Raise `ValueError` if the parameters of a run differ between ranks."""
        self._together(Begun(0, PARAMETERS, digest, words, program=program.key))

    def close(self, program: Shared, words: str, wait: bool) -> None:
        """Close a program; wait until all ranks do, and raise `ContractError` if they do something else."""
        if not _ending and self._lost is None:
            self._together(Begun(0, CLOSE, program.key, words, program=program.key), wait)

    def begin(self, submit: Callable[[], _core.Run], program: Shared, key: object, words: str) -> _core.Run:
        """Submit a run that all ranks take part in."""
        entry = _Entry(Begun(0, RUN, key, words, program=program.key), program=program)
        with self._lock:
            self.check()
            try:
                entry.run = run = submit()
                self._enter(entry)
                self._hear_own()
                return run
            except BaseException:
                # Ctrl-C may come between any two of these: the others take part in a run that was submitted.
                found = [run for run in program.in_flight() if not run.sequence]
                if found:
                    entry.run = found[0]
                    self._enter(entry)
                    entry.run.cancel()
                    self._failed = entry.number  # on all ranks, soon
                    self._hear_own()
                raise

    def exit(self) -> None:
        """The process ends: nothing more is done together. Rank 0 waits for all others."""
        with self._lock:
            if self.ended:
                return
            self.ended = True
            entry = _Entry(Begun(0, EXIT, None, "ends"))
            if self._lost is None:
                self._enter(entry)
                self._hear_own()
        if self._coordinator is not None and self._lost is None:
            entry.answered.wait()
        end = time.monotonic() + (_EXIT_SECONDS if self._lost is None else _LOST_EXIT_SECONDS)
        while self._messenger.sending and time.monotonic() < end:
            self._messenger.progress()
            time.sleep(1e-4)
        self._messenger.close()
        self._thread.join(_EXIT_SECONDS)  # it must not come back into Python when the interpreter ends

    def _together(self, begun: Begun, wait: bool = True) -> Agreed:
        entry = _Entry(begun)
        self.check()
        try:
            with self._lock:
                self._enter(entry)
                self._hear_own()
            if not wait:
                return Agreed(entry.number)
            entry.answered.wait()
        except BaseException as error:
            # Interrupted. All ranks hear what becomes of it, this one as well: soon, as it says that it leaves.
            with self._lock:
                self._enter(entry)
                if begun.what != CLOSE:
                    self._tell(0, Left(entry.number, describe_error(error)))
                self._hear_own()
            if begun.what != CLOSE:
                entry.answered.wait()
            raise
        if entry.error is not None:
            raise entry.error
        return cast(Agreed, entry.answer)

    def check(self) -> None:
        """Raise if nothing can be done together any more."""
        if self.ended:
            raise RuntimeError("this process is about to end: nothing can be done together with other ranks any more")
        if self._lost is not None:
            raise lost_error(self._lost)

    def _enter(self, entry: _Entry) -> None:
        """Give it a number and tell of it: all of that, even if Ctrl-C comes between. Under the lock."""
        try:
            self._number_and_tell(entry)
        except BaseException:
            self._number_and_tell(entry)
            raise

    def _number_and_tell(self, entry: _Entry) -> None:
        number = entry.number = entry.number or self._number + 1
        if entry.run is not None:
            entry.run.sequence = number
        if entry.begun.what != LEAVE and not entry.answered.is_set():
            self._entries[number] = entry
        if self._lost is not None:  # since it was checked
            self._lose_entry(number, entry, self._lost)
            return
        if self._number < number:
            self._tell(0, replace(entry.begun, number=number))
            self._number = number
        for message in self._early.pop(number, ()):
            self._own.append((False, message))

    def _tell(self, rank: int, message: Message) -> None:
        """Send a message to the coordinator, or from it to a rank."""
        to_coordinator = isinstance(message, ToCoordinator)
        if rank == self._rank:
            self._own.append((to_coordinator, message))
        else:
            self._messenger.post(rank, pickle.dumps((to_coordinator, message)))

    def _hear_own(self) -> None:
        while self._own:
            self._hear(self._rank, *self._own.popleft())

    def _serve(self) -> None:
        while (news := self._messenger.wait()) is not None:
            with self._lock:
                for source, what, run in cast(list[tuple[int, Any, Any]], news):
                    try:
                        if run is not None:
                            self._hear_of_run(run, what)
                        elif isinstance(what, bytes):
                            self._hear(source, *pickle.loads(what))
                        elif what is None:
                            self._miss(source)
                        else:
                            self._lose(Lost(self._judge_failure(what), "MPI found that its process has failed"))
                        self._hear_own()
                    except Exception:
                        _log.exception("rank %d could not handle what it was told; ranks may wait for ever", self._rank)
            del news

    def _hear_of_run(self, run: _core.Run, left: bool) -> None:
        number = run.sequence
        entry = self._entries.get(number)
        if entry is None or entry.program is None:
            return
        if not left:
            self._tell(0, Stop(number, run.cancelled))
            return
        entry.left = True
        if entry.error is not None:
            self._end(number, entry, good=False)
        else:
            self._tell(0, entry.program.report(run, number))

    def _hear(self, source: int, to_coordinator: bool, message: Message) -> None:
        if isinstance(message, Asked):
            self._tell(source, Time(message.number, time.monotonic_ns()))
            return
        if isinstance(message, Time):
            self._times.put((message.ns, time.monotonic_ns()))
            return
        if to_coordinator and self._lost is not None:
            return  # it is known what becomes of everything
        if to_coordinator:
            assert self._coordinator is not None
            self._coordinator.hear(source, message)
            return
        if isinstance(message, Lost):
            self._lose(message)
            return
        if isinstance(message, Abandoned):
            self._abandon_programs(message)
        number = message.number
        if number > self._number:
            self._early.setdefault(number, []).append(message)
        elif (entry := self._entries.get(number)) is not None:
            self._obey(number, entry, message)

    def _obey(self, number: int, entry: _Entry, message: Message) -> None:
        run, program = entry.run, entry.program
        if isinstance(message, Abandoned):
            self._failed = max(self._failed, number)
            if run is None:
                del self._entries[number]
                entry.error = _error_of(message, entry.begun.what)
                entry.answered.set()
        elif isinstance(message, Agreed):
            del self._entries[number]
            entry.answer = message
            entry.answered.set()
        elif run is None or program is None or entry.error is not None:
            return
        elif isinstance(message, Halt):
            steps = run.halt(message.cancels)
            self._tell(0, Halted(number, steps, run.met))
        elif isinstance(message, Bound):
            run.settle(message.steps)
        elif isinstance(message, Verdict):
            if not message.good:
                self._failed = max(self._failed, number)
            program.judge(message)
            self._end(number, entry, message.good)

    def _abandon_programs(self, message: Abandoned) -> None:
        for key in message.programs:
            program = self._programs.get(key)
            if program is not None:
                program.abandon(message.why)
        for number, entry in list(self._entries.items()):
            if entry.program is not None and entry.program.key in message.programs:
                self._break_off(number, entry, Verdict(number, contract=message.why))

    def _break_off(self, number: int, entry: _Entry, verdict: Verdict) -> None:
        """End a run at once: it is unknown which messages will still arrive."""
        if entry.error is not None or entry.run is None or entry.program is None:
            return
        entry.error = ContractError(verdict.contract)
        entry.program.abandon(verdict.contract)
        entry.program.judge(verdict)
        entry.run.settle(entry.run.halt(True))
        if entry.left:
            self._end(number, entry, good=False)

    def _miss(self, rank: int) -> None:
        """The process of a rank of this host has ended: the coordinator knows whether that was to be."""
        if self._lost is not None or self.ended:
            return
        if rank != 0:
            self._tell(0, Missing(rank))
            return
        lost = Lost(0, f"its process has ended, as rank {self._rank} found")  # the coordinator ends last
        for each in range(1, self._size):
            self._tell(each, lost)

    def _lose(self, lost: Lost) -> None:
        if self._lost is not None:
            return
        self._lost = lost
        for number, entry in list(self._entries.items()):
            self._lose_entry(number, entry, lost)

    def _lose_entry(self, number: int, entry: _Entry, lost: Lost) -> None:
        if entry.run is None:
            del self._entries[number]
            entry.error = lost_error(lost)
            entry.answered.set()
        else:
            self._break_off(number, entry, Verdict(number, contract=lost.why, lost=lost))

    def _end(self, number: int, entry: _Entry, good: bool) -> None:
        del self._entries[number]
        cast(_core.Run, entry.run).agree(not good)


def lost_error(lost: Lost) -> RankLost:
    """Return the error to raise when a rank has died."""
    who = "a rank" if lost.rank is None else f"rank {lost.rank}"
    error = RankLost(
        f"{who} was lost: {lost.why}. These ranks can do nothing together any more; programs of this process alone can "
        "run, and, where the MPI library repairs communicators, those of other Ranks"
    )
    error.rank = lost.rank
    return error


def _error_of(message: Abandoned, what: str) -> Exception:
    if message.what == LEAVE:
        return GraphError(message.why) if what in (WINNERS, COMPILE, OPEN) else ContractError(message.why)
    return _ERRORS.get(message.what, ContractError)(message.why)


_all: list[Agreement] = []
_ending = False


def begin_to_end() -> None:
    """The process ends: programs are closed without the other ranks."""
    global _ending
    _ending = True


def exit_all() -> None:
    """The process ends, and all its programs are closed."""
    for agreement in _all:
        with contextlib.suppress(KeyboardInterrupt):
            agreement.exit()
