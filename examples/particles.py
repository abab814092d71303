"""Particles slide into a bowl until all of them rest; the step in which they do is not known before.

A task moves some thousand particles with NumPy and writes down how fast the fastest of them is. Another task looks at
these speeds, and `ost.until` ends the replay in the step in which the flag is set, as a `break` ends a loop. Without
Ostinato, one would write the loop in NumPy, on arrays of all particles.
"""

import argparse
from typing import Any

import numpy as np
from comparison import Way, compare

import ostinato as ost

TIME = 0.02
FRICTION = 1.5


def slide(x: np.ndarray, v: np.ndarray) -> float:
    """One step of some particles, in place; return how fast the fastest one is."""
    force = x * x
    force += 1.0
    force *= x  # the bowl is steeper further out
    force += FRICTION * v
    force *= TIME
    v -= force
    x += TIME * v
    return float(np.abs(v).max())


@ost.task(releases_gil=True)
def move(x: ost.ReadWrite, v: ost.ReadWrite, fastest: ost.Write) -> None:
    fastest[0] = slide(x, v)


@ost.task
def look(fastest: ost.Read, resting: ost.Write, tolerance: float) -> None:
    resting[0] = fastest.max() < tolerance


def step(x: Any, v: Any, fastest: Any, resting: Any, tolerance: Any) -> None:
    """One step of all particles, part by part."""
    size = -(-len(x) // len(fastest))
    for part in range(len(fastest)):
        some = slice(part * size, (part + 1) * size)
        move(x[some], v[some], fastest[part : part + 1])
    look(fastest, resting, tolerance)
    ost.until(resting)


def vectorised(start: np.ndarray, tolerance: float, most: int) -> np.ndarray:
    """Move all particles at once, until they rest; return where they are, and in the last row the number of steps."""
    x, v = start.copy(), np.zeros_like(start)
    count, resting = 0, False
    while count < most and not resting:
        resting = slide(x, v) < tolerance
        count += 1
    return np.append(x, [[count, count]], axis=0)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--particles", type=int, default=60_000, help="default: %(default)s")
    parser.add_argument("--parts", type=int, default=8, help="tasks that move particles (default: %(default)s)")
    parser.add_argument("--tolerance", type=float, default=0.02, help="the speed at rest (default: %(default)s)")
    parser.add_argument("--most", type=int, default=5000, help="steps at most (default: %(default)s)")
    options = parser.parse_args(argv)

    start = np.random.default_rng(3).normal(size=(options.particles, 2))
    x, v = np.empty_like(start), np.empty_like(start)
    fastest, resting = np.zeros(min(options.parts, options.particles)), np.zeros(1, dtype=bool)

    with ost.compile(step, x, v, fastest, resting, ost.param("tolerance")) as program:

        def replayed() -> np.ndarray:
            x[...], v[...] = start, 0.0
            count = program.replay(options.most, tolerance=options.tolerance)
            return np.append(x, [[count, count]], axis=0)

        print(f"{len(start)} particles in {len(fastest)} parts rest after {int(replayed()[-1, 0])} steps")
        return compare(
            [
                Way("Ostinato", replayed),
                Way(
                    "NumPy, all particles at once",
                    lambda: vectorised(start, options.tolerance, options.most),
                    why_faster="with few particles in a part, the calls of NumPy cost more than their work",
                ),
            ]
        )


if __name__ == "__main__":
    raise SystemExit(main())
