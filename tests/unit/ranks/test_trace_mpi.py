"""`trace` and `explain` of a program that ranks run together over MPI."""

from __future__ import annotations

import importlib.util
import json
import os

import pytest

from support.mpi import MPIEXEC, run_ranks
from view.test_trace_events import check_format

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
    pytest.mark.skipif(MPIEXEC is None, reason="mpiexec is not installed"),
]

SCRIPT = """
import json, os, sys
import numpy as np
import ostinato as ost
from ostinato.ranks import clocks

transport, path, alike = sys.argv[1:]
ranks = ost.Ranks(transport=transport)
if alike == "apart":
    clocks.name_clock = lambda: f"host {ranks.rank}"
a, b = (ranks.array((8, 16), tiles=(8, 1)) for _ in range(2))
parts, total = ranks.array(8), np.zeros(1)

@ost.task
def work(x: ost.Read, y: ost.Write):
    y[...] = x[:1]

@ost.task
def peak(x: ost.Read, y: ost.Write):
    y[...] = x.max()

def step(u, parts, total):
    for tile in a.tiles(near=1):
        row = tile.index[0]
        work(u[0][max(row - 1, 0) : row + 2], u[1][row : row + 1])
        peak(u[1][row : row + 1], parts[row : row + 1])
    ranks.fold(parts, total, "max")

u = ost.ring(a, b)
with ost.compile(step, u, parts, total, ranks=ranks) as program:
    program.replay(3)
    trace = program.trace(5)
    told = program.explain()
    trace.save(f"{path}.{ranks.rank}")
    found = {
        "explain": told,
        "repr": repr(trace),
        "waits": [each[:2] for each in trace.summary().rank_waits],
        "errors": [each.clock_error for each in trace.ranks],
        "steps": sorted(set(trace.records["step"].tolist())),
    }
    with ost.compile(step, u, parts, total, ranks=ranks, costs=trace) as again:
        assert again.replay(2) == 2
        found["traced"] = "traced" in again.explain()
with open(f"{path}.found.{ranks.rank}", "w") as file:
    json.dump(found, file)
"""


@pytest.mark.parametrize(("transport", "way"), [("shared", "memory"), ("mpi", "MPI")])
@pytest.mark.parametrize("clocks", ["alike", "apart"])
def test_all_ranks_get_the_trace_of_all(transport, way, clocks, tmp_path):
    path = tmp_path / "trace.json"
    ended = run_ranks(2, "-c", SCRIPT, transport, str(path), clocks, timeout=60)
    assert ended.returncode == 0, ended.stderr
    first, second = (json.loads((tmp_path / f"trace.json.found.{rank}").read_text()) for rank in range(2))
    saved = [json.loads((tmp_path / f"trace.json.{rank}").read_text()) for rank in range(2)]
    assert saved[0] == saved[1]
    check_format(saved[0])
    assert sum(event["name"] == "message" and event["ph"] == "s" for event in saved[0]["traceEvents"]) > 10
    for found in (first, second):
        assert "on 2 ranks" in found["repr"]
        assert found["steps"] == [3, 4, 5, 6, 7]
        assert found["traced"]
        assert all(ours != theirs for ours, theirs in found["waits"])
        assert found["errors"][0] == 0
        assert found["errors"][1] > 0 if clocks == "apart" else found["errors"][1] == 0
        assert f"2 messages, 152 bytes a step, by {way}, for" in found["explain"] or (
            f"2 messages, 136 bytes a step, by {way}, for" in found["explain"]
        )
        assert "progress by workers with nothing else to do" in found["explain"]


def test_a_traced_process_of_each_rank_has_a_file_of_its_own(tmp_path):
    path = tmp_path / "trace.json"
    command = ["-c", f"import os; os.environ['OSTINATO_TRACE'] = {str(path)!r}\n" + SCRIPT]
    ended = run_ranks(2, *command, "shared", str(tmp_path / "other"), "alike", timeout=60)
    assert ended.returncode == 0, ended.stderr
    for name in ("trace.json", "trace.rank1.json"):
        check_format(json.loads((tmp_path / name).read_text()))
    assert len([name for name in os.listdir(tmp_path) if name.startswith("trace")]) == 2
