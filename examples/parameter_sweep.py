"""A sweep over a parameter: independent runs of one program, each with a field of its own.

Successive over-relaxation solves Poisson's equation; how fast depends on the relaxation factor, of which there is a
best value. A sweep over the field relaxes the black cells of a chess board, then the white ones: the same inner graph
twice. The program is compiled once, with `runs="concurrent"`; each run is given its factor and its field, and the runs
share the machine as they come.
"""

import argparse
import operator
import time

import numpy as np

import ostinato as ost


class Plate:
    """A square field, heated everywhere and kept at 0 along its edges, and the residuals after each sweep."""

    def __init__(self, size: int) -> None:
        self.heat = 1 / (size + 1) ** 2
        self.field = np.zeros((size + 2, size + 2))
        rows, columns = np.indices((size, size))
        self.colours = [(rows + columns) % 2 == colour for colour in (0, 1)]
        self.residuals: list[float] = []

    def missing(self) -> np.ndarray:
        """How far each cell is from the mean of its neighbours plus its heat."""
        u = self.field
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return (around + self.heat) / 4 - u[1:-1, 1:-1]


@ost.task(releases_gil=True)
def relax(plate: Plate, colour: int, factor: float) -> None:
    cells = plate.colours[colour]
    plate.field[1:-1, 1:-1][cells] += factor * plate.missing()[cells]


@ost.task
def measure(plate: Plate) -> None:
    plate.residuals.append(float(np.abs(plate.missing()).max()))


def sweep_of_a_plate() -> ost.Graph:
    """One step: tasks without arrays keep program order, so nothing else need be said."""
    half = ost.Graph()
    factor = half.param("factor", 1.0, combine=operator.add)  # what is given is what goes beyond 1
    half.task(relax, half.param("plate"), half.param("colour"), factor)

    whole = ost.Graph()
    plate, excess = whole.param("plate"), whole.param("excess")
    for colour in (0, 1):
        whole.subgraph(half, {"plate": plate, "colour": colour, "factor": excess})
    whole.task(measure, plate)
    return whole


def plain_loop(size: int, sweeps: int, excess: float) -> list[float]:
    plate = Plate(size)
    for _ in range(sweeps):
        for colour in (0, 1):
            relax(plate, colour, 1.0 + excess)
        measure(plate)
    return plate.residuals


def concurrent(size: int, sweeps: int, excesses: list[float]) -> list[list[float]]:
    plates = [Plate(size) for _ in excesses]
    with ost.Machine() as machine, sweep_of_a_plate().compile(machine, runs="concurrent") as program:
        runs = [
            program.submit(sweeps, plate=plate, excess=excess) for plate, excess in zip(plates, excesses, strict=True)
        ]
        for run in runs:
            run.result()  # raises what a task raised
    return [plate.residuals for plate in plates]


def show(excesses: list[float], results: list[list[float]]) -> None:
    longest = max(np.log10(residuals[0] / residuals[-1]) for residuals in results)
    for excess, residuals in zip(excesses, results, strict=True):
        digits = np.log10(residuals[0] / residuals[-1])
        print(f"{1 + excess:.3f}  {residuals[-1]:.1e}  " + "#" * round(60 * digits / longest))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=48, help="cells on a side (default: %(default)s)")
    parser.add_argument("--sweeps", type=int, default=150, help="of each run (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=20, help="factors that are tried (default: %(default)s)")
    options = parser.parse_args(argv)
    excesses = np.linspace(0.5, 0.99, options.runs).tolist()

    start = time.perf_counter()
    expected = [plain_loop(options.size, options.sweeps, excess) for excess in excesses]
    between = time.perf_counter()
    results = concurrent(options.size, options.sweeps, excesses)
    end = time.perf_counter()

    show(excesses, results)
    best = excesses[int(np.argmin([residuals[-1] for residuals in results]))]
    theory = 2 / (1 + np.sin(np.pi / (options.size + 1)))
    print(f"best factor {1 + best:.3f}, by theory {theory:.3f}")
    print(f"one after the other {between - start:.2f} s, at once {end - between:.2f} s")
    print(f"residuals equal bit for bit: {'yes' if results == expected else 'NO'}")
    return 0 if results == expected else 1


if __name__ == "__main__":
    raise SystemExit(main())
