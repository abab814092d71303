"""What waits cost: candidates that sleep, candidates that hang, and the tuner while its workers are busy."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Row
from benchmarks.rounds import take

BENCHMARK = "tuning"
CANDIDATES, DEVICES, SECONDS = 60, 8, 0.05
SLEEPERS = f"{CANDIDATES} candidates of {SECONDS * 1e3:.0f} ms on {DEVICES} sim devices"
SLEEPERS_AGAIN = f"{SLEEPERS}, workers there"
MEASURED, START, IDEAL, FINAL = "measured", "workers start", "least possible", "final besides"
THREADS, POOL = "a process each: sleep 0.05", "ProcessPoolExecutor(8)"
HANG, HANG_LIMIT = "from a hang's limit to the next candidate of its device", 0.25
CALL, COMMAND, WORKER = "callable, new worker included", "command", "start of a worker alone"
BUSY, SHARE = "tuner and reapers", "% of a core"
SHORT, LONG = "8 sim devices, candidates of 70 ms", "8 sim devices, candidates of 350 ms"
LIMITED = f"{LONG}, limit of memory"

_numbers = itertools.count()


def _tuner(directory: Path, devices: Sequence[str], **options: object) -> ost.Tuner:
    path = directory / f"{next(_numbers)}.db"
    return ost.Tuner(devices, store=path, progress=False, **options)  # type: ignore[arg-type]


def _empty(count: int) -> list[ost.Candidate]:
    factory = "benchmarks.tuning_candidates:empty"
    return [ost.Candidate.call(factory, {"number": next(_numbers)}) for _ in range(count)]


def _least(ready: Sequence[float]) -> float:
    """Return when the last candidate can end at the earliest, on devices that are ready at these moments."""
    free = sorted(ready)
    for _ in range(CANDIDATES):
        free[0] += SECONDS
        free.sort()
    return free[-1]


def _sleepers(directory: Path) -> dict[str, dict[str, float]]:
    """Return the ms of the parts of two searches of one tuner: workers start in the first."""
    names = [f"sim:{number}?latency={SECONDS}" for number in range(DEVICES)]
    # One sample each, so that a candidate takes what its device is declared to take.
    found = {}
    with _tuner(directory, names, policy=ost.Policy(min_samples=1)) as tuner:
        for case in (SLEEPERS, SLEEPERS_AGAIN):
            report = tuner.tune("sleep", _empty(CANDIDATES))
            measured = [span for span in report.spans if span.what == "measure"]
            ready = [min(span.begin for span in measured if span.where == name) for name in names]
            end = max(span.end for span in measured)
            seconds = {
                MEASURED: end,
                IDEAL: _least(ready),
                START: statistics.mean(ready),
                FINAL: report.seconds - end,
            }
            found[case] = {name: value * 1e3 for name, value in seconds.items()}
    return found


def _threads() -> float:
    begin = time.perf_counter()
    with ThreadPoolExecutor(DEVICES) as pool:
        list(pool.map(lambda _: subprocess.run(["/bin/sleep", f"{SECONDS}"], check=True), range(CANDIDATES)))
    return (time.perf_counter() - begin) * 1e3


def _pool() -> float:
    begin = time.perf_counter()
    with ProcessPoolExecutor(DEVICES) as pool:
        list(pool.map(time.sleep, [SECONDS] * CANDIDATES))
    return (time.perf_counter() - begin) * 1e3


def _waiting(context: Context, directory: Path) -> None:
    rounds = 2 if context.quick else 5
    samples: dict[tuple[str, str], list[float]] = {}
    peers: dict[str, Callable[[], float]] = {THREADS: _threads, POOL: _pool}
    for _ in range(rounds):
        for case, parts in _sleepers(directory).items():
            for name, value in parts.items():
                samples.setdefault((case, name), []).append(value)
        for name, peer in peers.items():
            samples.setdefault((SLEEPERS, name), []).append(peer())
    context.rows += [Row(BENCHMARK, case, name, "ms", tuple(taken), IDEAL) for (case, name), taken in samples.items()]


def _gaps(directory: Path, hangs: Callable[[int, bool], ost.Candidate], pairs: int) -> list[float]:
    """Return the ms between the limit of each candidate that hangs and the begin of the next one."""
    candidates = [hangs(next(_numbers), bool(number % 2)) for number in range(2 * pairs + 1)]
    with _tuner(directory, ["sim:0"], timeout=HANG_LIMIT) as tuner:
        report = tuner.tune("hang", candidates)
    spans = [span for span in report.spans if span.what == "measure"]
    found = [
        (following.begin - span.begin - HANG_LIMIT) * 1e3
        for span, following in itertools.pairwise(spans)
        if span.status == "hang_killed"
    ]
    if len(found) != pairs:
        raise RuntimeError(f"{pairs} candidates should have been killed, and {len(found)} were")
    return found


def _hanging_call(number: int, hangs: bool) -> ost.Candidate:
    return ost.Candidate.call("benchmarks.tuning_candidates:stuck", {"number": number, "hangs": hangs})


def _hanging_command(number: int, hangs: bool) -> ost.Candidate:
    words = ["/bin/sleep", "60"] if hangs else ["/bin/echo", "OP:hang,TIME:1,WS:0"]
    return ost.Candidate.command(words, {"number": number})


def _worker_start(directory: Path) -> float:
    """Return the ms from the call of `tune` until the worker begins."""
    with _tuner(directory, ["sim:0"]) as tuner:
        report = tuner.tune("start", _empty(1))
    return min(span.begin for span in report.spans) * 1e3


def _hangs(context: Context, directory: Path) -> None:
    pairs = 3 if context.quick else 12
    context.rows += [
        Row(BENCHMARK, HANG, CALL, "ms", tuple(_gaps(directory, _hanging_call, pairs))),
        Row(BENCHMARK, HANG, COMMAND, "ms", tuple(_gaps(directory, _hanging_command, pairs))),
        Row(BENCHMARK, HANG, WORKER, "ms", tuple(_worker_start(directory) for _ in range(pairs))),
    ]


def _children_seconds() -> float:
    """Return the processor time of this process's children, which are the reapers; not that of theirs."""
    seconds = 0.0
    for task in os.listdir("/proc/self/task"):
        children = Path(f"/proc/self/task/{task}/children").read_text().split()
        seconds += sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9 for pid in children)
    return seconds


def _share(directory: Path, count: int, latency: float, memory: int | None) -> float:
    """Return how much of a core the tuner and its reapers used, in percent, once all workers had started."""
    names = [f"sim:{number}?latency={latency}" for number in range(DEVICES)]
    with _tuner(directory, names, memory=memory) as tuner:
        tuner.tune("busy", _empty(2 * DEVICES))
        reapers, begin, used = _children_seconds(), time.perf_counter(), time.process_time()
        tuner.tune("busy", _empty(count))
        used = time.process_time() - used + _children_seconds() - reapers
        return used / (time.perf_counter() - begin) * 100


def run(context: Context, directory: Path) -> None:
    """Time what waits."""
    _waiting(context, directory)
    _hangs(context, directory)
    rounds, count = (1, 16) if context.quick else (3, 64)
    for case, latency, memory in ((SHORT, 0.01, None), (LONG, 0.05, None), (LIMITED, 0.05, 1 << 32)):
        shares = {BUSY: lambda latency=latency, memory=memory: _share(directory, count, latency, memory)}
        context.rows += take(BENCHMARK, case, SHARE, shares, rounds=rounds)
