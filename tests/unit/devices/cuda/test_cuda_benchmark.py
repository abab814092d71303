"""The benchmark of CUDA runs to its end, and everybody in it computes the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from devices.cuda.faked import library

ROOT = Path(__file__).parents[4]


@pytest.mark.slow
def test_the_benchmark_runs_on_the_fake_driver(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    environment = os.environ | {"LD_LIBRARY_PATH": str(Path(library()).parent), "FAKE_CUDA_DEVICES": "1"}
    command = [sys.executable, ROOT / "benchmarks" / "run.py", "cuda", "--quick", "--json", result]
    ran = subprocess.run(command, env=environment, timeout=300, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-4000:]
    found = json.loads(result.read_text())
    assert {row["case"] for row in found["results"]} >= {
        *("chain of 64", "stencil of 8 x 8", "with work of the host", "stencil, METG(50)")
    }
    assert found["versions"]["cuda"].startswith("Fake GPU")
    assert found["date"]
