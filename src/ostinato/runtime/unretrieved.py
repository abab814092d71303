"""Failures that nobody has retrieved: raised when a ``with`` block ends, or logged."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ostinato import _core
from ostinato.errors import PoisonError, TaskError, told

if TYPE_CHECKING:
    from ostinato.runtime.machine import Machine
    from ostinato.runtime.run import Run
    from ostinato.runtime.spawn import SpawnedOp

__all__ = ["Unretrieved", "log_failure", "raise_failures", "report_failure"]

_log = logging.getLogger("ostinato")

_FEW = 64

_Dropped: TypeAlias = "tuple[_core.Run | _core.Spawned, SpawnedOp | None]"
_Entry = TypeVar("_Entry")


class Unretrieved:
    """The runs of a program, or the spawned tasks of a machine, whose failure nobody may have retrieved.

    Runs that the user still holds are known by weak references, so that dropping one is noticed. A run that is dropped
    before it ends leaves its core's side here.

    Any thread adds runs, without a lock: `list.append` is atomic, and the lists stay the same objects.
    """

    __slots__ = ("_dropped", "_enough", "_held", "_pruning")

    def __init__(self) -> None:
        self._held: list[weakref.ref[Run]] = []
        self._dropped: list[_Dropped] = []
        self._enough = _FEW
        self._pruning = threading.Lock()

    def add(self, run: Run) -> None:
        """Watch a run that was just submitted."""
        if len(self._held) >= self._enough:
            self._prune()
        self._held.append(weakref.ref(run))

    def drop(self, core: _core.Run | _core.Spawned, op: SpawnedOp | None = None) -> None:
        """Watch a run that nobody holds any more."""
        if len(self._dropped) >= self._enough:
            self._prune()
        self._dropped.append((core, op))

    def failed(self) -> list[_Dropped]:
        """Return the runs that have failed and that nobody was told of, each once."""
        held = [run for run in (ref() for ref in list(self._held)) if run is not None]
        found = [(run._core, run._spawned_op) for run in held] + list(self._dropped)
        return [entry for entry in found if entry[0].unretrieved]

    def in_flight(self) -> list[_core.Run | _core.Spawned]:
        """Return the dropped runs that have not ended."""
        return [core for core, _ in self._dropped if not core.done]

    def _prune(self) -> None:
        """Forget the runs that ended well, or of which the user knows how they ended."""
        if not self._pruning.acquire(blocking=False):
            return  # another thread prunes; or this one, and a run was dropped meanwhile
        try:
            _keep(self._held, lambda ref: _matters(ref()))
            _keep(self._dropped, lambda entry: not entry[0].done or entry[0].unretrieved)
            self._enough = max(_FEW, 2 * len(self._held), 2 * len(self._dropped))
        finally:
            self._pruning.release()


def _keep(entries: list[_Entry], matters: Callable[[_Entry], bool]) -> None:
    """Remove the entries that do not matter; those that are appended meanwhile stay."""
    count = len(entries)
    entries[:count] = [entry for entry in entries[:count] if matters(entry)]


def _matters(run: Run | None) -> bool:
    return run is not None and (not run._core.done or run._core.unretrieved)


def log_failure(error: BaseException) -> None:
    """Log the failure of a run that nobody has retrieved, and nobody can retrieve any more."""
    if _is_failure(error):
        _log.error("a run failed, and nobody retrieved its exception: %s", told(error), exc_info=error)


def report_failure(machine: Machine | None, error: BaseException) -> None:
    """Keep a failure for the end of the machine's block; outside of one, log it."""
    if machine is not None and machine._in_block:
        machine._failures.append(error)
    else:
        log_failure(error)


def raise_failures(errors: Iterable[BaseException], left_by: BaseException | None) -> None:
    """At the end of a ``with`` block: raise the least of the failures, the others as notes.

    Where another exception leaves the block, log them instead.
    """
    ranked = sorted(filter(_is_failure, errors), key=_rank)
    if left_by is not None:
        for error in ranked:
            log_failure(error)
        return
    if ranked:
        for error in ranked[1:]:
            ranked[0].add_note(f"another run failed, too: {told(error)}")
        raise ranked[0]


def _is_failure(error: BaseException) -> bool:
    """Whether anybody need be told: not of what was skipped because a run was cancelled."""
    return not isinstance(error.__cause__, CancelledError)


def _rank(error: BaseException) -> tuple[int, int, int]:
    """What leaves the program comes first, then failures by step and program order, then what they poisoned."""
    if isinstance(error, TaskError):
        return 1, error.step or 0, getattr(error.op, "index", 0)
    return 2 if isinstance(error, PoisonError) else 0, 0, 0
