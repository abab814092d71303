"""Modules that tune when they are imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MODULE = """
import numpy as np
import ostinato as ost

@ost.task
def double(src: ost.Read, dst: ost.Write):
    for i in range(len(src)):
        dst[i] = src[i] * 2

@double.variant
def at_once(src: ost.Read, dst: ost.Write):
    np.multiply(src, 2, out=dst)

a, b = np.ones((2, 300))
with ost.capture() as graph:
    double(a, b)
reports = graph.tune(store="tune.db")
"""


def test_a_worker_that_imports_such_a_module_does_not_wait_for_itself(tmp_path: Path) -> None:
    (tmp_path / "solver.py").write_text(MODULE)
    statement = "import solver; best = solver.reports['double'].best; print(best.candidate.config, best.message)"
    command = [sys.executable, "-c", statement]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, text=True, timeout=60).stdout
    assert "{'variant': 'at_once'} measured in this process" in found
    assert "calls graph.tune" in found
