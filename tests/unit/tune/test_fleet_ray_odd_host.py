"""One node of a Ray cluster is slow, has no room on its disk, other code, or devices of another model."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import textwrap

import pytest

from support.ray_cluster import MODULES, in_cluster

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

# Names of nodes: those of one host are told apart in the order of their ids.
NAMES = """
import os
ids = sorted(node["NodeID"] for node in ray.nodes())
host = os.uname().nodename
names = [host if not number else f"{host}#{number + 1}" for number in range(len(ids))]
odd = names[ids.index(nodes[-1].node_id)]
def by_host(report):
    return Counter(span.where.partition("/")[0] for span in report.spans if span.what == "measure")
"""


def with_odd_node(script, tmp_path, odd, **environment):
    """Run a script where one of three nodes, `odd`, has that in its environment."""
    return in_cluster(NAMES + textwrap.dedent(script), 60, tmp_path, odd=odd, **environment)


def test_a_slow_node_does_not_decide_who_wins(tmp_path):
    script = """
        with ost.Tuner("sim:a", store=False, progress=False, fleet="ray") as tuner:
            report = tuner.tune("nap", [ost.Candidate.call("tune.candidates:slowed", each.config) for each in naps])
        told["hosts"], told["odd"] = by_host(report), odd
        told["statuses"] = Counter(str(result.status) for result in report.results)
        told["best"] = report.best.candidate.config["number"]
    """
    told = with_odd_node(script, tmp_path, {"OSTINATO_TEST_SLOWER": "3"})
    assert len(told["hosts"]) == 3
    assert told["hosts"][told["odd"]] > 0
    assert told["statuses"].keys() <= {"ok", "raced"}
    assert told["best"] == 0


def test_other_code_and_another_model_on_a_node_are_named(tmp_path):
    trees = []
    for number in (1, 2):
        tree = tmp_path / str(number)
        tree.mkdir()
        (tree / "other_kernels.py").write_text(f"def nothing(n):\n    return lambda: {number}\n")
        trees.append(tree)
    script = """
        calls = [ost.Candidate.call("other_kernels:nothing", {"n": n}) for n in range(30)]
        with ost.Tuner("sim:a", store=False, progress=False, fleet="ray") as tuner:
            report = tuner.tune("other", calls)
        told["found"] = [[str(each.status), each.device, each.message] for each in report.results]
        told["best"] = report.best.device
        told["odd"] = odd
        first = next(name for name in names if name != odd)
        with ost.Tuner([f"{first}/sim:a", f"{odd}/sim:a?latency=0.1"], store=False, fleet="ray") as tuner:
            try:
                tuner.tune("other", calls)
            except ost.TuningError as error:
                told["models"] = str(error)
        told["first"] = first
    """
    paths = [f"{MODULES}:{tree}" for tree in trees]
    told = with_odd_node(script, tmp_path, {"PYTHONPATH": paths[1]}, PYTHONPATH=paths[0])
    invalid = [(device, message) for status, device, message in told["found"] if status == "invalid"]
    assert invalid
    for device, message in invalid:
        assert device == f"{told['odd']}/sim:a"
        assert "the code of other_kernels:nothing differs from the caller's: host " in message
        assert os.fspath(trees[1] / "other_kernels.py") in message
    assert {status for status, *_ in told["found"]} <= {"ok", "raced", "invalid"}
    assert not told["best"].startswith(f"{told['odd']}/")
    assert "must be of one model" in told["models"]
    assert f"simulated: {told['first']}/sim:a;" in told["models"]
    assert f"{told['odd']}/sim:a?latency=0.1" in told["models"]


def test_what_a_node_without_room_cannot_build_is_built_elsewhere(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=2", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("a file system can be mounted only by root")
    script = """
        with ost.Tuner("sim:a", store=False, progress=False, fleet="ray") as tuner:
            prepare = "tune.candidates:prepare_double"
            prepared = [ost.Candidate.call("tune.candidates:twice", {"n": n}, prepare=prepare) for n in range(30)]
            report = tuner.tune("double", prepared)
        told["hosts"], told["odd"] = by_host(report), odd
        told["statuses"] = Counter(str(result.status) for result in report.results)
    """
    try:
        told = with_odd_node(script, tmp_path, {"TMPDIR": os.fspath(disk)})
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
    assert len(told["hosts"]) == 2
    assert told["odd"] not in told["hosts"]
    assert told["statuses"].keys() <= {"ok", "raced"}
    assert sum(told["statuses"].values()) == 30
