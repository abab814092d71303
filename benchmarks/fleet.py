"""A fleet of eight simulated hosts of eight devices beside others that spread the same candidates over a cluster.

A candidate sleeps for 50 ms, and nothing is computed. So the devices' time that is lost is what each of them costs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.context import Context
from benchmarks.measure import Row
from benchmarks.peers import Absent

BENCHMARK = "fleet"
OURS, RAY = "ostinato, fleet of Ray", "a task of Ray for each candidate"
RAY_TUNE, OPTUNA = "Ray Tune", "Optuna, shared storage (a journal)"
IDEAL, HEAD = "share of the devices' time that candidates take", "the caller, share of a core"
HOSTS, DEVICES, SECONDS = 8, 8, 0.05
FEW = 1  # candidate of each device for Ray Tune, which takes half a second for each trial here


def run(context: Context) -> None:
    """Search on a cluster on this machine; its devices only sleep."""
    for peer, module in ((RAY, "ray"), (RAY_TUNE, "ray.tune"), (OPTUNA, "optuna")):
        try:
            __import__(module)
        except ImportError as error:
            context.absent.append(Absent(peer, str(error)))
    if any(absent.name == RAY for absent in context.absent):
        return
    rounds, each = (1, 10) if context.quick else (5, 60)
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.fleet", str(rounds), str(each)]
    root = Path(__file__).parent.parent
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root, env=dict(os.environ))
    for case, contestant, samples in json.loads(ran.stdout.splitlines()[-1]):
        context.rows.append(Row(BENCHMARK, case, contestant, "", tuple(samples), None))


def _measure(rounds: int, each: int) -> list[tuple[str, str, list[float]]]:
    import ray
    from ray.cluster_utils import Cluster

    import ostinato as ost

    head = {"num_cpus": DEVICES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(HOSTS - 1):
        cluster.add_node(num_cpus=DEVICES)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    cluster.wait_for_nodes()
    count = HOSTS * DEVICES * each
    # A call to warm up, and three samples.
    names = ",".join(f"sim:{letter}?latency={SECONDS / 4}" for letter in "abcdefgh"[:DEVICES])
    policy = ost.Policy(min_samples=3, max_seconds=SECONDS / 2)

    @ray.remote(num_cpus=1)
    def nap() -> None:
        time.sleep(SECONDS)

    peers: dict[str, Callable[[], float]] = {RAY: lambda: _timed(lambda: ray.get([nap.remote() for _ in range(count)]))}
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
            screening = max(span.end for span in report.spans if span.what == "measure")
            ours = {IDEAL: count * SECONDS / (HOSTS * DEVICES * screening), HEAD: used / taken}
            theirs = {peer: count * SECONDS / (HOSTS * DEVICES * search()) for peer, search in peers.items()}
            if number:  # the first round starts workers
                for case, value in ours.items():
                    found.setdefault((case, OURS), []).append(value)
                for peer, value in theirs.items():
                    found.setdefault((IDEAL, peer), []).append(value)
    for peer, search in ((RAY_TUNE, _ray_tune), (OPTUNA, _optuna)):
        try:
            found[IDEAL, peer] = [search(count if peer == OPTUNA else FEW * HOSTS * DEVICES)]
        except ImportError:
            continue
    return [(case, contestant, samples) for (case, contestant), samples in found.items()]


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _nap(config: dict[str, Any]) -> dict[str, float]:
    time.sleep(SECONDS)
    return {"time": SECONDS}


def _ray_tune(count: int) -> float:
    """Return the share of the time of 64 slots that candidates take, each of them a trial."""
    from ray import tune

    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    with TemporaryDirectory() as directory:
        tuner = tune.Tuner(
            tune.with_resources(_nap, {"cpu": 1}),
            param_space={"number": tune.grid_search(list(range(count)))},
            tune_config=tune.TuneConfig(max_concurrent_trials=HOSTS * DEVICES, reuse_actors=True),
            run_config=tune.RunConfig(storage_path=directory, verbose=0),
        )
        seconds = _timed(tuner.fit)
    return count * SECONDS / (HOSTS * DEVICES * seconds)


def _optuna(count: int) -> float:
    """Return the same of eight processes with eight threads each, which share a journal."""
    import optuna  # noqa: F401

    with TemporaryDirectory() as directory:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.fleet", "optuna", f"{directory}/journal"]
        pipe = subprocess.PIPE
        hosts = [
            subprocess.Popen([*command, str(count // HOSTS)], stdin=pipe, stdout=pipe, text=True) for _ in range(HOSTS)
        ]
        for host in hosts:
            assert host.stdout is not None
            host.stdout.readline()
        begin = time.perf_counter()
        for host in hosts:
            assert host.stdin is not None
            host.stdin.write("begin\n")
            host.stdin.flush()
        for host in hosts:
            assert host.stdout is not None
            host.stdout.readline()
        seconds = time.perf_counter() - begin
        for host in hosts:
            host.communicate()
    return count * SECONDS / (HOSTS * DEVICES * seconds)


def _optuna_host(journal: str, count: int) -> None:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial: optuna.Trial) -> float:
        return _nap({"number": trial.suggest_int("number", 0, 1 << 20)})["time"]

    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(journal)),
        study_name="nap",
        sampler=optuna.samplers.RandomSampler(),
        load_if_exists=True,
    )
    print("ready", flush=True)
    sys.stdin.readline()
    study.optimize(objective, n_trials=count, n_jobs=DEVICES)
    print("end", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "optuna":
        _optuna_host(sys.argv[2], int(sys.argv[3]))
    else:
        print(json.dumps(_measure(int(sys.argv[1]), int(sys.argv[2]))))
