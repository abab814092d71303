"""The store: every attempt that was ever made, kept across searches, processes and crashes."""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

from ostinato.environment import default_store
from ostinato.tune.candidate import Candidate, canonical, digest
from ostinato.tune.outcome import OpOutcome, Status
from ostinato.tune.store import database
from ostinato.tune.store.attempt import LARGEST, StoredAttempt, attempt, described, packed, text
from ostinato.tune.store.database import Code, Context, Damaged, Row, StoreError, fault, name_damaged
from ostinato.tune.store.key import contexts, differing, miss

_BRIEFLY = 0.02  # seconds to wait for another process that writes, while devices could be fed instead
_AT_LEAST = 60.0  # seconds to wait for it where nothing is left to do but to write

_TIMED_OUT = (Status.HANG_KILLED, Status.COMPILE_TIMEOUT)
_TEXTS = {status: status.value for status in Status}
_FINAL = frozenset(_TEXTS[status] for status in Status if status.final)
_RUNS_DRAWN = 256  # numbers that are drawn at once: asking the system takes as long as all else of a row

_name = lru_cache(maxsize=4096)(text)  # of an op, a device: a few, again and again


class Store:
    """A file with every attempt that was ever made.

    Several processes and threads may use one file at the same time. An attempt that was committed survives whatever
    happens to the process; one that was not is lost as a whole.

    Parameters
    ----------
    path
        The file, made with its directory if it does not exist; None: ``tune.db`` in the user's cache directory, or in
        the directory that ``OSTINATO_CACHE_DIR`` names.

    Raises
    ------
    StoreError
        A `TuningError`: the file cannot be opened or written, or is no store, or one of a newer version. It is left
        as it is.

    Examples
    --------
    >>> import tempfile
    >>> import ostinato as ost
    >>> from ostinato.tune.store.key import environment
    >>> there = environment([ost.tune.leases.device.Device(name="sim:a", kind="sim", identities=(), model="simulated")])
    >>> candidate = ost.Candidate.call("json:dumps", {"obj": 1})
    >>> with tempfile.TemporaryDirectory() as directory, Store(f"{directory}/tune.db") as store:
    ...     with store.search("dump", {"n": 1}, there, {"cache": "warm"}) as search:
    ...         search.add(candidate, "v1", "sim:a", [StoredAttempt(op="dump", status=ost.Status.OK, samples=(9.5,))])
    ...     again = store.search("dump", {"n": 1}, there, {"cache": "warm"})
    ...     found, _ = again.find(candidate.id, candidate.config, "v1")
    ...     _, missed = again.find(candidate.id, candidate.config, "v2")
    >>> found[0].samples, found[0].device, missed
    ((9.5,), 'sim:a', 'source')
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(default_store() if path is None else os.path.abspath(path))
        self._process = os.getpid()
        self._lock = threading.Lock()  # one connection for all threads: a transaction belongs to one at a time
        self._connection = database.connect(self.path)

    def search(
        self,
        op: str,
        key: Mapping[str, Any],
        environment: Mapping[str, Any],
        policy: Mapping[str, Any],
        *,
        with_earlier: bool = True,
    ) -> Search:
        """Return what one search sees of the store, and where it puts what it measures.

        Unless `with_earlier`, the results of earlier searches are not read.
        """
        return Search(self, contexts(op, key, environment, policy), with_earlier=with_earlier)

    def attempts(self, op: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield every attempt as a plain dict, oldest first; those of other processes, too.

        Attempts of one run, that is of a candidate that reported several ops, share the number `run`. Damaged ones are
        passed over, with a warning.

        Parameters
        ----------
        op
            Only those of searches for this op.
        """
        self._check()
        with database.naming(self.path), closing(database.reader(self.path)) as connection:
            for row, config, description in database.rows(connection, self.path, None if op is None else text(op)):
                try:
                    value = described(row, config, description)
                except Damaged as error:
                    name_damaged(self.path, f"run {row.run!r}", str(error))
                    continue
                yield value

    def take(self, attempts: Iterable[tuple[Row, str, str]]) -> int:
        """Add attempts of another store, with their candidates' configs and descriptions; return how many were new."""
        self._check()
        with self._lock, database.naming(self.path), database.Transaction(self._connection, _AT_LEAST):
            here = {run for (run,) in self._connection.execute("SELECT run FROM attempt")}
            new = [attempt for attempt in attempts if attempt[0].run not in here]
            candidates = {(*row.code,): (config, description) for row, config, description in new}
            database.put(self._connection, candidates, {}, [row for row, _, _ in new])
        return len(new)

    def close(self) -> None:
        """Close the file; once more does nothing, and neither does a forked child."""
        if self._process == os.getpid():
            with self._lock:
                self._connection.close()

    def _check(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError(f"the store {self.path} was opened before a fork; open it again in the child")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"


class Search:
    """What one search sees of a store, the attempts that were there when it began, and where it puts its own.

    See `Store.search`.
    """

    def __init__(self, store: Store, contexts: Mapping[str, Context], *, with_earlier: bool) -> None:
        self._store = store
        self._contexts = dict(contexts)
        self._host = text(os.uname().nodename)
        self._answers: dict[Code, list[Row]] = {}
        self._others: dict[str, set[tuple[Context, Code]]] | None = None  # what is there besides, by config
        self._used: dict[str, int] = {}  # the run that each candidate's result is from
        self._known: dict[tuple[str, str], int] = {}  # the numbers of stored candidates, by `Code`
        self._candidates: dict[tuple[str, str], tuple[str, str]] = {}  # those to be stored: config and description
        self._rows: list[tuple[Any, ...]] = []  # the fields of `Row`
        self._verdicts: list[tuple[str, str, float]] = []
        self._runs_drawn: Iterator[int] = iter(())
        if with_earlier:
            self._load()

    def find(
        self,
        candidate_id: str,
        config: Mapping[str, Any],
        source: str,
        *,
        timeout: float | None = None,
        memory: int | None = None,
    ) -> tuple[list[StoredAttempt] | None, str | None]:
        """Return what the latest run of a candidate came to, or which field of the key kept the store from answering.

        A run answers if all its results are such that measuring again would say the same. One that ended at a limit
        of time or memory says nothing for a larger limit.
        """
        code = Code(candidate_id, source)
        run = self._answers.get(code)
        if run is None:
            return None, self._miss(code, config)
        for row in run:
            if row.allowed is not None:
                name, limit = ("memory", memory) if row.status == Status.OOM else ("timeout", timeout)
                if limit is None or limit > row.allowed:
                    return None, name
        try:
            found = [attempt(row) for row in run]
        except Damaged as error:
            name_damaged(self._store.path, f"run {run[0].run!r}", str(error))
            del self._answers[code]
            return None, self._miss(code, config)
        self._used[candidate_id] = run[0].run
        return found, None

    def join(self, device_name: str) -> None:
        """Take a device into the search that is of the same model as its others, which are all of one."""
        self._contexts[device_name] = next(iter(self._contexts.values()))

    def add(
        self,
        candidate: Candidate,
        source: str,
        device_name: str | None,
        results: Iterable[OpOutcome],
        phase: Literal["screen", "final", "anchor"] = "screen",
        *,
        first: str | None = None,
        timeout: float | None = None,
        memory: int | None = None,
    ) -> None:
        """Take down what a run of a candidate came to, one result per op; `commit` writes it.

        Only runs of the phase ``"screen"`` are found. `first` is the device that it was first measured on, where that
        was another one, perhaps another search's: `StoredAttempt.device` will say this name.
        """
        if device_name is None:
            context, device = next(iter(self._contexts.values())), None
        else:
            context, device = self._contexts[device_name], _name(first or device_name)
        candidate_id = candidate.id
        code = candidate_id, source  # plain tuples here and below: thousands are made, and few are read
        if code not in self._known and code not in self._candidates:
            self._candidates[code] = candidate.config_text, candidate.shared_text
        run, now = self._draw_run(), time.time()
        final = phase == "screen"
        for result in results:
            status = result.status
            final = final and status in _FINAL
            self._rows.append(
                (
                    context,
                    code,
                    run,
                    phase,
                    device,
                    self._host,
                    now,
                    _name(result.op),
                    _TEXTS[status],
                    packed(result.samples),
                    min(result.workspace, LARGEST),
                    text(result.message) if result.message else '""',
                    result.contended,
                    result.overhead_ns,
                    memory if status is Status.OOM else timeout if status in _TIMED_OUT else None,
                )
            )
        if final:
            self._used[candidate_id] = run

    def _draw_run(self) -> int:
        """Return a number that no other run has, in any store."""
        number = next(self._runs_drawn, None)
        if number is None:
            drawn = struct.unpack(f"{_RUNS_DRAWN}Q", os.urandom(8 * _RUNS_DRAWN))
            self._runs_drawn = iter([each >> 1 for each in drawn])
            return next(self._runs_drawn)
        return number

    def commit(self, wait: float = _BRIEFLY) -> bool:
        """Write what was added since, in one transaction; when this has returned true, nothing takes it away again."""
        if not self._rows and not self._verdicts:
            return True
        self._store._check()
        transaction = database.Transaction(self._store._connection, wait)
        taken = candidates, rows, verdicts = self._candidates, self._rows, self._verdicts
        try:
            self._candidates, self._rows, self._verdicts = {}, [], []
            with self._store._lock, database.naming(self._store.path), transaction:
                new = database.put(self._store._connection, candidates, self._known, rows, verdicts)
        except BaseException as error:
            if not transaction.committed:
                self._candidates, self._rows, self._verdicts = taken
            if not transaction.begun and isinstance(error, StoreError) and error.busy:
                return False
            raise
        self._known |= new
        return True

    def verdict(self, about: object = None) -> Any:
        """Return the verdict over exactly the runs that this search has found or added; None if there is none.

        A final round that was not finished leaves none, nor does one over other runs.
        """
        self._store._check()
        with self._store._lock, database.naming(self._store.path):
            found = self._store._connection.execute(
                "SELECT verdict FROM verdict WHERE runs = ?", (self._runs(about),)
            ).fetchone()
        if found is None:
            return None
        try:
            return json.loads(found[0])
        except (TypeError, ValueError, RecursionError) as error:
            name_damaged(self._store.path, "a verdict", str(error))
            return None

    def set_verdict(self, verdict: object, about: object = None) -> None:
        """Take down the verdict (a plain value) over the runs that this search has found or added."""
        self._verdicts.append((self._runs(about), canonical(verdict), time.time()))

    def close(self) -> None:
        """Commit the rest, and wait for other processes as long as it takes, up to a minute."""
        if not self.commit(_AT_LEAST):
            raise StoreError(f"the store {self._store.path} was in use by another process for {_AT_LEAST:.0f} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _runs(self, about: object) -> str:
        return digest([about, sorted(self._used.values())])

    def _load(self) -> None:
        """Read what may be found. A run that does not answer leaves an earlier one that does in its place."""
        self._store._check()
        connection = self._store._connection
        with self._store._lock, database.naming(self._store.path):
            for context in set(self._contexts.values()):
                number = database.identify(connection, context)
                if number is None:
                    continue
                runs: defaultdict[int, list[Row]] = defaultdict(list)
                damaged: set[int] = set()
                for values in connection.execute(
                    f"SELECT k.id, k.candidate, k.source, {database.ATTEMPT}"
                    " FROM attempt a JOIN candidate k ON k.id = a.candidate"
                    " WHERE a.context = ? AND a.phase = 'screen' ORDER BY a.id",
                    (number,),
                ):
                    row = Row(context, Code(*values[1:3]), *values[4:])
                    why = fault(row)
                    if why:
                        name_damaged(self._store.path, f"run {row.run!r}", why)
                        damaged.add(row.run)
                    else:
                        self._known[row.code] = values[0]
                    runs[row.run].append(row)
                for run, rows in runs.items():
                    code = rows[0].code
                    if run in damaged or any(row.code != code or row.status not in _FINAL for row in rows):
                        continue  # it does not say what measuring again would
                    earlier = self._answers.get(code)
                    if earlier is None or earlier[0].time <= rows[0].time:
                        self._answers[code] = rows

    def _miss(self, code: Code, config: Mapping[str, Any]) -> str | None:
        if self._others is None:
            self._others = self._read_others()
        if not self._others:
            return None
        stored = self._others.get(canonical(config), ())
        return miss(
            differing(context, asked) | ({"source"} if code != other else set())
            for context, other in stored
            for asked in self._contexts.values()
        )

    def _read_others(self) -> dict[str, set[tuple[Context, Code]]]:
        operations = {context.operation for context in self._contexts.values()}
        found = defaultdict(set)
        with self._store._lock, database.naming(self._store.path):
            for *context, config, candidate, source in self._store._connection.execute(
                "SELECT DISTINCT c.operation, c.key, c.device, c.driver, c.versions, c.policy,"
                " k.config, k.candidate, k.source"
                " FROM context c JOIN attempt a ON a.context = c.id JOIN candidate k ON k.id = a.candidate"
                " WHERE c.operation = ?",
                (*operations,),
            ):
                found[config].add((Context(*context), Code(candidate, source)))
        return dict(found)
