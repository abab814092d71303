"""Reports: what they say, and what they are saved as."""

import csv
import json
import math
import re

import pytest

import ostinato as ost
import reports


def fixed(ns, config, **others):
    """A result whose samples are all the same, with an interval of 10 % on either side."""
    made = reports.result(config, ns=ns, **others)
    made.time_ns, made.samples, made.interval_ns = ns, (ns,) * 8, (0.9 * ns, 1.1 * ns)
    return made


@pytest.fixture
def small():
    slow, fast, near = (fixed(ns, {"tile": tile}) for ns, tile in ((3000.0, 8), (1000.0, 32), (1010.0, 64)))
    dead = reports.result({"tile": 128}, "crash", message="killed by SIGSEGV\nmore", device="cpu:1")
    return reports.report([slow, dead, near, fast], default=slow, ties=[fast, near])


def test_why_names_the_winner_its_gain_its_ties_and_how_the_others_ended(small):
    assert small.why().splitlines() == [
        "The winner is tile=32: 1 µs a call, between 900 ns and 1.1 µs with 95 % confidence (8 samples, on cpu:0).",
        # 0.9 * 3000 / (1.1 * 1000) and 1.1 * 3000 / (0.9 * 1000)
        "It is 3 times as fast as the default, tile=8: 3 µs; between 2.45 and 3.67 times with 90 % confidence.",
        "1 other cannot be told from it by these measurements: tile=64 (1.01 µs). Among ties the default wins, then of "
        "those equally fast what needs less workspace.",
        "4 candidates in 0 ns.",
        "Results: 3 ok, 1 crash.",
    ]


def test_few_samples_are_no_ground_for_confidence():
    slow, fast = (reports.result({"tile": tile}, count=5) for tile in (8, 32))
    said = reports.report([slow, fast], default=slow).why()
    assert "confidence" not in said
    assert "too few samples to say how sure that is" in said


def test_the_default_may_be_the_winner_or_have_failed(small):
    small.default = small.best
    assert "It is the default: nothing that was tried is faster beyond the noise." in small.why()
    small.default = small.results[1]
    assert "The default, tile=128, is no match: it ended as crash." in small.why()


def test_nothing_is_ok():
    dead = reports.report([reports.result({"tile": 8}, "crash")])
    assert dead.why() == "No candidate is ok, so there is no winner.\n1 candidate in 0 ns.\nResults: 1 crash."
    messages = ["exit status 1", "killed by SIGSEGV\n", "killed by SIGSEGV\n", "", ""]
    results = [reports.result({"tile": tile}, "crash", message=message) for tile, message in enumerate(messages)]
    assert reports.report(results).why().splitlines()[:2] == [
        "No candidate is ok, so there is no winner.",
        "2 of 5 results: killed by SIGSEGV\\n",
    ]
    long = reports.report([reports.result({"tile": 8}, "crash", message="x" * 4000)]).why().splitlines()[1]
    assert long == "1 of 1 result: " + "x" * 297 + "..."
    assert "crash" in dead.table()
    empty = reports.report([])
    assert empty.why() == "No candidate was tried."
    assert empty.table() == ""


def test_table_has_the_winner_first_then_ties_times_and_failures(small):
    lines = small.table().splitlines()
    assert lines[0].split() == ["tile", "status", "time", "+/-", "x", "best", "samples", "device", "message"]
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["winner", "32", "ok"],
        ["tie", "64", "ok"],
        ["default", "8", "ok"],
    ]
    assert lines[3].split()[3:] == ["3", "µs", "10.0%", "3", "8", "cpu:0"]
    assert lines[4].split() == ["128", "crash", "cpu:1", "killed", "by", "SIGSEGV"]


def test_table_may_be_cut(small):
    assert small.table(most=2).splitlines()[-1] == "and 2 more"
    assert len(small.table(most=4).splitlines()) == 5


def test_table_of_configurations_that_differ_in_their_names():
    made = [
        reports.result({"tile": 8, "status": "mine"}, ns=1.0),
        reports.result({"fast": True}, ns=2.0, op="other"),
        reports.result({}, "invalid", message="\x1b[31mred\n"),
    ]
    lines = reports.report(made).table().splitlines()
    assert lines[0].split()[:5] == ["tile", "status", "fast", "op", "status"]
    assert lines[2].split()[:3] == ["true", "other", "ok"]
    assert "\\x1b[31mred" in lines[3]


@pytest.mark.parametrize("name", ["report", "report.txt", "report.html.gz", ".json"])
def test_an_unknown_suffix_is_refused_before_anything_is_written(small, tmp_path, name):
    with pytest.raises(ValueError, match=re.escape("must be one of .json, .csv, .html, got")):
        small.save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".json", ".csv", ".html"])
def test_a_report_is_written_whole_or_not_at_all(tmp_path, small, suffix, monkeypatch):
    path = tmp_path / f"report{suffix}"
    small.save(path)
    before = path.read_bytes()

    def fail(report, out):
        out.write("half")
        raise RuntimeError("no space")

    monkeypatch.setattr("ostinato.tune.report.report._writers", lambda: {suffix: fail})
    with pytest.raises(RuntimeError):
        small.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_suffix_in_capitals_and_a_directory_that_is_not_there(small, tmp_path):
    small.save(str(tmp_path / "REPORT.JSON"))
    with pytest.raises(FileNotFoundError, match=re.escape("nowhere/report.csv")):
        small.save(tmp_path / "nowhere" / "report.csv")


def test_json_has_everything(tmp_path):
    made = reports.search(40)
    made.results[3].message = reports.HOSTILE
    made.save(tmp_path / "report.json")
    read = json.loads((tmp_path / "report.json").read_text())
    assert (read["op"], read["key"], read["policy"]["rel_ci"]) == (made.op, made.key, made.policy.rel_ci)
    assert read["environment"] == made.environment
    assert made.results[read["best"]] is made.best
    assert made.results[read["default"]] is made.default
    assert [made.results[index] for index in read["ties"]] == list(made.ties)
    for entry, result in zip(read["results"], made.results, strict=True):
        assert entry["candidate"]["id"] == result.candidate.id
        assert entry["candidate"]["config"] == result.candidate.config
        assert tuple(entry["samples"]) == result.samples
        for name in ("op", "status", "time_ns", "workspace", "device", "message", "cached", "miss", "contended"):
            assert entry[name] == getattr(result, name)
    assert len(read["stretches"]) == len(made.spans)
    assert read["stretches"][-1]["candidate"] == made.spans[-1].candidate.id


def test_json_has_no_numbers_that_other_readers_refuse(tmp_path, small):
    small.environment["limit"] = math.inf
    small.save(tmp_path / "report.json")
    read = json.loads((tmp_path / "report.json").read_text(), parse_constant=lambda text: pytest.fail(text))
    assert read["environment"]["limit"] == "inf"


def test_csv_has_one_row_per_result_with_the_configuration_in_columns(tmp_path, small):
    small.save(tmp_path / "report.csv")
    with open(tmp_path / "report.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["tile"] for row in rows] == ["8", "128", "64", "32"]
    assert [row["status"] for row in rows] == ["ok", "crash", "ok", "ok"]
    assert [row["verdict"] for row in rows] == ["default", "", "tie", "winner"]
    assert [row["time_ns"] for row in rows] == ["3000.0", "", "1010.0", "1000.0"]
    assert rows[1]["message"] == "killed by SIGSEGV\nmore"
    assert (rows[0]["interval_low_ns"], rows[0]["samples"], rows[0]["cached"]) == ("2700.0", "8", "false")


def test_csv_of_odd_names_and_values(tmp_path):
    config = {"status": [1, 2], "a,b\n": 'say "x"', "none": None}
    made = reports.report([reports.result(config, message=reports.HOSTILE), reports.result({"other": 1.5})])
    made.save(tmp_path / "report.csv")
    with open(tmp_path / "report.csv", newline="", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert (first["config.status"], first["a,b\n"], first["none"]) == ("[1, 2]", 'say "x"', "null")
    assert (first["status"], first["other"]) == ("ok", "")
    assert first["message"] == reports.HOSTILE.replace("\ud83d", "\\ud83d")
    assert (second["other"], second["none"]) == ("1.5", "")


def test_csv_has_no_formulas(tmp_path):
    hostile = ["=1+1", "+cmd|'/C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "-O3", "--1", "-"]
    harmless = ["-5", "+1.5e-3", "-.5", "a=1", "'=1", "", -7, -1.5, [-1], "1-2"]
    configs = [{"=name": value} for value in (*hostile, *harmless)]
    made = reports.report([reports.result(config, op="=op", message="@message") for config in configs])
    made.save(tmp_path / "report.csv")
    with open(tmp_path / "report.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    values = [value if isinstance(value, str) else json.dumps(value) for value in harmless]
    assert [row["'=name"] for row in rows] == [*(f"'{value}" for value in hostile), *values]
    assert {(row["op"], row["message"]) for row in rows} == {("'=op", "'@message")}
    assert not [cell for row in rows for cell in row.values() if cell[:1] in {*"=@\t\r\n"}]


def test_csv_of_nothing_has_its_heading(tmp_path):
    reports.report([]).save(tmp_path / "report.csv")
    assert (tmp_path / "report.csv").read_text().startswith("verdict,candidate,op,status,")


def test_a_report_is_public():
    assert ost.Report is type(reports.report([]))


def test_results_of_a_command_without_parameters_are_named_by_their_ops():
    fast, slow = reports.result({}, op="gemm_a", ns=10.0), reports.result({}, op="gemm_b", ns=20.0)
    said = reports.report([fast, slow]).why()
    assert said.startswith("The winner is gemm_a: ")
