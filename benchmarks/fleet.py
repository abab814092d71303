"""A fleet of eight simulated hosts of eight devices beside the same candidates as tasks of Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.context import Context
from benchmarks.measure import Row
from benchmarks.peers import Absent

BENCHMARK = "fleet"
OURS, RAY = "ostinato, fleet of Ray", "a task of Ray for each candidate"
IDEAL, HEAD = "share of the devices' time that candidates take", "the caller, share of a core"
HOSTS, DEVICES, SECONDS = 8, 8, 0.05


def run(context: Context) -> None:
    """Search on a cluster on this machine; its devices only sleep."""
    try:
        import ray  # noqa: F401
    except ImportError as error:
        context.absent.append(Absent(RAY, str(error)))
        return
    rounds, each = (1, 10) if context.quick else (5, 60)
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.fleet", str(rounds), str(each)]
    root = Path(__file__).parent.parent
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root, env=dict(os.environ))
    for case, contestant, samples in json.loads(ran.stdout.splitlines()[-1]):
        context.rows.append(Row(BENCHMARK, case, contestant, "", tuple(samples), None))


def _measure(rounds: int, each: int) -> list[tuple[str, str, list[float]]]:
    import time
    from tempfile import TemporaryDirectory

    import ray
    from ray.cluster_utils import Cluster

    import ostinato as ost

    head = {"num_cpus": 8, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(HOSTS - 1):
        cluster.add_node(num_cpus=8)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    cluster.wait_for_nodes()
    count = HOSTS * DEVICES * each
    names = ",".join(f"sim:{letter}?latency={SECONDS / 5}" for letter in "abcdefgh"[:DEVICES])
    policy = ost.Policy(min_samples=5, max_seconds=SECONDS)

    @ray.remote(num_cpus=1)
    def nap() -> float:
        time.sleep(SECONDS)
        return SECONDS

    ray.get([nap.remote() for _ in range(4 * HOSTS * DEVICES)])  # starts the processes
    found: dict[tuple[str, str], list[float]] = {}
    with (
        TemporaryDirectory() as directory,
        ost.Tuner(names, store=f"{directory}/tune.db", progress=False, policy=policy, fleet="ray") as tuner,
    ):
        for number in range(rounds + 1):
            candidates = [
                ost.Candidate.call("benchmarks.tuning_candidates:empty", {"number": n + number * count})
                for n in range(count)
            ]
            begin, used = time.perf_counter(), time.process_time()
            report = tuner.tune("nap", candidates, anew=True)
            used, taken = time.process_time() - used, time.perf_counter() - begin
            if any(result.status not in ("ok", "raced") for result in report.results):
                raise RuntimeError(f"not every candidate is ok:\n{report.table()}")
            spans = [span for span in report.spans if span.what in ("measure", "anchor")]
            end = max(span.end for span in spans)
            busy = sum(span.end - span.begin for span in spans) / (HOSTS * DEVICES * end)
            begin = time.perf_counter()
            ray.get([nap.remote() for _ in range(count)])
            theirs = count * SECONDS / (HOSTS * DEVICES * (time.perf_counter() - begin))
            if number:  # the first round starts workers
                found.setdefault((IDEAL, OURS), []).append(busy)
                found.setdefault((IDEAL, RAY), []).append(theirs)
                found.setdefault((HEAD, OURS), []).append(used / taken)
    return [(case, contestant, samples) for (case, contestant), samples in found.items()]


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]), int(sys.argv[2]))))
