"""What the project sets out to reach, computed from the rows that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks import (
    adapting,
    applications,
    before,
    compile_cost,
    compile_devices,
    cores,
    cuda_graphs,
    device_chains,
    device_pipeline,
    device_run_ahead,
    eager_calls,
    events,
    first_times,
    fixed_costs,
    fleet,
    function_cost,
    graph_tuning,
    pays,
    placement,
    ported_chain,
    python_tasks,
    ranks,
    retuning,
    scaling,
    simulation,
    submitting,
    tuning_devices,
    tuning_races,
    tuning_rates,
    tuning_waits,
)
from benchmarks.applications.application import OURS
from benchmarks.measure import Row
from benchmarks.native import ADAPTED, HAND, LOOP, ONE, TITLES, TWO

_PATTERNS = ("stencil_1d 16", "stencil_1d 64", "fft 8", "all_to_all 8")
_LIBRARIES = [TITLES[name] for name in ("tbb", "openmp", "taskflow")]


@dataclass(frozen=True)
class Target:
    """A figure that was measured and the bound it should keep."""

    name: str
    measured: float
    wanted: float
    at_most: bool = True
    unit: str = "x"

    @property
    def reached(self) -> bool:
        """Whether the bound is kept."""
        return self.measured <= self.wanted if self.at_most else self.measured >= self.wanted


def _python(median: dict[tuple[str, str, str], float]) -> list[Target]:
    """The worst of all patterns for each target of Python tasks."""
    ours = {case: value for (name, case, who), value in median.items() if (name, who) == ("python", python_tasks.OURS)}

    def against(peer: str) -> dict[str, float]:
        ratios = {case: median.get(("python", case, peer), 0.0) / value for case, value in ours.items()}
        return {case: ratio for case, ratio in ratios.items() if ratio}

    found = []
    for peer, wanted in ((python_tasks.LOOP, 1.25), (python_tasks.POOL, 100.0), (python_tasks.DASK, 100.0)):
        if ratios := against(peer):
            case = min(ratios, key=ratios.__getitem__)
            found.append(Target(f"Python tasks, worst pattern ({case}): {peer} to ours", ratios[case], wanted, False))
    return found


def _compiling_for_devices(rows: Sequence[Row]) -> list[Target]:
    """The worst case of compiling what uses devices."""
    unit = compile_devices.UNIT
    taken = {
        row.case: row.median
        for row in rows
        if (row.benchmark, row.contestant, row.unit) == ("compile", compile_devices.DEVICES, unit)
    }
    return [replace(each, unit=" us/op") for each in _worst(f"compile with devices, {unit}", taken, 60)]


def _outside(rows: Sequence[Row], median: dict[tuple[str, str, str], float]) -> list[Target]:
    """What has to do with events: submitting, chains with ports, memory over many runs."""
    found = []
    for row in rows:
        if row.benchmark == "submit" and row.contestant in (submitting.PORTS, submitting.PENDING):
            found.append(Target(f"submit, {row.contestant}: {row.case}", row.median, 3000, unit=" ns"))
        elif row.benchmark == "ports" and row.contestant == ported_chain.BOTH:
            plain = median["ports", row.case, ported_chain.PLAIN]
            found.append(Target(f"chain of 64 with ports and parameters to plain: {row.case}", row.median / plain, 1.3))
        elif row.benchmark == "unchained":
            # An object of 16 bytes left behind by each of 2 * 10^4 runs would be more.
            growth = Target(f"memory, {row.case}, {row.contestant}: {row.unit}", row.samples[-1], 256, unit=" KiB")
            found.append(growth)
    return found


def _functions(rows: Sequence[Row]) -> list[Target]:
    """The worst case of compiling a function; ratios are taken round by round."""
    samples = {(row.case, row.contestant): row.samples for row in rows if row.benchmark == function_cost.BENCHMARK}
    ratios = {
        case: float(np.median(np.divide(taken, samples[case, function_cost.CAPTURE])))
        for (case, who), taken in samples.items()
        if who == function_cost.FUNCTION
    }
    return _worst("ost.compile to capture and compile", ratios, 1.2)


def _before(rows: Sequence[Row]) -> list[Target]:
    """The worst patterns, on one lane and on two, and the worst single call.

    Ratios are taken round by round: in a round both met the same machine. 5% is what the same version differs by.
    """
    samples = {(row.case, row.contestant): row.samples for row in rows if row.benchmark == "before"}
    ratios = {
        case: float(np.median(np.divide(now, samples[case, before.BEFORE])))
        for (case, who), now in samples.items()
        if who == before.NOW
    }
    found = []
    kinds = {
        "1 lane": [case for case in ratios if case.endswith(", 1 lane")],
        "2 lanes": [case for case in ratios if case.endswith(", 2 lanes") and "(1)" not in case],
        "single calls": [case for case in ratios if "(1)" in case],
    }
    for kind, cases in kinds.items():
        if cases:
            case = max(cases, key=ratios.__getitem__)
            found.append(Target(f"now to before, {kind}, worst case ({case})", ratios[case], 1.05))
    return found


def _devices(median: dict[tuple[str, str, str], float]) -> list[Target]:
    """Two cores against one, until the last candidate was measured: the final is on one device whatever there is."""
    at = tuning_devices.BENCHMARK, tuning_devices.SCREENED
    return [
        Target(
            f"candidates a second: {tuning_devices.TWO} to {one}",
            median[*at, tuning_devices.TWO] / median[*at, one],
            1.8,
            False,
        )
        for one in (tuning_devices.ONE, tuning_devices.ALONE)
        if (*at, one) in median
    ]


def _streams(rows: Sequence[Row]) -> list[Target]:
    """What a replay adds to the enqueues of a device, and how early all is issued. Ratios are taken round by round."""
    samples = {(row.benchmark, row.case, row.contestant): row.samples for row in rows}
    chains, at = device_chains, device_chains.BENCHMARK
    cases = [case for name, case, who in samples if (name, who) == (at, chains.LOOP)]

    def ratios(over: str, under: str, host: bool) -> dict[str, float]:
        return {
            case: float(np.median(np.divide(samples[at, case, over], samples[at, case, under])))
            for case in cases
            if case.endswith(chains.HOST) == host
        }

    found = []
    for ours in (chains.REPLAY, chains.NATIVE):
        found += _worst(f"tiny kernels, {ours} to the C loop", ratios(ours, chains.LOOP, False), 1.15)
        for theirs in (chains.PYTHON, chains.DECLARED):
            found += _worst(f"tiny kernels, {theirs} to {ours}", ratios(theirs, ours, True), 3.0, False)
    ahead = device_run_ahead
    for name, case, who in samples:
        if (name, who) == (ahead.BENCHMARK, ahead.ISSUED) and case.endswith(ahead.OURS):
            issued = float(np.median(np.divide(samples[name, case, who], samples[name, case, ahead.DONE])))
            found.append(Target(f"{case}: {ahead.ISSUED} to {ahead.DONE}", issued, 0.1))
    return found


def _pipeline(rows: Sequence[Row]) -> list[Target]:
    """A step against what its busiest processor does in it, round by round."""
    pipeline = device_pipeline
    samples = {row.contestant: row.samples for row in rows if row.benchmark == pipeline.BENCHMARK}
    busy = [each for who, each in samples.items() if who.endswith(pipeline.BUSY)]
    if not busy:
        return []
    alone = [samples[who] for who in (pipeline.KERNEL, pipeline.HOST)]
    return [
        Target(f"photographs through a device: a step to {what}", float(np.median(ratios)), 1.1)
        for what, ratios in (
            ("what its busiest processor does in it", np.divide(samples[pipeline.OURS], np.max(busy, axis=0))),
            ("what its busiest processor takes alone", np.divide(samples[pipeline.OURS], np.max(alone, axis=0))),
        )
    ]


def _cuda(rows: Sequence[Row]) -> list[Target]:
    """What a replay adds to a launch of the same graph. Ratios are taken round by round."""
    cuda, at = cuda_graphs, cuda_graphs.BENCHMARK
    samples = {(row.case, row.contestant): row.samples for row in rows if row.benchmark == at}
    ratios = {
        case: float(np.median(np.divide(samples[case, cuda.REPLAY], samples[case, cuda.GRAPH])))
        for case, who in samples
        if who == cuda.REPLAY and case.startswith(("chain of", "stencil of"))
    }
    found = _worst(f"kernels that do next to nothing, {cuda.REPLAY} to {cuda.GRAPH}", ratios, 1.05)
    if (cuda.MIXED, cuda.TORCH) in samples:
        torch = np.divide(samples[cuda.MIXED, cuda.REPLAY], samples[cuda.MIXED, cuda.TORCH])
        found.append(Target(f"{cuda.MIXED}, {cuda.REPLAY} to {cuda.TORCH}", float(np.median(torch)), 1.0))
    return found


def _tuning(rows: Sequence[Row]) -> list[Target]:
    """What the tuner costs, and what its races spare."""
    median = {
        (row.unit, row.case, row.contestant): row.median for row in rows if row.benchmark == tuning_rates.BENCHMARK
    }
    if not median:
        return []
    rates, waits, races = tuning_rates, tuning_waits, tuning_races
    calls = {who: value for (unit, case, who), value in median.items() if (unit, case) == (rates.UNIT, rates.CALLS)}
    found = [
        Target(f"{rates.CALLS}, {rates.EIGHT}", 1e6 / calls[rates.EIGHT], 10_000, False, " a second"),
        Target(f"{rates.CALLS}: {rates.PYTHON} to {rates.EIGHT}", calls[rates.PYTHON] / calls[rates.EIGHT], 10, False),
    ]
    for case in (waits.SLEEPERS, waits.SLEEPERS_AGAIN):
        measured, least, start = (median["ms", case, part] for part in (waits.MEASURED, waits.IDEAL, waits.START))
        whole = 1e3 * waits.CANDIDATES * waits.SECONDS / waits.DEVICES
        found += [
            Target(f"{case}: {waits.MEASURED} to {waits.IDEAL}", measured / least, 1.05),
            Target(f"{case}: {waits.MEASURED} to {whole:g} ms and start", measured / (whole + start), 1.05),
        ]
    call, command, worker = (median["ms", waits.HANG, who] for who in (waits.CALL, waits.COMMAND, waits.WORKER))
    found += [
        Target(f"{waits.HANG}, callable, less {waits.WORKER}", call - worker, 50, unit=" ms"),
        Target(f"{waits.HANG}, {waits.COMMAND}", command, 50, unit=" ms"),
    ]
    for case in (waits.SHORT, waits.LONG, waits.LIMITED):
        found.append(Target(f"{waits.BUSY}, {case}", median[waits.SHARE, case, waits.BUSY], 2, unit=" % of a core"))
    spaces = {case for unit, case, _ in median if unit == races.SAMPLES}
    spent = {case: median[races.SAMPLES, case, races.RACE] / median[races.SAMPLES, case, races.LIKE] for case in spaces}
    if spent:
        case = max(spent, key=spent.__getitem__)
        found.append(Target(f"samples of a race to {races.LIKE}, worst space ({case})", spent[case], 1 / 3))
    return found


def _fleet(median: dict[tuple[str, str, str], float]) -> list[Target]:
    """How busy a fleet keeps its devices, and what the caller does for that."""
    at = fleet.BENCHMARK
    if (at, fleet.IDEAL, fleet.OURS) not in median:
        return []
    return [
        Target(f"fleet, {fleet.IDEAL}", median[at, fleet.IDEAL, fleet.OURS], 0.9, False, ""),
        Target(f"fleet, {fleet.HEAD}", median[at, fleet.HEAD, fleet.OURS], 0.05, unit=""),
    ]


def _ranks(rows: Sequence[Row], median: dict[tuple[str, str, str], float]) -> list[Target]:
    """Compare the cost of messages with MPI, and predictions with measured times."""
    found = []
    of = {(case, who): value for (name, case, who), value in median.items() if name == scaling.MESSAGES}
    mpi, shared, hand = scaling.OURS_MPI, scaling.OURS_SHARED, scaling.HAND_C
    if (scaling.PER_SIDE, hand) in of and (scaling.PER_SIDE, mpi) in of:
        beyond = of[scaling.PER_SIDE, mpi] - of[scaling.PER_SIDE, hand]
        found.append(Target("beyond MPI's own cost, per message and side", beyond, 50, unit=" ns"))
        for case, wanted in ((scaling.METG, 1.1), (scaling.FOUR, 0.5)):
            found.append(Target(f"{case}, 2 ranks: {mpi} to {hand}", of[case, mpi] / of[case, hand], wanted))
    if (scaling.DEPENDENCE, shared) in of:
        found.append(Target("a dependence between ranks of one host", of[scaling.DEPENDENCE, shared], 250, unit=" ns"))
    errors = {
        row.case: abs(row.median)
        for row in rows
        if row.benchmark == scaling.PREDICTED and row.unit == "%" and row.case.endswith(", 2 ranks")
    }
    found += _worst("simulated to measured on 2 ranks, off by %", errors, 15)
    times = {f"{row.case}, {row.contestant}": row.median for row in rows if row.benchmark == scaling.COMPILE}
    return found + _worst("capture and compile on a rank, ms", times, 200)


def _worst(what: str, ratios: dict[str, float], wanted: float, at_most: bool = True) -> list[Target]:
    """The case furthest from the bound; none if there is no case."""
    if not ratios:
        return []
    case = (max if at_most else min)(ratios, key=ratios.__getitem__)
    return [Target(f"{what}, worst case ({case})", ratios[case], wanted, at_most)]


def _costs(median: dict[tuple[str, str, str], float]) -> list[Target]:
    """What measured costs are for: placement, prediction, tuning that is done once."""

    def ratios(what: str, over: str, under: str) -> dict[str, float]:
        named = {case: value for (name, case, who), value in median.items() if (name, who) == ("placement", under)}
        return {
            case.removeprefix(f"{what}: "): median["placement", case, over] / value
            for case, value in named.items()
            if case.startswith(f"{what}: ") and ("placement", case, over) in median
        }

    found = _worst("placement to the best of all", ratios(placement.SMALL, placement.OURS, placement.BEST), 1.1)
    turns = ratios(placement.IRREGULAR, placement.TURNS, placement.OURS)
    found += _worst("round-robin to placement", turns, 1.2, False)
    if turns:
        mean = float(np.exp(np.mean(np.log(list(turns.values())))))
        found.append(Target(f"round-robin to placement, geometric mean of {len(turns)} cases", mean, 1.2, False))
    found += _worst("tiny tasks to one lane", ratios(placement.TINY, placement.OURS, placement.ONE), 1.05)
    errors = {
        case: abs(value)
        for (name, case, who), value in median.items()
        if (name, who) == ("simulation", simulation.ERROR)
    }
    if errors:
        case = max(errors, key=errors.__getitem__)
        found.append(Target(f"error of simulation, worst case ({case})", errors[case], 10, unit=" %"))
    found += _retuning(median)
    paid = {
        case: value / median[name, case, pays.LOOP]
        for (name, case, who), value in median.items()
        if (name, who) == (pays.BENCHMARK, pays.OURS)
    }
    found += _worst("tasks of 1 to 500 us, adapted, to the plain loop", paid, 1.05)
    at = graph_tuning.BENCHMARK, graph_tuning.TUNE
    found += [
        Target(f"{graph_tuning.TUNE}, {who}", median[*at, who], 50, unit=" ms")
        for who in (graph_tuning.AGAIN, graph_tuning.ELSEWHERE)
        if (*at, who) in median
    ]
    return found


def _retuning(median: dict[tuple[str, str, str], float]) -> list[Target]:
    """Never worse, where costs were wrong better, and cheap where nothing is to be gained."""

    def ratios(what: str, over: str, under: str) -> dict[str, float]:
        return {
            case.removeprefix(f"{what}: "): median[name, case, over] / value
            for (name, case, who), value in median.items()
            if (name, who) == ("retune", under) and case.startswith(f"{what}: ")
        }

    gained = ratios(retuning.GAIN, retuning.AFTER, retuning.BEFORE)
    found = _worst("retuned to as compiled", gained, 1.02)
    if gained:
        case = min(gained, key=gained.__getitem__)
        found.append(Target(f"retuned to as compiled, best case ({case})", gained[case], 0.75))
    return found + _worst("retune to replay", ratios(retuning.NOTHING, retuning.RETUNE, retuning.REPLAY), 1.25)


def _adapting(rows: Sequence[Row]) -> list[Target]:
    """The worst case; ratios are taken round by round."""
    samples = {(row.case, row.contestant): row.samples for row in rows if row.benchmark == "adapt"}
    ratios = {
        case: float(np.median(np.divide(samples[case, adapting.OURS], better)))
        for (case, who), better in samples.items()
        if who == adapting.BETTER
    }
    return _worst("adapted to the better of one lane and two", ratios, 1.05)


def _cores(median: dict[tuple[str, str, str], float]) -> list[Target]:
    """The worst core for a caller against the best; our steps against others, beside another process."""
    cases: dict[str, dict[str, float]] = {}
    for (name, case, who), value in median.items():
        if name == cores.BENCHMARK:
            cases.setdefault(case, {})[who] = value
    callers = {case: max(each.values()) / min(each.values()) for case, each in cases.items() if cores.CALLER in case}
    found = _worst("the caller on each core in turn, worst to best", callers, 1.1)
    for ours in (OURS, ADAPTED):
        beside = {
            case: each[ours] / min(value for who, value in each.items() if not who.startswith(OURS))
            for case, each in cases.items()
            if ours in each
        }
        found += _worst(f"{ours} to the fastest of the others, cores shared with another process", beside, 1.2)
    return found


def _applications(rows: Sequence[Row]) -> list[Target]:
    """As fast as the fastest of the others, application by application."""
    return [
        Target(f"{row.case}: to {best.contestant}", row.median / best.median, 1.0)
        for row, best in applications.beside_best(rows)
    ]


def targets(rows: Sequence[Row]) -> list[Target]:
    """The targets whose benchmarks ran."""
    median = {(row.benchmark, row.case, row.contestant): row.median for row in rows}
    found: list[Target] = []

    def ratio(
        name: str, over: tuple[str, str, str], under: tuple[str, str, str], wanted: float, at_most: bool = True
    ) -> None:
        if over in median and under in median:
            found.append(Target(name, median[over] / median[under], wanted, at_most))

    for pattern in _PATTERNS:
        at = ("native", pattern)
        ratio(f"{pattern}: 2 lanes to 2 threads by hand", (*at, TWO), (*at, HAND), 1.25)
        ratio(f"{pattern}: 1 lane to the loop", (*at, ONE), (*at, LOOP), 2.0)
        libraries = [(*at, name) for name in _LIBRARIES if (*at, name) in median]
        if libraries:
            best = min(libraries, key=lambda key: median[key])
            ratio(f"{pattern}: {best[2]} to 2 lanes", best, (*at, TWO), 5.0, at_most=False)
    found += _python(median)
    one, two = ((ranks.BENCHMARK, ranks.CASE, name) for name in (ranks.ONE, ranks.SHARED))
    ratio("a stencil of Python tasks: 1 rank to 2 ranks with shared memory", one, two, 1.8, at_most=False)
    found += _ranks(rows, median)
    ratio("METG(50): 2 lanes to 2 threads by hand", ("metg", "METG(50)", TWO), ("metg", "METG(50)", HAND), 1.25)
    for case in (fixed_costs.PYTHON, fixed_costs.NATIVE):
        call, replay = (("fixed", case, name) for name in (fixed_costs.CALL, fixed_costs.REPLAY))
        if call in median:
            found.append(
                Target(f"replay(1) of {case}, beyond the call", median[replay] - median[call], 500, unit=" ns")
            )
    for name, case, who, pool in (
        ("fixed", fixed_costs.PYTHON, fixed_costs.SUBMIT, fixed_costs.POOL),
        ("events", events.BACK, events.SPAWN, events.POOL),
    ):
        ratio(f"{who} to {pool}: {case}", (name, case, who), (name, case, pool), 0.5)
    asleep = [("submit", submitting.PYTHON, name) for name in (submitting.PLAIN_ASLEEP, submitting.POOL_ASLEEP)]
    ratio("submit to a thread pool's, threads asleep", *asleep, 1.0)
    for case in (first_times.EMPTY, first_times.OTHER):
        first, second, replay = (
            (first_times.BENCHMARK, name, case) for name in (first_times.FIRST, first_times.SECOND, first_times.REPLAY)
        )
        if first in median:
            beyond = median[first] - median[second]
            found.append(Target(f"first compile beyond the second, {case}", beyond, 20, unit=" ms"))
            found.append(Target(f"first replay, {case}", median[replay], 0.2, unit=" ms"))
    for case, under, over, most in (
        (eager_calls.ONE, eager_calls.FUNCTION, eager_calls.TASK, 500),
        (eager_calls.THREE, eager_calls.FUNCTION, eager_calls.TASK, 500),
        (eager_calls.LOOP, eager_calls.NJIT, eager_calls.KERNEL, 1000),
    ):
        call, ours = ((eager_calls.BENCHMARK, case, name) for name in (under, over))
        if call in median:
            found.append(Target(f"{case}, beyond {under}", median[ours] - median[call], most, unit=" ns"))
    hot = ("fixed", fixed_costs.HOT, fixed_costs.TWO)
    if hot in median:
        found.append(Target("replay(1), two hot threads", median[hot], 5000, unit=" ns"))
    for row in rows:
        if row.benchmark == "irregular" and row.contestant == TWO:
            ratio(
                f"irregular, {row.case}: efficiency to the ready queue's",
                ("irregular", row.case, TWO),
                ("irregular", row.case, TITLES["queue"]),
                0.95,
                at_most=False,
            )
        elif row.benchmark == "compile" and row.contestant == "capture and compile":
            most = 8 if compile_cost.DIFFERENT in row.case else 3
            found.append(Target(f"capture and compile, {row.case}", row.median, most, unit=" us/op"))
        elif row.benchmark == "compile" and row.contestant == compile_cost.PROCESS:
            found.append(Target(f"memory of the process, {row.case}", row.median, 800, unit=" bytes/op"))
        elif row.benchmark == "compile" and row.contestant == "core":
            found.append(Target(f"memory in the core, {row.case}", row.median, 300, unit=" bytes/op"))
        elif row.benchmark == "memory":
            found.append(
                Target(f"memory, {row.case} of {row.contestant}: growth after 1000", row.median, 64, unit=" KiB")
            )
    return (
        found
        + _applications(rows)
        + _compiling_for_devices(rows)
        + _outside(rows, median)
        + _before(rows)
        + _functions(rows)
        + _tuning(rows)
        + _fleet(median)
        + _devices(median)
        + _streams(rows)
        + _pipeline(rows)
        + _cuda(rows)
        + _costs(median)
        + _adapting(rows)
        + _cores(median)
    )
