"""What tuning found of one signature, as it is remembered: one run in the store, one attempt for each variant."""

from __future__ import annotations

import functools
import json
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ostinato.tune.candidate import Candidate, canonical
from ostinato.tune.graphs.call_context import CallContext, Checked
from ostinato.tune.graphs.names import operation_of
from ostinato.tune.outcome import OpOutcome, Status
from ostinato.tune.store import database
from ostinato.tune.store.attempt import attempt, is_sound, text
from ostinato.tune.store.database import Context, Damaged, Row, StoreError, name_damaged

_SHARED = {"kind": "case"}


@dataclass(frozen=True, eq=False)
class Entry(Candidate):
    """What the store has in place of a candidate: its configuration says what was found."""

    def shared(self) -> dict[str, Any]:
        return _SHARED


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """What tuning found of one signature."""

    places: tuple[int, ...]
    """Of each outcome, which of the signature's declared variants it is of."""
    outcomes: tuple[OpOutcome, ...]
    winner: int | None
    """The place of the fastest correct variant; the default's, 0, unless another is faster beyond the noise. None where
    none is correct: that is remembered so that none is run, but answers no tuning."""
    ties: tuple[int, ...]
    """The places of those that cannot be told from the fastest."""
    rtol: float
    complete: bool
    """Whether time was left for all variants."""
    checked: Checked
    """The call contexts in which outputs were compared."""
    time: float
    """Seconds since 1970."""

    def entry(self) -> Entry:
        """Return what the store has of it besides the outcomes."""
        lists = {"places": list(self.places), "ties": list(self.ties), "checked": self.checked.plain()}
        return Entry({"winner": self.winner, "rtol": self.rtol, "complete": self.complete, **lists})

    @classmethod
    def read(cls, rows: Sequence[Row], config: str, description: str) -> Record | None:
        """Return the record that a run is; None if it is something else; raise `Damaged` if it was one."""
        if description != canonical(_SHARED):
            return None
        try:
            entry: Mapping[str, Any] = json.loads(config)
            record = cls(
                places=tuple(map(int, entry["places"])),
                outcomes=tuple(map(attempt, rows)),
                winner=None if entry["winner"] is None else int(entry["winner"]),
                ties=tuple(map(int, entry["ties"])),
                rtol=float(entry["rtol"]),
                complete=bool(entry["complete"]),
                checked=Checked(CallContext(layout, scalars) for layout, scalars in entry["checked"]),
                time=rows[0].time,
            )
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Damaged(f"it is no record: {error}") from error
        known = set(record.places)
        best = {*record.ties, record.winner} - {None}
        whole = len(record.places) == len(known) == len(record.outcomes) and best <= known
        if not whole or min(known, default=0) < 0 or not 0 <= record.rtol < 1:
            raise Damaged("it is no record: its parts contradict each other")
        if record.winner is not None and not record.samples(record.winner):
            raise Damaged("it is no record: its winner has no samples")
        return record

    @property
    def right(self) -> set[int]:
        """The places of the variants whose outputs were the default's."""
        pairs = zip(self.places, self.outcomes, strict=True)
        return {place for place, outcome in pairs if outcome.status in (Status.OK, Status.RACED)}

    @property
    def out(self) -> dict[int, OpOutcome]:
        """What became of the variants that were compared with the default, and do not do what it does, by place."""
        pairs = zip(self.places, self.outcomes, strict=True)
        others = (Status.OK, Status.RACED, Status.INVALID)
        return {place: outcome for place, outcome in pairs if outcome.status not in others}

    def samples(self, place: int) -> tuple[float, ...]:
        """Return the times of a variant in ns; none if it was not measured, or is wrong."""
        return self.outcomes[self.places.index(place)].samples if place in self.right else ()

    def answers(self, rtol: float, checked: Checked) -> bool:
        """Whether tuning once more would find the same."""
        if self.winner is None or not self.complete or not self.checked.includes(checked):
            return False
        wrong = any(outcome.status is Status.WRONG_RESULT for outcome in self.outcomes)
        return self.rtol == rtol or (self.rtol < rtol and not wrong)


@dataclass(frozen=True, eq=False)
class Stored:
    """A run that is in a store."""

    path: Path
    context: Context
    source: str
    rows: list[Row]
    config: str
    description: str

    @property
    def time(self) -> float:
        return self.rows[0].time

    @cached_property
    def record(self) -> Record | None:
        """The record that it is; None if it is none."""
        try:
            return Record.read(self.rows, self.config, self.description)
        except Damaged as error:
            name_damaged(self.path, f"run {self.rows[0].run!r}", str(error))
            return None


class Snapshot:
    """The records of a store as it was at one moment; the file is neither made nor changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by_task: dict[str, dict[str, list[Stored]]] = {}

    def of(self, key: Mapping[str, Any]) -> list[Stored]:
        """Return the records of a signature, also for other processors, versions and code, oldest first.

        Raises `StoreError` if the file cannot be read or is no store.
        """
        task = key["task"]
        found = self._by_task.get(task)
        if found is None:
            found = self._by_task[task] = self._read(text(operation_of(task)))
        return found.get(canonical(key), [])

    def _read(self, operation: str) -> dict[str, list[Stored]]:
        runs: defaultdict[int, list[Row]] = defaultdict(list)
        codes: dict[int, tuple[str, str]] = {}
        with database.naming(self._path), closing(database.reader_of_store(self._path)) as connection:
            for row, config, description in database.rows(connection, self._path, operation):
                runs[row.run].append(row)
                codes[row.run] = config, description
        found: defaultdict[str, list[Stored]] = defaultdict(list)
        sound = functools.cache(is_sound)
        for run, rows in runs.items():
            context = rows[0].context
            if len({(row.context, row.code) for row in rows}) > 1 or not sound(context):
                name_damaged(self._path, f"run {run!r}", "it is of several cases, or of none")
                continue
            found[context.key].append(Stored(self._path, context, rows[0].code.source, rows, *codes[run]))
        return found


_SETTLED = 100_000_000  # ns: a file changed less than this ago may change again without its times telling

_snapshots: dict[Path, tuple[tuple[int, ...], Snapshot]] = {}  # with the state of the file that they are of


def snapshot_of(path: Path) -> Snapshot | None:
    """Return the records of a store; None if there is no file, or nothing was ever written to it."""
    try:
        file = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        _snapshots.pop(path, None)
        return None
    except OSError as error:
        raise StoreError(f"the store {path} cannot be read: {error.strerror}") from error
    size = logged = 0  # of the log that the store is written to first; who only reads makes an empty one
    with suppress(OSError):
        log = os.stat(f"{path}-wal")
        size, logged = log.st_size, log.st_mtime_ns if log.st_size else 0
    if not size and not file.st_size:
        _snapshots.pop(path, None)
        return None
    state = (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, size, logged)
    known = _snapshots.get(path)
    if known is not None and known[0] == state:
        return known[1]
    snapshot = Snapshot(path)
    if time.time_ns() - max(file.st_mtime_ns, logged) > _SETTLED:
        _snapshots[path] = state, snapshot
    return snapshot
