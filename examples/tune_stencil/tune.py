"""A stencil that Numba compiles, whose blocks are tuned: their height and width, and how many steps each does at once.

The candidates are callables of `stencil.py`, in a module of its own so that the tuner's workers can import it. They are
compiled in the compile pool, timed in a worker that keeps its plate from one to the next, and checked against NumPy.
The default is the plain loop: the whole plate, one step at a time.
"""

import argparse
from pathlib import Path

import stencil

import ostinato as ost


def space(size: int, quick: bool) -> ost.Space:
    whole = size - 2  # without the edge
    rows, columns, steps = (
        ([64, whole], [whole], [1, 8]) if quick else ([16, 64, 256, whole], [256, 1024, whole], [1, 4, 8])
    )
    return ost.Space(
        {"rows": rows, "columns": columns, "steps": steps},
        where=lambda c: c["rows"] < whole or (c["columns"] == whole and c["steps"] == 1),
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer candidates, and a smaller plate")
    parser.add_argument("--devices", default="cpu:0", help="where to measure (default: %(default)s)")
    parser.add_argument("--report", type=Path, help="where to write the report (.html, .json or .csv)")
    options = parser.parse_args(argv)

    size = 514 if options.quick else 4096
    candidates = [
        ost.Candidate.call(stencil.heat, config, prepare=stencil.compile_ahead, setup=stencil.plate)
        for config in space(size, options.quick)
    ]
    policy = ost.Policy(rel_ci=0.02, max_seconds=0.5)  # a call takes long: few samples, of which each says much
    with ost.Tuner(options.devices, policy=policy) as tuner:
        report = tuner.tune("heat", candidates, key={"size": size}, default=candidates[-1], verify=stencil.same)
    print(report.table(most=10))
    print(f"\n{report.why()}")
    if options.report:
        report.save(options.report)
        print(f"report: {options.report}")
    return 0 if report.best is not None else 1


if __name__ == "__main__":
    raise SystemExit(main())
