"""Heat on a plate, several steps at a time: what is tuned, in a module of its own, where workers find it."""

import functools
from collections.abc import Callable

import numba
import numpy as np

from ostinato.tune.checking import equal_within

STEPS = 8
RATE = np.float32(0.2)


@numba.njit
def step(old, new, up, left, height, width, down, right):
    """One step of `height` rows of `width` cells, which begin at (up, left) in `old`, and at (down, right) in `new`."""
    for i in range(height):
        over = old[up + i - 1, left : left + width]
        here = old[up + i, left - 1 : left + width + 1]
        under = old[up + i + 1, left : left + width]
        out = new[down + i, right : right + width]
        for j in range(width):
            around = over[j] + under[j] + here[j] + here[j + 2]
            out[j] = here[j + 1] + RATE * (around - np.float32(4) * here[j + 1])


def compiled(rows: int, columns: int, steps: int) -> Callable[[np.ndarray, np.ndarray], None]:
    """Return a function that does `steps` steps of a plate, block by block.

    A block's first steps are done in two arrays of its own, on so many cells around it too that it need not wait for
    its neighbours: cells near an edge are computed twice, but all stay in the cache from the first step to the last.
    """
    height, width = (rows + 2 * steps, columns + 2 * steps) if steps > 1 else (0, 0)

    @numba.njit(["void(float32[:,::1], float32[:,::1])"], cache=True)
    def sweep(old, new):
        end = old.shape[0] - 1
        spare = np.empty((2, height, width), np.float32)
        for top in range(1, end, rows):
            for left in range(1, end, columns):
                if min(top, left) <= steps or max(top + rows, left + columns) >= end - steps:
                    spare[:] = 0  # the plate's edge is cold
                source, above, beside = old, 0, 0
                for ahead in range(steps - 1, -1, -1):
                    target, over, before = (new, 0, 0) if ahead == 0 else (spare[ahead % 2], top - steps, left - steps)
                    i, m = max(top - ahead, 1), min(top + rows + ahead, end)
                    j, n = max(left - ahead, 1), min(left + columns + ahead, end)
                    step(source, target, i - above, j - beside, m - i, n - j, i - over, j - before)
                    source, above, beside = target, over, before

    return sweep


def compile_ahead(rows: int, columns: int, steps: int) -> None:
    """Compile in the compile pool, while no device waits; Numba's cache takes the machine code to the worker."""
    compiled(rows, columns, steps)


def plate(key: dict[str, int]) -> np.ndarray:
    """A plate with hot spots, whose edge is cold."""
    size = key["size"]
    field = np.zeros((size, size), np.float32)
    field[tuple(np.random.default_rng(1).integers(1, size - 1, (2, size)))] = 100
    return field


def heat(rows: int, columns: int, steps: int, prepared: None, inputs: np.ndarray) -> Callable[[], np.ndarray]:
    """The candidate: STEPS steps from the same plate, again and again."""
    sweep = compiled(rows, columns, steps)
    fields = np.zeros_like(inputs), np.zeros_like(inputs)

    def run() -> np.ndarray:
        sweep(inputs, fields[0])
        for number in range(1, STEPS // steps):
            sweep(fields[(number - 1) % 2], fields[number % 2])
        return fields[(STEPS // steps - 1) % 2][1:-1, 1:-1]  # its frame is nobody's result

    run.workspace = 8 * (rows + 2 * steps) * (columns + 2 * steps) if steps > 1 else 0
    return run


def same(field: np.ndarray, key: dict[str, int]) -> None:
    equal_within(field, expected(key["size"]), rtol=1e-5, atol=1e-4)


@functools.cache
def expected(size: int) -> np.ndarray:
    """What NumPy makes of the plate."""
    field = plate({"size": size})
    for _ in range(STEPS):
        inner = field[1:-1, 1:-1]
        around = field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:]
        field[1:-1, 1:-1] = inner + RATE * (around - 4 * inner)
    return field[1:-1, 1:-1]
