"""A program of plain tasks does without the modules that other programs need: they would make its start longer."""

from __future__ import annotations

import subprocess
import sys

SPARED = (
    "compiler.assign_devices",
    "compiler.coherence",
    "compiler.ranks",
    "graph.kernel",
    "runtime.rebind",
    "runtime.trace",
)
SCRIPT = """
import sys, numpy as np, ostinato as ost

@ost.task
def double(x: ost.ReadWrite):
    x *= 2

with ost.capture() as graph:
    double(np.ones(3))
with ost.Machine(cpus=1, gpus=0) as machine, graph.compile(machine) as program:
    program.replay()
print(*sys.modules)
"""


def test_a_program_of_plain_tasks_imports_nothing_for_devices_ranks_or_kernels() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    modules = done.stdout.split()
    assert "ostinato.runtime.engine" in modules
    assert [name for name in modules if name.removeprefix("ostinato.").startswith(SPARED)] == []
