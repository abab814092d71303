"""What tuning a graph found, as a whole."""

from __future__ import annotations

import pytest

from ostinato.tune.graphs.tune_graph import Reports
from ostinato.tune.policy import Policy
from ostinato.tune.report.report import Report


def test_a_prompt_shows_the_table() -> None:
    reports = Reports(smooth=Report(op="smooth", key={}, policy=Policy(), best=None, ties=(), results=()))
    assert repr(reports) == str(reports) == reports.table()
    assert "smooth" in repr(reports)


def test_a_label_that_is_not_there_is_told_with_those_that_are() -> None:
    report = Report(op="a", key={}, policy=Policy(), best=None, ties=(), results=())
    with pytest.raises(KeyError, match=r"must be that of a case, got .*'smooth\[4 float64\]', 'smooth\[8 float64\]'"):
        Reports({"smooth[4 float64]": report, "smooth[8 float64]": report})["smooth"]
