"""This rank's part in what all ranks do together, and the thread that hears what other ranks say."""

from __future__ import annotations

import contextlib
import logging
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from ostinato import _core
from ostinato.errors import ContractError, GraphError, describe_error
from ostinato.ranks.channels import Common, End
from ostinato.ranks.coordinator import (
    CLOSE,
    COMPILE,
    EXIT,
    OPEN,
    PARAMETERS,
    RUN,
    Abandoned,
    Agreed,
    Begun,
    Bound,
    Coordinator,
    Ended,
    Halt,
    Halted,
    Message,
    Stop,
    Verdict,
)
from ostinato.ranks.host import Slots

_log = logging.getLogger("ostinato")
_ERRORS = {COMPILE: GraphError, PARAMETERS: ValueError}
_EXIT_SECONDS = 5.0  # for the last messages to leave this process


class Shared(Protocol):
    """A program that several ranks run together, as far as the ranks' agreement is concerned."""

    def report(self, run: _core.Run, number: int) -> Ended:
        """Return how a run ended on this rank."""

    def judge(self, verdict: Verdict) -> None:
        """Take note of how a run ended on all ranks together."""

    def abandon(self, why: str) -> None:
        """Wait for no more messages, and take no more runs."""


class _Entry:
    """Something that this rank does together with others."""

    def __init__(self, run: _core.Run | None = None, program: Shared | None = None) -> None:
        self.run, self.program = run, program
        self.left = False  # the lanes have left the run
        self.answered = threading.Event()
        self.answer: Agreed | None = None
        self.error: Exception | None = None


class Agreement:
    """What this rank does together with others, in numbered steps: see `ostinato.ranks.coordinator`.

    Any thread. Handlers run on a thread of its own, which also makes progress with messages where nobody else does.
    """

    def __init__(self, messenger: _core.messages.Messenger, rank: int, size: int, most_tag: int) -> None:
        self._messenger, self._rank = messenger, rank
        self._lock = threading.RLock()
        self._number = 0  # of what was done last
        self._entries: dict[int, _Entry] = {}
        self._early: dict[int, list[Message]] = {}  # what concerns things that this rank has not begun
        self._own: deque[tuple[bool, Message]] = deque()  # from this rank to itself: whether it is for the coordinator
        self._coordinator = Coordinator(size, most_tag, self._tell) if rank == 0 else None
        self.ended = False
        self._thread = threading.Thread(target=self._serve, name="ostinato ranks", daemon=True)
        self._thread.start()
        _all.append(self)

    def compile(self, ends: Sequence[End], common: Common, slots: Slots | None) -> Agreed:
        """Return how to open a program's channels; raise `GraphError` if ranks' programs do not fit together."""
        return self._together(Begun(0, COMPILE, None, "compiles a program", tuple(ends), common=common, slots=slots))

    def open(self) -> None:
        """Say that this rank has opened a program's channels, and wait for the others; raise if one could not."""
        self._together(Begun(0, OPEN, None, "opens the channels of a program"))

    def fail(self, what: str, why: BaseException) -> None:
        """Have the other ranks raise `GraphError`: this rank cannot compile a program, or not open its channels."""
        told = str(why) if isinstance(why, GraphError) else describe_error(why)
        with contextlib.suppress(GraphError, ContractError):  # the caller raises `why`
            # A rank that is interrupted does not wait for others.
            self._together(Begun(0, what, None, "compiles a program", failure=told), isinstance(why, Exception))

    def check_parameters(self, digest: bytes, words: str) -> None:
        """Raise `ValueError` if the parameters of a run differ between ranks."""
        self._together(Begun(0, PARAMETERS, digest, words))

    def close(self, key: object, words: str, wait: bool) -> None:
        """Close a program; wait until all ranks do, and raise `ContractError` if they do something else."""
        if not _ending:
            self._together(Begun(0, CLOSE, key, words), wait)

    def begin(self, submit: Callable[[], _core.Run], program: Shared, key: object, words: str) -> _core.Run:
        """Submit a run that all ranks take part in."""
        with self._lock:
            self._check()
            run = submit()
            run.sequence = self._enter(_Entry(run, program), Begun(0, RUN, key, words))
            self._hear_own()
            return run

    def exit(self) -> None:
        """The process ends: nothing more is done together. Rank 0 waits for all others."""
        with self._lock:
            if self.ended:
                return
            self.ended = True
            entry = _Entry()
            self._enter(entry, Begun(0, EXIT, None, "ends"))
            self._hear_own()
        if self._coordinator is not None:
            entry.answered.wait()
        end = time.monotonic() + _EXIT_SECONDS
        while self._messenger.sending and time.monotonic() < end:
            self._messenger.progress()
            time.sleep(1e-4)
        self._messenger.close()
        self._thread.join(_EXIT_SECONDS)  # it must not come back into Python when the interpreter ends

    def _together(self, begun: Begun, wait: bool = True) -> Agreed:
        entry = _Entry()
        with self._lock:
            self._check()
            self._enter(entry, begun)
            self._hear_own()
        if not wait:
            return Agreed(begun.number)
        entry.answered.wait()
        if entry.error is not None:
            raise entry.error
        return cast(Agreed, entry.answer)

    def _check(self) -> None:
        if self.ended:
            raise RuntimeError("this process is about to end: nothing can be done together with other ranks any more")

    def _enter(self, entry: _Entry, begun: Begun) -> int:
        self._number += 1
        number = self._number
        self._entries[number] = entry
        self._tell(0, replace(begun, number=number))
        for message in self._early.pop(number, ()):
            self._own.append((False, message))
        return number

    def _tell(self, rank: int, message: Message) -> None:
        """Send a message to the coordinator, or from it to a rank."""
        to_coordinator = isinstance(message, Begun | Stop | Halted | Ended)
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
                        if run is None:
                            self._hear(source, *pickle.loads(what))
                        else:
                            self._hear_of_run(run, what)
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
        if to_coordinator:
            assert self._coordinator is not None
            self._coordinator.hear(source, message)
            return
        number = message.number
        if number > self._number:
            self._early.setdefault(number, []).append(message)
        elif (entry := self._entries.get(number)) is not None:
            self._obey(number, entry, message)

    def _obey(self, number: int, entry: _Entry, message: Message) -> None:
        run, program = entry.run, entry.program
        if isinstance(message, Abandoned):
            self._abandon(number, entry, message)
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
            program.judge(message)
            self._end(number, entry, message.good)

    def _abandon(self, number: int, entry: _Entry, message: Abandoned) -> None:
        if entry.run is None or entry.program is None:
            del self._entries[number]
            entry.error = _ERRORS.get(message.what, ContractError)(message.why)
            entry.answered.set()
            return
        # All runs of the program that are under way end, as nobody knows which messages still come.
        entry.program.abandon(message.why)
        for each, other in list(self._entries.items()):
            if other.program is entry.program and other.error is None:
                other.error = ContractError(message.why)
                entry.program.judge(Verdict(each, contract=message.why))
                run = cast(_core.Run, other.run)
                run.settle(run.halt(True))
                if other.left:
                    self._end(each, other, good=False)

    def _end(self, number: int, entry: _Entry, good: bool) -> None:
        del self._entries[number]
        cast(_core.Run, entry.run).agree(not good)


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
