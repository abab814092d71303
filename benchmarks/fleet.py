"""A fleet of eight simulated hosts of eight devices beside others that spread the same candidates over a cluster.

A candidate sleeps for 50 ms, and nothing is computed. So the devices' time that is lost is what each of them costs.
All hosts are on this machine, so that their own work limits the share, too. With Ray each has 8 worker processes; hosts
that only sleep (`sleeping_hosts`) show what the caller, the agents and the messages between them cost without workers.
A plain process for each device, which sleeps as often and does nothing else, shows what the machine itself allows.
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

import ostinato as ost
from benchmarks import sleeping_hosts
from benchmarks.context import Context
from benchmarks.measure import Row
from benchmarks.peers import Absent

BENCHMARK = "fleet"
OURS, SLEEPING = "ostinato, fleet of Ray", "ostinato, hosts that only sleep"
PLAIN = "a plain process for each device"
RAY, RAY_TUNE, OPTUNA = "a task of Ray for each candidate", "Ray Tune", "Optuna, shared storage (a journal)"
IDEAL, FROM_FIRST = "share of the devices' time that candidates take", "the same, from the first candidate on"
START, HEAD = "from the call to the first candidate, s", "the caller, share of a core"
HOSTS, DEVICES, SECONDS = 8, 8, 0.05
FEW = 1  # candidate of each device for Ray Tune, which takes half a second for each trial here
FEWER = 20  # the same for Optuna, whose processes all read what each of them writes
_SLEEPS = "import sys, time; input(); [time.sleep(float(sys.argv[2])) for _ in range(int(sys.argv[1]))]"


def run(context: Context) -> None:
    """Search on a cluster on this machine; its devices only sleep."""
    for peer, module in ((RAY, "ray"), (RAY_TUNE, "ray.tune"), (OPTUNA, "optuna")):
        try:
            __import__(module)
        except ImportError as error:
            context.absent.append(Absent(peer, str(error)))
    if any(absent.name == RAY for absent in context.absent):
        return
    rounds, each = (1, 10) if context.quick else (3, 100)
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.fleet", str(rounds), str(each)]
    root = Path(__file__).parent.parent
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root, env=dict(os.environ))
    for case, contestant, samples in json.loads(ran.stdout.splitlines()[-1]):
        context.rows.append(Row(BENCHMARK, case, contestant, "", tuple(samples), None))


def _measure(rounds: int, each: int) -> list[tuple[str, str, list[float]]]:
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": DEVICES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(HOSTS - 1):
        cluster.add_node(num_cpus=DEVICES)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    cluster.wait_for_nodes()
    count = HOSTS * DEVICES * each

    @ray.remote(num_cpus=1)
    def nap() -> None:
        time.sleep(SECONDS)

    def naps() -> dict[str, float]:
        seconds = _timed(lambda: ray.get([nap.remote() for _ in range(count)]))
        return {IDEAL: count * SECONDS / (HOSTS * DEVICES * seconds)}

    ray.get([nap.remote() for _ in range(4 * HOSTS * DEVICES)])  # starts the processes
    found: dict[tuple[str, str], list[float]] = {}
    sleeping_hosts.offer()
    with (
        TemporaryDirectory() as directory,
        sleeping_hosts.hosts(Path(directory), HOSTS, SECONDS) as address,
        _tuner("ray", f"{directory}/ray.db") as on_ray,
        _tuner(address, f"{directory}/sleeping.db") as sleeping,
    ):
        for number in range(rounds + 1):
            told = {
                OURS: _search(on_ray, number * count, count),
                SLEEPING: _search(sleeping, number * count, count),
                RAY: naps(),
                PLAIN: _plain(each),
            }
            for contestant, values in told.items() if number else ():  # the first round starts workers
                for case, value in values.items():
                    found.setdefault((case, contestant), []).append(value)
    for peer, search in ((RAY_TUNE, _ray_tune), (OPTUNA, _optuna)):
        try:
            found[IDEAL, peer] = [search((FEWER if peer == OPTUNA else FEW) * HOSTS * DEVICES)]
        except ImportError:
            continue
    return [(case, contestant, samples) for (case, contestant), samples in found.items()]


def _tuner(fleet: str, store: str) -> ost.Tuner:
    names = ",".join(f"sim:{letter}?latency={SECONDS}" for letter in "abcdefgh"[:DEVICES])
    policy = ost.Policy(min_samples=1, max_seconds=SECONDS)  # the one call of each candidate
    return ost.Tuner(names, store=store, progress=False, policy=policy, fleet=fleet)


def _search(tuner: ost.Tuner, first: int, count: int) -> dict[str, float]:
    candidates = [ost.Candidate.call("benchmarks.tuning_candidates:empty", {"number": first + n}) for n in range(count)]
    begin, used = time.perf_counter(), time.process_time()
    report = tuner.tune("nap", candidates, anew=True)  # ignore results of an earlier search
    used, taken = time.process_time() - used, time.perf_counter() - begin
    if any(result.status != "ok" or result.time_ns < 0.99e9 * SECONDS for result in report.results):
        raise RuntimeError(f"not every candidate took its {1e3 * SECONDS:g} ms:\n{report.table()}")
    spans = [span for span in report.spans if span.what == "measure"]
    start, end = min(span.begin for span in spans), max(span.end for span in spans)
    ideal = count * SECONDS / (HOSTS * DEVICES)
    return {IDEAL: ideal / end, FROM_FIRST: ideal / (end - start), START: start, HEAD: used / taken}


def _plain(each: int) -> dict[str, float]:
    """Have a process for each device sleep; they are started before."""
    command = [sys.executable, "-S", "-c", _SLEEPS, str(each), str(SECONDS)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(HOSTS * DEVICES)]
    time.sleep(2)

    def sleep() -> None:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.close()
        for process in processes:
            process.wait()

    return {IDEAL: each * SECONDS / _timed(sleep)}


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
