"""The contestants of the benchmark `applications` compute the same, and its table is complete."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def called(*command: str | Path) -> str:
    ran = subprocess.run([sys.executable, *command], cwd=ROOT, timeout=600, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout


@pytest.mark.slow
def test_applications_are_compared_and_tabled(tmp_path: Path) -> None:
    for needed in ("numba", "scipy", "threadpoolctl"):
        pytest.importorskip(needed)
    result = tmp_path / "result.json"
    called(ROOT / "benchmarks" / "run.py", "applications", "--quick", "--json", result)
    found = json.loads(result.read_text())["results"]
    ours = {row["case"] for row in found if row["contestant"] == "ostinato"}
    assert {case.partition(",")[0] for case in ours} == {
        *("heat", "conjugate gradients", "Cholesky", "images", "particles", "inference")
    }
    table = called("-m", "benchmarks.applications", result)
    for case in ours:
        assert f"| {case} | " in table
