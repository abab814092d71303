"""The parts of the tuner by themselves: processes under a reaper, and the store."""

from __future__ import annotations

import itertools
import json
import os
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import ostinato as ost
from benchmarks.context import Context
from benchmarks.rounds import take
from ostinato.tune.leases.device import Device
from ostinato.tune.store.key import environment
from ostinato.tune.store.store import Search, Store, StoredAttempt
from ostinato.tune.workers.reaper import Exited, Reaper

BENCHMARK, UNIT = "tuning", "us"
SPAWN, ATTEMPT = "one process, from its start to its end", "one attempt of ten thousand"
REAPER, SUBPROCESS, POSIX_SPAWN = "reaper", "subprocess.run", "posix_spawn and waitpid"
ADD, FIND, LINE = "store: add and commit", "store: find", "a line of JSON, flushed"

_TRUE = "/bin/true"
_BATCH = 200  # about what arrives between two commits of a search
_numbers = itertools.count()


def _reaper(reaper: Reaper, count: int) -> float:
    def run() -> None:
        reaper.spawn([_TRUE], env=os.environ)
        ended = False
        while not ended:
            select.select([reaper], [], [])
            ended = any(isinstance(event, Exited) for event in reaper.read())

    return _each(run, count)


def _each(call: Callable[[], object], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count * 1e6


def _posix_spawn() -> None:
    os.waitpid(os.posix_spawn(_TRUE, [_TRUE], os.environ), 0)


def _search(store: Store) -> Search:
    there = environment([Device(name="sim:0", kind="sim", identities=("sim:0",), model="simulated")])
    return store.search("null", {"n": 1}, there, {"cache": "warm"})


def _candidates(count: int) -> list[ost.Candidate]:
    factory = "benchmarks.tuning_candidates:empty"
    made = [ost.Candidate.call(factory, {"number": number}) for number in range(count)]
    for candidate in made:
        _ = candidate.id  # made once, and kept
    return made


def _add(directory: Path, candidates: list[ost.Candidate]) -> float:
    attempt = StoredAttempt(op="null", status=ost.Status.OK, samples=(31.5, 30.25, 31.0, 30.5, 30.0, 31.25, 30.75))
    with Store(directory / f"parts-{next(_numbers)}.db") as store:
        search = _search(store)
        begin = time.perf_counter()
        for first in range(0, len(candidates), _BATCH):
            for candidate in candidates[first : first + _BATCH]:
                search.add(candidate, "source", "sim:0", [attempt])
            search.commit()
        return (time.perf_counter() - begin) / len(candidates) * 1e6


def _find(path: Path, candidates: list[ost.Candidate]) -> float:
    """Return what it takes to find each, the reading of the file included."""
    with Store(path) as store:
        begin = time.perf_counter()
        search = _search(store)
        for candidate in candidates:
            if search.find(candidate.id, candidate.config, "source")[0] is None:
                raise RuntimeError("an attempt was lost")
        return (time.perf_counter() - begin) / len(candidates) * 1e6


def _lines(directory: Path, candidates: list[ost.Candidate]) -> float:
    with (directory / f"parts-{next(_numbers)}.jsonl").open("w") as file:
        begin = time.perf_counter()
        for candidate in candidates:
            attempt = {"candidate": candidate.id, "config": candidate.config, "status": "ok", "samples": [31.5] * 7}
            file.write(json.dumps(attempt) + "\n")
            file.flush()
        return (time.perf_counter() - begin) / len(candidates) * 1e6


def run(context: Context, directory: Path) -> None:
    """Time the parts."""
    rounds, count = (3, 30) if context.quick else (11, 200)
    with Reaper() as reaper:
        _reaper(reaper, count)
        spawners: dict[str, Callable[[], float]] = {
            REAPER: lambda: _reaper(reaper, count),
            SUBPROCESS: lambda: _each(lambda: subprocess.run([_TRUE], check=True), count),
            POSIX_SPAWN: lambda: _each(_posix_spawn, count),
        }
        context.rows += take(BENCHMARK, SPAWN, UNIT, spawners, rounds=rounds, reference=SUBPROCESS)

    candidates = _candidates(2_000 if context.quick else 10_000)
    _add(directory, candidates)
    filled = directory / f"parts-{next(_numbers) - 1}.db"
    stores: dict[str, Callable[[], float]] = {
        ADD: lambda: _add(directory, candidates),
        FIND: lambda: _find(filled, candidates),
        LINE: lambda: _lines(directory, candidates),
    }
    context.rows += take(BENCHMARK, ATTEMPT, UNIT, stores, rounds=3 if context.quick else 7)
