"""A profiler binary that prints `OP:name,TIME:ms,WS:bytes` for many kernels, run in the two ways that there are.

First as programs that were written for AITemplate's profiler runner do it: one command per problem, callbacks, and a
delegate that brings the results together. Then as a candidate of the tuner, which keeps what it finds. The problems are
the matrix multiplications of a BERT layer, for a text of 48 tokens.
"""

import argparse
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import ostinato as ost
from ostinato.profiler_runner import ProfileResult, ProfilerRunner

HERE = Path(__file__).resolve().parent
BUILD = ["c++", "-std=c++17", "-O3", "-march=native", "gemm_profiler.cpp", "-o"]
ITERATIONS = 10  # of which the profiler prints the sum
TOKENS = 48
PROBLEMS = {  # columns of the result, and length of the sums
    "attention in": (2304, 768),
    "attention out": (768, 768),
    "feed forward in": (3072, 768),
    "feed forward out": (768, 3072),
}


class Kernels:
    """The delegate: which kernel each problem gets."""

    def __init__(self) -> None:
        self.chosen: dict[str, ProfileResult] = {}

    def postprocess_results(self) -> None:
        for problem, result in self.chosen.items():
            milliseconds = result.duration / ITERATIONS
            print(f"{problem:17} {result.op_config:17} {milliseconds:7.3f} ms {result.workspace:7} bytes")


def choose(problem: str, result: ProfileResult, kernels: Kernels) -> None:
    """The callback: gets the fastest result of its command, and the delegate."""
    kernels.chosen[problem] = result


def as_before(program: str, problems: dict[str, tuple[int, int]]) -> Kernels:
    kernels = Kernels()
    runner = ProfilerRunner(devices=None, postprocessing_delegate=kernels, timeout=60)
    for problem, (columns, length) in problems.items():
        runner.push([program, str(TOKENS), str(columns), str(length)], partial(choose, problem))
    runner.join()
    return kernels


def as_candidate(device: str, columns: int, length: int) -> ost.Report:
    profiler = ost.Candidate.command(
        ["{scratch}/gemm_profiler", str(TOKENS), str(columns), str(length)],
        cwd=HERE,
        iterations=ITERATIONS,
        build=[*BUILD, "{scratch}/gemm_profiler"],
    )
    with ost.Tuner([device]) as tuner:
        return tuner.tune("gemm", [profiler], key={"m": TOKENS, "n": columns, "k": length})


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the two smallest problems only")
    parser.add_argument("--device", default="cpu:0", help="where the candidate is measured (default: %(default)s)")
    parser.add_argument("--report", type=Path, help="where to write the report (.html, .json or .csv)")
    options = parser.parse_args(argv)

    problems = dict(sorted(PROBLEMS.items(), key=lambda item: item[1])[:2]) if options.quick else PROBLEMS
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([*BUILD, f"{directory}/gemm_profiler"], cwd=HERE, check=True)
        kernels = as_before(f"{directory}/gemm_profiler", problems)

    problem, sizes = next(iter(problems.items()))
    report = as_candidate(options.device, *sizes)
    print(f"\n{problem}, by the tuner:\n{report.table(most=10)}\n\n{report.why()}")
    if options.report:
        report.save(options.report)
        print(f"report: {options.report}")
    return 0 if kernels.chosen.keys() == problems.keys() and report.best is not None else 1


if __name__ == "__main__":
    raise SystemExit(main())
