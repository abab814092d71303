"""A fleet on a Ray cluster of three nodes on this machine."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys

import pytest

import ostinato as ost
from support.ray_cluster import in_cluster

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]


def test_a_node_that_is_killed_costs_nothing(tmp_path):
    script = """
        with ost.Tuner("sim:a,sim:b", store="tune.db", progress=False, fleet="ray") as tuner:
            told["devices"] = repr(tuner)
            threading.Timer(1.0, cluster.remove_node, (nodes[0],), {"allow_graceful": False}).start()
            report = tuner.tune("nap", naps)
        told["statuses"] = Counter(str(result.status) for result in report.results)
        told["distinct"] = len({(result.candidate.id, result.op) for result in report.results})
        told["best"] = report.best.candidate.config["number"]
        with ost.Tuner("sim:a,sim:b", store="tune.db", progress=False, fleet="ray") as tuner:
            told["cached"] = sum(result.cached for result in tuner.tune("nap", naps).results)
    """
    told = in_cluster(script, 600, tmp_path)
    assert told["devices"].count("/sim:a") == 3
    assert "#2/sim:a" in told["devices"]
    assert "#3/sim:a" in told["devices"]
    assert told["statuses"].keys() <= {"ok", "raced"}
    assert sum(told["statuses"].values()) == told["distinct"] == told["cached"] == 600
    assert told["best"] == 0


def test_the_command_line_lists_and_tunes(tmp_path):
    (tmp_path / "job.toml").write_text(
        'op = "nap"\ndevices = ["sim:a"]\n[space]\nnumber = [3, 1, 2]\n[call]\nfactory = "tune.candidates:napping"\n'
    )
    script = """
        import os, subprocess
        os.environ["RAY_ADDRESS"] = cluster.address
        command = [sys.executable, "-W", "ignore", "-m", "ostinato"]
        for name, more in (("devices", ["devices"]), ("tune", ["tune", "job.toml"])):
            ran = subprocess.run([*command, *more, "--fleet", "ray"], capture_output=True, text=True, timeout=120)
            told[name] = [ran.returncode, ran.stdout, ran.stderr[-2000:]]
    """
    told = in_cluster(script, 1, tmp_path, COLUMNS="200")
    assert told["devices"][0] == 0, told
    assert "#3/cpu:0" in told["devices"][1]
    assert told["tune"][0] == 0, told
    assert "number=1" in told["tune"][1]


def test_without_a_cluster_the_error_names_the_address(tmp_path):
    script = "import ostinato as ost\nost.Tuner('sim:a', store=False, fleet='ray://127.0.0.1:1')\n"
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=240)
    assert ran.returncode == 1
    assert "TuningError: the Ray cluster at 'ray://127.0.0.1:1' cannot be reached" in ran.stderr


def test_the_address_of_a_cluster_that_was_killed_is_not_used(tmp_path, monkeypatch):
    """`ray start` writes the address to a file. Ray would try to reach a killed cluster for more than a minute."""
    from ostinato.tune.fleet import ray as engine

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert engine._find_running() == "local"
    (tmp_path / "ray").mkdir()
    for content in (b"127.0.0.1:1", b"\xff\xfe", b"", b"127.0.0.1:port"):
        (tmp_path / "ray" / "ray_current_cluster").write_bytes(content)
        assert engine._find_running() == "local"
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "ray" / "ray_current_cluster").write_text(address + "\n")
        assert engine._find_running() == address
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ost.TuningError, match=r"at '127\.0\.0\.1:1' cannot be reached: .*ray start --head"):
        engine.connect("ray")
