"""The contract on tuning: reports."""

from __future__ import annotations

import csv
import json
import re

import pytest

import ostinato as ost

pytestmark = pytest.mark.usefixtures("places")

command = ost.Candidate.command


@pytest.fixture
def report(tuner, script):
    prog = script("[ $1 = 3 ] && exit 7; echo OP:mm,TIME:$1,WS:$(( $1 * 10 ))\n")
    candidates = [command([prog, "{n}", "{name}"], {"n": n, "name": '<b>&"é,\n'}) for n in (20, 1, 3)]
    return tuner(["sim:a", "sim:b"]).tune("mm", candidates, key={"m": 64}, default=candidates[0])


def test_entries(report):
    assert report.best is report.results[1]
    assert any(tie is report.best for tie in report.ties)
    assert [str(result.status) for result in report.results] == ["ok", "ok", "crash"]
    for result in report.results:
        assert set(result.candidate.config) == {"n", "name"}
        assert isinstance(result.message, str)
        assert result.device in ("sim:a", "sim:b")
        assert result.cached is False
        assert result.miss is None
    failed = report.results[2]
    assert failed.time_ns is None
    assert failed.interval_ns is None
    assert len(failed.samples) == 0


def test_a_table(report):
    table = report.table()
    assert isinstance(table, str)
    assert "crash" in table
    assert "20" in table
    assert table.count("\n") >= 3


def test_json(report, tmp_path):
    report.save(tmp_path / "report.json")
    saved = json.loads((tmp_path / "report.json").read_text())
    assert len(saved["results"]) == 3
    for entry, result in zip(saved["results"], report.results, strict=True):
        assert entry["op"] == result.op
        assert entry["status"] == result.status
        assert entry["time_ns"] == result.time_ns
        assert entry["samples"] == list(result.samples)
        assert entry["workspace"] == result.workspace
        assert entry["device"] == result.device
        assert entry["message"] == result.message


def test_csv(report, tmp_path):
    report.save(str(tmp_path / "report.csv"))
    with open(tmp_path / "report.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert [row["status"] for row in rows] == ["ok", "ok", "crash"]
    assert [row["op"] for row in rows[:2]] == ["mm", "mm"]
    assert [float(row["time_ns"]) if row["time_ns"] else None for row in rows] == pytest.approx([20e6, 1e6, None])


def test_html(report, tmp_path):
    report.save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "crash" in page
    assert '<b>&"' not in page  # what the user wrote is text
    references = re.findall(r"""(?:src|href|action|data)\s*=\s*["']?([^"'\s>]+)""", page)
    references += re.findall(r"""url\(\s*["']?([^"')]+)""", page) + re.findall(r"""@import\s+(\S+)""", page)
    assert all(reference.startswith(("#", "data:")) for reference in references), references


def test_saving_over_a_file_replaces_it(report, tmp_path):
    for suffix in ("json", "csv", "html"):
        path = tmp_path / f"report.{suffix}"
        path.write_text("x" * 10_000_000)
        report.save(path)
        assert "xxx" not in path.read_text()


def test_upper_case_suffixes(report, tmp_path):
    report.save(tmp_path / "report.JSON")
    assert len(json.loads((tmp_path / "report.JSON").read_text())["results"]) == 3


@pytest.mark.parametrize("name", ["report.txt", "report", "report.json.gz", ".json", ""])
def test_other_suffixes(report, tmp_path, name):
    with pytest.raises(ValueError, match="json"):
        report.save(f"{tmp_path}/{name}")


def test_nowhere(report, tmp_path):
    with pytest.raises(OSError, match="absent"):
        report.save(tmp_path / "absent" / "report.json")
    with pytest.raises(TypeError):
        report.save(None)


def test_a_report_of_failures_alone(tuner, tmp_path):
    report = tuner().tune("op", [command(["false"]), command(["absent-program"])])
    assert report.best is None
    assert list(report.ties) == []
    assert "crash" in report.table()
    for suffix in ("json", "csv", "html"):
        report.save(tmp_path / f"report.{suffix}")
        assert (tmp_path / f"report.{suffix}").stat().st_size > 0


def test_a_report_of_nothing(tuner, tmp_path):
    report = tuner().tune("op", [])
    assert report.best is None
    assert list(report.results) == list(report.ties) == []
    assert isinstance(report.table(), str)
    for suffix in ("json", "csv", "html"):
        report.save(tmp_path / f"report.{suffix}")


def test_a_report_outlives_its_tuner(tuner, tmp_path):
    session = tuner()
    report = session.tune("op", [command(["echo", "OP:op,TIME:1,WS:0"])])
    session.close()
    assert report.best.status == "ok"
    report.save(tmp_path / "report.html")


def test_a_report_of_several_ops(tuner, script, tmp_path):
    report = tuner().tune("op", [command([script("echo OP:a,TIME:1,WS:0\necho OP:b,TIME:2,WS:0\n")])])
    report.save(tmp_path / "report.csv")
    with open(tmp_path / "report.csv", newline="") as file:
        assert sorted(row["op"] for row in csv.DictReader(file)) == ["a", "b"]
    assert isinstance(report, ost.Report)
    assert all(isinstance(result, ost.Result) for result in report.results)
