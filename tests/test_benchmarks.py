"""Benchmarks: which cases run, and which runs make one table."""

from __future__ import annotations

import pytest
from benchmarks.applications.__main__ import table
from benchmarks.context import Context
from benchmarks.peers import Kernels

import ostinato as ost

ROW = {"benchmark": "applications", "case": "heat", "unit": "us/step", "reference": "OpenMP"}


def run_of(revision, case, ours, theirs):
    rows = [ROW | {"case": case, "contestant": "ostinato", "samples": ours}]
    rows += [ROW | {"case": case, "contestant": "OpenMP", "samples": theirs}]
    rows += [ROW | {"case": case, "contestant": "NumPy", "samples": [8000.0]}]
    machine, date = {"cpu": "a processor", "cores": 2}, "2026-11-24T12:00:00+00:00"
    return {"versions": {"revision": revision}, "machine": machine, "date": date, "results": rows}


@pytest.mark.parametrize(
    ("cases", "wanted"), [((), True), (("1024 / 64",), True), (("heat", "Chol"), True), (("heat",), False)]
)
def test_cases_are_chosen_by_a_part_of_their_names(cases, wanted):
    with ost.Machine(cpus=1, gpus=0) as machine:
        context = Context(machine, {}, Kernels.__new__(Kernels), quick=True, absent=[], cases=cases)
        assert context.wants("Cholesky, 1024 / 64") is wanted


def test_runs_of_one_revision_make_one_table():
    made = table([run_of("a", "heat", [3.0, 1.0, 2.0], [4.0]), run_of("a", "images", [3000.0], [2000.0])])
    assert "| heat | 2.00 us | OpenMP 4.00 us | 0.50 | 8.00 ms |" in made
    assert "| images | 3.00 ms | OpenMP 2.00 ms | 1.50 | 8.00 ms |" in made


def test_runs_of_two_revisions_make_no_table():
    with pytest.raises(ValueError, match="the same revision, got a, b"):
        table([run_of("a", "heat", [1.0], [1.0]), run_of("b", "images", [1.0], [1.0])])
