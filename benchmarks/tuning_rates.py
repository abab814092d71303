"""How many candidates a second that do nothing, beside a process for each, pools, and another tuner's loop."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import ostinato as ost
from benchmarks.context import Context
from benchmarks.peers import Absent
from benchmarks.rounds import take

BENCHMARK, UNIT = "tuning", "us a candidate"
CALLS, COMMANDS = "callables that do nothing", "commands that print a line"
EIGHT, ONE, CORES = "ostinato, 8 sim devices", "ostinato, 1 sim device", "ostinato, 2 cores"
AGAIN, KNOWN = "ostinato, 8 sim devices, workers there", "ostinato, all known"
PROCESS, PYTHON = "a process each, /bin/true", "a process each, python -c pass"
POOL, OPTUNA = "ProcessPoolExecutor", "optuna, in-process"

_DEVICES = [f"sim:{number}" for number in range(8)]
_LINE = "OP:null,TIME:1.5,WS:0"
_numbers = itertools.count()


def _calls(count: int) -> list[ost.Candidate]:
    """Candidates that nobody has measured before."""
    factory = "benchmarks.tuning_candidates:empty"
    return [ost.Candidate.call(factory, {"number": next(_numbers)}) for _ in range(count)]


def _commands(count: int) -> list[ost.Candidate]:
    return [ost.Candidate.command(["/bin/echo", _LINE], {"number": next(_numbers)}) for _ in range(count)]


def _search(tuner: ost.Tuner, candidates: Sequence[ost.Candidate]) -> float:
    """Return the us a candidate of a whole search, from its call to its report."""
    begin = time.perf_counter()
    report = tuner.tune("null", candidates)
    seconds = time.perf_counter() - begin
    wrong = [result.message for result in report.results if result.status not in ("ok", "raced")]
    if wrong or report.best is None or len(report.results) != len(candidates):
        raise RuntimeError(f"{len(wrong)} of {len(candidates)} candidates failed: {wrong[:1]}")
    return seconds / len(candidates) * 1e6


def _ours(
    directory: Path, devices: Sequence[str], candidates: Callable[[int], list[ost.Candidate]], count: int, *, again: str
) -> float:
    """Time the first search of a tuner, whose workers start in it, or its second, of other candidates or the same."""
    path = directory / f"{next(_numbers)}.db"
    with ost.Tuner(devices, store=path, progress=False) as tuner:
        chosen = candidates(count)
        first = _search(tuner, chosen)
        if not again:
            return first
        return _search(tuner, chosen if again == "known" else candidates(count))


def _processes(words: Sequence[str], count: int) -> float:
    """Start a process for each candidate, eight at a time, and read what it prints."""

    def start(_: int) -> None:
        subprocess.run(words, check=True, stdout=subprocess.PIPE)

    begin = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(start, range(count)))
    return (time.perf_counter() - begin) / count * 1e6


def _nothing(number: int) -> None:
    pass


def _pool(count: int) -> float:
    """Send each candidate to one of two processes; neither is measured, checked or remembered there."""
    begin = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        for future in [pool.submit(_nothing, number) for number in range(count)]:
            future.result()
    return (time.perf_counter() - begin) / count * 1e6


def _optuna(count: int) -> float:
    """Let optuna try so many configurations at random in this process, in memory."""
    import optuna

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_int("number", 0, 10**6)
        begin = time.perf_counter_ns()
        _nothing(0)
        return float(time.perf_counter_ns() - begin)

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    begin = time.perf_counter()
    study.optimize(objective, n_trials=count)
    return (time.perf_counter() - begin) / count * 1e6


def run(context: Context, directory: Path) -> None:
    """Time searches of candidates that do nothing."""
    many, few = (2000, 100) if context.quick else (10_000, 400)
    rounds = 2 if context.quick else 5
    contestants: dict[str, Callable[[], float]] = {
        EIGHT: lambda: _ours(directory, _DEVICES, _calls, many, again=""),
        AGAIN: lambda: _ours(directory, _DEVICES, _calls, many, again="new"),
        KNOWN: lambda: _ours(directory, _DEVICES, _calls, many, again="known"),
        ONE: lambda: _ours(directory, _DEVICES[:1], _calls, many, again=""),
        CORES: lambda: _ours(directory, ["cpu:0", "cpu:1"], _calls, many, again=""),
        PROCESS: lambda: _processes(["/bin/true"], few),
        PYTHON: lambda: _processes([sys.executable, "-c", "pass"], few // 4),
        POOL: lambda: _pool(many // 2),
    }
    try:
        import optuna

        context.versions["optuna"] = optuna.__version__
        contestants[OPTUNA] = lambda: _optuna(few)
    except ImportError as error:
        context.absent.append(Absent("optuna", str(error)))
    context.rows += take(BENCHMARK, CALLS, UNIT, contestants, rounds=rounds, reference=PROCESS)
    commands = {
        EIGHT: lambda: _ours(directory, _DEVICES, _commands, few, again=""),
        PROCESS: lambda: _processes(["/bin/echo", _LINE], few),
    }
    context.rows += take(BENCHMARK, COMMANDS, UNIT, commands, rounds=rounds, reference=PROCESS)
