"""Peers for Python tasks: each takes a pattern of Python calls and returns how to run one step of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from typing import Any

from benchmarks.measure import Run
from benchmarks.ours import Call
from benchmarks.patterns import Flat, Pattern


@contextmanager
def plain_loop(pattern: Pattern, flat: Flat, calls: Sequence[Call]) -> Iterator[Run]:
    """The loop that anybody would write."""

    def run(steps: int) -> None:
        for _ in repeat(None, steps):
            for fn, args in calls:
                fn(*args)

    yield run


@contextmanager
def thread_pool(pattern: Pattern, flat: Flat, calls: Sequence[Call]) -> Iterator[Run]:
    """``ThreadPoolExecutor``: a row is submitted when the row before it has ended."""
    remaining = iter(calls)
    rows = [[next(remaining) for _ in row] for row in pattern.rows]
    with ThreadPoolExecutor(2) as pool:

        def run(steps: int) -> None:
            for _ in repeat(None, steps):
                for row in rows:
                    for future in [pool.submit(fn, *args) for fn, args in row]:
                        future.result()

        yield run


@contextmanager
def dask(pattern: Pattern, flat: Flat, calls: Sequence[Call]) -> Iterator[Run]:
    """Dask's threaded scheduler: the step as one graph, made once."""
    from dask._task_spec import Task, TaskRef
    from dask.threaded import get

    def call_after(fn: Callable[..., Any], args: tuple[Any, ...], *sources: object) -> None:
        fn(*args)

    sources: list[list[int]] = [[] for _ in calls]
    inner = flat.distance == 0
    for source, target in zip(flat.source[inner], flat.target[inner], strict=True):
        sources[target].append(int(source))
    graph = {i: Task(i, call_after, fn, args, *map(TaskRef, sources[i])) for i, (fn, args) in enumerate(calls)}
    last = list(range(len(calls) - len(pattern.rows[-1]), len(calls)))
    with ThreadPoolExecutor(2) as pool:

        def run(steps: int) -> None:
            for _ in repeat(None, steps):
                get(graph, last, pool=pool)

        yield run


@contextmanager
def warp(pattern: Pattern, flat: Flat, calls: Sequence[Call]) -> Iterator[Run]:
    """NVIDIA Warp: as many launches of an empty kernel as there are calls, recorded once and replayed on the CPU."""
    import warp as wp

    from benchmarks.warp_kernel import empty

    wp.load_module(empty.module, device="cpu")
    with wp.ScopedCapture(device="cpu") as capture:
        for _ in calls:
            wp.launch(empty, dim=1, device="cpu")

    def run(steps: int) -> None:
        for _ in repeat(None, steps):
            wp.capture_launch(capture.graph)

    yield run


@contextmanager
def ray(pattern: Pattern, flat: Flat, calls: Sequence[Call]) -> Iterator[Run]:
    """Ray Compiled Graphs: two actors, each with its half of every row; the functions are called in the actors."""
    import ray
    from ray.dag import InputNode, MultiOutputNode

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:

        class Half:
            def call(self, *sources: object) -> None:
                """Do nothing, as the function does; what it depends on arrives as arguments."""

        halves = [ray.remote(Half).remote() for _ in range(2)]
        inner = flat.distance == 0
        nodes: list[Any] = []
        with InputNode() as step:
            for op in range(flat.n_ops):
                sources = [nodes[i] for i in flat.source[inner & (flat.target == op)]]
                nodes.append(halves[flat.half[op]].call.bind(*(sources or [step])))
            graph = MultiOutputNode(nodes[-len(pattern.rows[-1]) :])
        compiled = graph.experimental_compile()

        def run(steps: int) -> None:
            for number in range(steps):
                ray.get(compiled.execute(number))

        yield run
        compiled.teardown()
    finally:
        ray.shutdown()
