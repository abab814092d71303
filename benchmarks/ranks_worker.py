"""One contestant of `benchmarks.ranks`: prints how long a step takes, in microseconds.

A step is a stencil of Python tasks: each reads its row and those beside it, and writes its row. A task takes 20 us, of
which it holds the interpreter's lock all the time.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import ostinato as ost

ROWS, COLUMNS, SECONDS = 16, 64, 20e-6


def task(x: Any, y: Any) -> None:
    end = time.perf_counter() + SECONDS
    y[...] = x[0]
    while time.perf_counter() < end:
        pass


def span(row: int) -> slice:
    return slice(max(row - 1, 0), min(row + 2, ROWS))


def timed(run: Callable[[int], object], steps: int, rounds: int) -> float:
    run(steps)
    samples = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run(steps)
        samples.append((time.perf_counter() - begin) / steps)
    return statistics.median(samples) * 1e6


def ostinato(transport: str, steps: int, rounds: int) -> float | None:

    ranks = ost.Ranks(transport=transport)  # type: ignore[arg-type]
    a, b = (ranks.array((ROWS, COLUMNS), tiles=(ROWS, 1)) for _ in range(2))
    u = ost.ring(a, b)

    @ost.task
    def work(x: ost.Read, y: ost.Write) -> None:
        task(x, y)

    def step(u: Any) -> None:
        for tile in a.tiles(near=1):
            row = tile.index[0]
            work(u[0][span(row)], u[1][row : row + 1])

    with ost.compile(step, u, ranks=ranks) as program:
        found = timed(program.replay, steps, rounds)
    return found if ranks.rank == 0 else None


def loop(steps: int, rounds: int) -> float:
    u = [np.zeros((ROWS, COLUMNS)) for _ in range(2)]

    def run(steps: int) -> None:
        for step in range(steps):
            for row in range(ROWS):
                task(u[step % 2][span(row)], u[1 - step % 2][row : row + 1])

    return timed(run, steps, rounds)


def mpi4py(steps: int, rounds: int) -> float | None:
    """Messages as mpi4py's tutorial sends them: ``Sendrecv`` with each neighbour, then the tasks."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    first, end = rank * ROWS // size, (rank + 1) * ROWS // size
    up, down = (rank - 1 if rank else MPI.PROC_NULL), (rank + 1 if rank < size - 1 else MPI.PROC_NULL)
    u = [np.zeros((ROWS, COLUMNS)) for _ in range(2)]

    def run(steps: int) -> None:
        for step in range(steps):
            x, y = u[step % 2], u[1 - step % 2]
            comm.Sendrecv(x[first], up, 0, x[end % ROWS], down, 0)
            comm.Sendrecv(x[end - 1], down, 1, x[first - 1], up, 1)
            for row in range(first, end):
                task(x[span(row)], y[row : row + 1])
        comm.Barrier()

    found = timed(run, steps, rounds)
    return found if rank == 0 else None


def _half(place: int, memory: Any, barrier: Any, calls: Any) -> None:
    u = np.frombuffer(memory).reshape(2, ROWS, COLUMNS)
    while (steps := calls.recv()) is not None:
        for step in range(steps):
            for row in range(place * ROWS // 2, (place + 1) * ROWS // 2):
                task(u[step % 2][span(row)], u[1 - step % 2][row : row + 1])
            barrier.wait()
        calls.send(True)


def multiprocessing(steps: int, rounds: int) -> float:
    """Two processes that share the array, and a barrier after each step."""
    import multiprocessing as mp

    context = mp.get_context("spawn")
    memory = context.RawArray("d", 2 * ROWS * COLUMNS)
    barrier, pipes, processes = context.Barrier(2), [], []
    for place in range(2):
        mine, theirs = context.Pipe()
        processes.append(context.Process(target=_half, args=(place, memory, barrier, theirs), daemon=True))
        pipes.append(mine)
        processes[-1].start()

    def run(steps: int) -> None:
        for pipe in pipes:
            pipe.send(steps)
        for pipe in pipes:
            pipe.recv()

    found = timed(run, steps, rounds)
    for pipe in pipes:
        pipe.send(None)
    for process in processes:
        process.join()
    return found


def _rows(path: str, place: int, step: int) -> None:
    u = np.memmap(path, mode="r+", shape=(2, ROWS, COLUMNS))
    for row in range(place * ROWS // 2, (place + 1) * ROWS // 2):
        task(u[step % 2][span(row)], u[1 - step % 2][row : row + 1])


def joblib(steps: int, rounds: int) -> float:
    """Two calls a step, with the array in a file that both processes map."""
    import tempfile

    from joblib import Parallel, delayed

    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file, Parallel(n_jobs=2) as parallel:
        file.truncate(2 * ROWS * COLUMNS * 8)

        def run(steps: int) -> None:
            for step in range(steps):
                parallel(delayed(_rows)(file.name, place, step) for place in range(2))

        return timed(run, max(1, steps // 10), rounds)


def ray(steps: int, rounds: int) -> float:
    """Two actors, which pass the rows at their borders through Ray."""
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)

    class Half:
        def __init__(self, place: int) -> None:
            self.place, self.u = place, [np.zeros((ROWS, COLUMNS)) for _ in range(2)]

        def step(self, step: int, border: Any) -> Any:
            x, y = self.u[step % 2], self.u[1 - step % 2]
            first, end = self.place * ROWS // 2, (self.place + 1) * ROWS // 2
            if border is not None:
                x[first - 1 if self.place else end] = border
            for row in range(first, end):
                task(x[span(row)], y[row : row + 1])
            return y[first if self.place else end - 1]

    halves = [ray.remote(Half).remote(place) for place in range(2)]  # type: ignore[attr-defined]

    def run(steps: int) -> None:
        borders: list[Any] = [None, None]
        for step in range(steps):
            borders = [half.step.remote(step, borders[1 - place]) for place, half in enumerate(halves)]
        ray.get(borders)

    try:
        return timed(run, max(1, steps // 10), rounds)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    kind, steps, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    result = ostinato(kind, steps, rounds) if kind in ("auto", "shared", "mpi") else globals()[kind](steps, rounds)
    if result is not None:
        print(result, flush=True)
