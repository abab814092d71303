"""A search over the devices of many hosts: those of a Ray cluster.

Without an address, Ray starts a cluster of this machine, so that the example runs anywhere. On a cluster, run it with
`--fleet ray://HOST:10001`, or as a job of the cluster with `--fleet ray`. With MPI: `srun python tune.py --fleet mpi`.
"""

import argparse
from collections import Counter
from pathlib import Path

import rows

import ostinato as ost


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer candidates")
    parser.add_argument("--fleet", default="ray", help="ray, ray://HOST:PORT or mpi (default: %(default)s)")
    parser.add_argument("--devices", default="cpu:0", help="of each host (default: %(default)s)")
    parser.add_argument("--report", type=Path, help="where to write the report (.html, .json or .csv)")
    options = parser.parse_args(argv)

    sizes = [1, 16, 256] if options.quick else [2**n for n in range(11)]
    candidates = [ost.Candidate.call(rows.sums, {"at_once": size}, setup=rows.table) for size in sizes]
    try:
        tuner = ost.Tuner(options.devices, fleet=options.fleet)
    except (ImportError, ost.TuningError) as error:  # Ray is not installed, or there is no such cluster
        print(error)
        return 1
    with tuner:
        report = tuner.tune("sums", candidates, key={"rows": 1024}, default=candidates[0], verify=rows.right)
    print(report.table(most=10))
    print(f"\n{report.why()}")
    for host, count in Counter(span.where.partition("/")[0] for span in report.spans).items():
        print(f"{host} measured {count} times")
    if options.report:
        report.save(options.report)
        print(f"report: {options.report}")
    return 0 if report.best is not None else 1


if __name__ == "__main__":
    raise SystemExit(main())
