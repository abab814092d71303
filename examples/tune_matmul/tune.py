"""A matrix multiplication in C++ whose blocks and compiler flags are tuned.

Each candidate is compiled by the tuner, runs by itself on one of two cores, says how long each multiplication took, and
leaves its product, which NumPy checks. The default is the loop that everybody writes first. `matmul.toml` describes the
same search for the command line: `ostinato tune examples/tune_matmul/matmul.toml --report matmul.html`.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import ostinato as ost

HERE = Path(__file__).resolve().parent
BUILD = (
    "c++ {optimize} {target} -DROWS={rows} -DLANES={lanes} -DDEPTH={depth} -DUNROLL={unroll} "
    "-o {scratch}/matmul matmul.cpp"
)


def space(n: int, quick: bool) -> ost.Space:
    parameters: dict[str, list[Any]] = {
        "rows": [1, 2, 4, 8],
        "lanes": [1, 8, 16, 32],
        "depth": [n // 4, n],
        "unroll": [1, 4],
        "optimize": ["-O2", "-O3"],
        "target": ["-mtune=native", "-march=native"],
    }
    if quick:
        parameters |= {"rows": [1, 4], "lanes": [1, 8, 16], "optimize": ["-O2"]}
    plain_or_blocks = [
        lambda c: (c["rows"] == 1) == (c["lanes"] == 1),
        lambda c: c["lanes"] > 1 or (c["depth"] == n and c["unroll"] == 1),  # of the plain loop there is one
        lambda c: c["rows"] * c["lanes"] <= 128,  # more sums than registers hold
    ]
    return ost.Space(parameters, where=plain_or_blocks)


def candidate(config: dict[str, Any], n: int, seconds: float) -> ost.Candidate:
    return ost.Candidate.command(["{scratch}/matmul", f"{n}", f"{seconds}"], config, cwd=HERE, build=BUILD.split())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer candidates, and smaller matrices")
    two = "cpu:0,cpu:1" if len(os.sched_getaffinity(0)) > 1 else "cpu:0"
    parser.add_argument("--devices", default=two, help="where to measure (default: %(default)s)")
    parser.add_argument("--report", type=Path, help="where to write the report (.html, .json or .csv)")
    options = parser.parse_args(argv)

    n, seconds = (96, 0.01) if options.quick else (384, 0.3)
    candidates = [candidate(config, n, seconds) for config in space(n, options.quick)]
    plain = {"rows": 1, "lanes": 1, "depth": n, "unroll": 1, "optimize": "-O2", "target": "-mtune=native"}
    with ost.Tuner(options.devices, timeout=60) as tuner:
        report = tuner.tune(
            "matmul", candidates, key={"n": n}, default=candidate(plain, n, seconds), verify="matmul_check:product"
        )
    print(report.table(most=10))
    print(f"\n{report.why()}")
    if options.report:
        report.save(options.report)
        print(f"report: {options.report}")
    return 0 if report.best is not None else 1


if __name__ == "__main__":
    raise SystemExit(main())
