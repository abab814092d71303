"""Empty Python tasks: what a task costs beyond the call that any loop would make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec

import numpy as np

import ostinato as ost
from benchmarks import python_peers
from benchmarks.context import Context
from benchmarks.measure import Contestant, Run
from benchmarks.ours import Call, python_program
from benchmarks.patterns import Flat, Pattern, all_patterns, flatten, stencil
from benchmarks.peers import Absent

Start = Callable[[Pattern, Flat, Sequence[Call]], AbstractContextManager[Run]]
LOOP, OURS, POOL, DASK, WARP, RAY = "plain loop", "ostinato", "ThreadPoolExecutor", "Dask", "Warp", "Ray"
_PEERS: dict[str, Start] = {
    LOOP: python_peers.plain_loop,
    POOL: python_peers.thread_pool,
    DASK: python_peers.dask,
    WARP: python_peers.warp,
    RAY: python_peers.ray,
}
_MODULES = {DASK: "dask", WARP: "warp", RAY: "ray"}


def _ours(context: Context) -> Start:
    @contextmanager
    def start(pattern: Pattern, flat: Flat, calls: Sequence[Call]) -> Iterator[Run]:
        with python_program(flat, context.machine, calls) as program:
            yield program.replay

    return start


def _empty() -> None:
    pass


def _empty_of_two(source: object, target: object) -> None:
    pass


def _empty_of_four(source: object, target: object, given: object, step: object) -> None:
    pass


def _verify(pattern: Pattern, flat: Flat, name: str, start: Start) -> None:
    """Check that three steps call every function three times."""
    counts = [0] * flat.n_ops

    def count(op: int) -> None:
        counts[op] += 1

    with start(pattern, flat, [(partial(count, op), ()) for op in range(flat.n_ops)]) as run:
        run(3)
    if counts != [3] * flat.n_ops:
        raise AssertionError(f"{name}, {pattern.name}: in 3 steps ops ran {min(counts)} to {max(counts)} times")


def _compare(context: Context, case: str, pattern: Pattern, everybody: dict[str, Start]) -> None:
    flat = flatten(pattern)
    with ExitStack() as stack:
        contestants = [
            Contestant(name, stack.enter_context(start(pattern, flat, [(_empty, ())] * flat.n_ops)), flat.n_ops)
            for name, start in everybody.items()
        ]
        context.compare("python", case, contestants, LOOP)


def _compare_with_arrays(context: Context) -> None:
    """Tasks of two arrays, with the dependences that follow from them."""
    a, b = np.zeros((2, 16, 8))
    calls: list[Call] = [(_empty_of_two, (a[max(p - 1, 0) : p + 2], b[p])) for p in range(16)]
    graph = ost.Graph()
    for fn, args in calls:
        graph.task(fn, *args, access=(ost.Read, ost.Write))
    pattern = stencil(16)
    with (
        graph.compile(context.machine) as program,
        python_peers.plain_loop(pattern, flatten(pattern), calls) as loop,
    ):
        contestants = [Contestant(OURS, program.replay, len(calls)), Contestant(LOOP, loop, len(calls))]
        context.compare("python", "16 tasks of 2 arrays", contestants, LOOP)


def _compare_with_steps(context: Context) -> None:
    """Tasks of two arrays that also get a parameter and the step number."""
    pairs = list(zip(*np.zeros((2, 16, 8)), strict=True))

    def loop(steps: int) -> None:
        given = 2.0
        for step in range(steps):
            for source, target in pairs:
                _empty_of_four(source, target, given, step)

    graph = ost.Graph()
    for source, target in pairs:
        given = graph.param("given")
        graph.task(_empty_of_four, source, target, given, ost.step, access=(ost.Read, ost.Write, None, None))
    with graph.compile(context.machine) as program:
        program.replay(100, given=1.0)
        contestants = [
            Contestant(OURS, lambda steps: program.replay(steps, given=2.0), len(pairs)),
            Contestant(LOOP, loop, len(pairs)),
        ]
        context.compare("python", "16 tasks of 2 arrays, a parameter and the step number", contestants, LOOP)


def run(context: Context) -> None:
    """Time every pattern; Ray last, because its own processes would disturb the others."""
    present = {name for name in _PEERS if name not in _MODULES or find_spec(_MODULES[name])}
    context.absent += [Absent(name, "not installed") for name in _PEERS if name not in present]
    everybody = {OURS: _ours(context)} | {name: _PEERS[name] for name in _PEERS if name in present - {RAY}}
    for pattern in all_patterns():
        for name, start in everybody.items():
            if name != WARP:  # its tasks are kernels, not these functions
                _verify(pattern, flatten(pattern), name, start)
        _compare(context, pattern.name, pattern, everybody)
    _compare_with_arrays(context)
    _compare_with_steps(context)
    if RAY in present and not context.quick:
        pattern = stencil(16)
        _compare(context, f"{pattern.name}, beside Ray", pattern, {**everybody, RAY: python_peers.ray})
