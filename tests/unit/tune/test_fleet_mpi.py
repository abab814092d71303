"""A fleet over MPI: every rank makes the tuner, and every rank gets the report."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

MPIEXEC = os.environ.get("OSTINATO_TEST_MPIEXEC") or shutil.which(
    "mpiexec", path=os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
)
"""That of the library that mpi4py loads; with another library, name both: ``OSTINATO_TEST_MPIEXEC=...
MPI4PY_LIBMPI=...``."""

# Open MPI starts as many ranks as there are cores, and as root none, unless it is told otherwise.
RANKS_ENVIRONMENT = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
    pytest.mark.skipif(MPIEXEC is None, reason="there is no mpiexec"),
]

TESTS = Path(__file__).parents[2]
MODULES = os.pathsep.join((str(TESTS), str(TESTS / "unit")))

# Ranks on one machine count as hosts of their own, as they would be on several.
RANKS = """
    import json, os, sys
    from collections import Counter
    import ostinato as ost
    from ostinato.tune.fleet import mpi

    made = mpi.World.__init__

    def apart(self):
        made(self)
        self.hosts = [(f"node{rank}", rank) for rank in range(self.size)]

    if HOSTS:
        mpi.World.__init__ = apart
    naps = [ost.Candidate.call("tune.candidates:napping", {"number": n}) for n in range(40)]

    def tell(told):
        os.write(1, (json.dumps(told) + "\\n").encode())  # at once: ranks share the pipe
"""


def on_ranks(count, script, tmp_path, *, hosts=True):
    """Run a script on so many ranks; return what each of them prints as JSON, and the process."""
    whole = textwrap.dedent(RANKS).replace("HOSTS", str(hosts)) + textwrap.dedent(script)
    (tmp_path / "script.py").write_text(whole)
    ran = subprocess.run(
        [MPIEXEC, "-n", str(count), sys.executable, "script.py"],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tmp_path,
        env={**os.environ, **RANKS_ENVIRONMENT, "PYTHONPATH": MODULES},
    )
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")], ran


@pytest.mark.parametrize(("ranks", "hosts"), [(1, False), (3, False), (3, True)])
def test_every_rank_gets_the_report(tmp_path, ranks, hosts):
    script = """
        with ost.Tuner("sim:a,sim:b", store="tune.db", progress=False, fleet="mpi") as tuner:
            report = tuner.tune("nap", naps)
            again = tuner.tune("nap", naps)
        told = {
            "statuses": Counter(str(result.status) for result in report.results),
            "devices": sorted({result.device.partition("/")[0] for result in report.results}),
            "best": report.best.candidate.config["number"],
            "cached": all(result.cached for result in again.results),
        }
        tell(told)
    """
    found, ran = on_ranks(ranks, script, tmp_path, hosts=hosts)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert len(found) == ranks
    for told in found:
        assert told == found[0]
        assert told["statuses"].keys() <= {"ok", "raced"}
        assert sum(told["statuses"].values()) == 40
        assert told["best"] == 0
        assert told["cached"]
    assert len(found[0]["devices"]) == (ranks if hosts else 1)


def test_what_rank_0_raises_is_raised_everywhere(tmp_path):
    script = """
        try:
            ost.Tuner("cpu:9999", store=False, fleet="mpi")
        except ost.DeviceError as error:
            tell({"init": str(error)})
        with ost.Tuner("sim:a", store=False, progress=False, fleet="mpi") as tuner:
            try:
                tuner.tune("nap", naps, verify="tune.candidates:no_such_check")
            except ost.TuningError as error:
                tell({"tune": str(error)})
            tell({"best": tuner.tune("nap", naps[:3]).best.candidate.config["number"]})
    """
    found, ran = on_ranks(2, script, tmp_path)
    assert ran.returncode == 0, ran.stderr[-4000:]
    init = [told["init"] for told in found if "init" in told]
    assert len(init) == 2
    assert "there is no cpu:9999" in init[0]
    assert ["cannot be used as a check" in told["tune"] for told in found if "tune" in told] == [True, True]
    assert [told["best"] for told in found if "best" in told] == [0, 0]


def test_the_command_line_prints_once(tmp_path):
    (tmp_path / "job.toml").write_text(
        'op = "nap"\ndevices = ["sim:a"]\n[space]\nnumber = [3, 1, 2]\n[call]\nfactory = "tune.candidates:napping"\n'
    )
    command = [sys.executable, "-m", "ostinato", "tune", "job.toml", "--fleet", "mpi"]
    ran = subprocess.run(
        [MPIEXEC, "-n", "2", *command],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tmp_path,
        env={**os.environ, **RANKS_ENVIRONMENT, "PYTHONPATH": MODULES, "COLUMNS": "200"},
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert ran.stdout.count("number=1") >= 1
    assert ran.stdout.count("is the fastest") <= 1


def test_a_graph_is_tuned_on_hosts_of_mpi(tmp_path):
    """Rank 0 asks the store, and every rank gets the reports; what it raises is raised everywhere."""
    script = """
        from tune.graphs import tasks
        from ostinato.tune.graphs import tune_graph

        tune_graph.OF_EACH_HOST = "sim:graph"
        for _ in range(2):
            reports = tasks.graph_of(1.0, size=64).tune(store="tune.db", progress=False, fleet="mpi")
        report = reports["relax"]
        tell({"best": report.best.candidate.config["variant"], "cached": [r.cached for r in report.results]})
        try:
            tasks.graph_of(1.0, size=32).tune(store="/", progress=False, fleet="mpi")
        except ost.TuningError as error:
            tell({"raised": type(error).__name__})
    """
    found, ran = on_ranks(2, script, tmp_path)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert [told for told in found if "best" in told] == [{"best": "at_once", "cached": [True] * 4}] * 2
    assert len([told for told in found if "raised" in told]) == 2
