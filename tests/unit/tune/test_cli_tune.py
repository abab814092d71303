"""The commands `tune` and `devices`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ostinato.cli import main

MODULE = """
import pathlib, time

def make(n):
    if n == 3:
        raise ValueError("three is refused")
    return lambda: time.sleep(0.0002 * n**4)  # far apart, whatever else the machine does

def right(outputs, key):
    return key == {"size": 5}

def endless(n):
    if n == 4:
        pathlib.Path(__file__).with_name("waiting").touch()
        time.sleep(60)
    return lambda: None
"""
JOB = """
op = "nap"
devices = ["sim:a"]
key = { size = 5 }
default = { n = 4 }
verify = "naps:right"
store = "tune.db"
[space]
n = { range = [1, 5] }
[call]
factory = "naps:make"
[policy]
rel_ci = 0.2
max_seconds = 0.1
"""


@pytest.fixture(autouse=True)
def path_restored(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def job(tmp_path) -> Path:
    (tmp_path / "naps.py").write_text(MODULE)
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_a_job_is_run_from_anywhere_and_its_winner_reported(job, tmp_path):
    result = run("tune", job, "--report", tmp_path / "r.html", "--report", tmp_path / "r.json")
    assert result.exit_code == 0, result.output
    assert "The winner is n=1: " in result.stdout
    assert "times as fast as the default, n=4" in result.stdout
    assert "three is refused" in result.stdout
    assert result.stderr == ""
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    saved = json.loads((tmp_path / "r.json").read_text())
    assert saved["results"][saved["best"]]["candidate"]["config"] == {"n": 1}
    assert saved["key"] == {"size": 5}
    assert (tmp_path / "tune.db").exists()


def test_the_store_answers_unless_all_is_to_be_measured(job, tmp_path):
    def cached(*arguments: object) -> int:
        result = run("tune", job, "--report", tmp_path / "r.json", *arguments)
        assert result.exit_code == 0, result.output
        return sum(entry["cached"] for entry in json.loads((tmp_path / "r.json").read_text())["results"])

    assert cached() == 0
    assert cached() > 0
    assert cached("--anew") == 0
    assert cached("--resume") > 0
    assert run("tune", job, "--anew", "--resume").exit_code == 2
    assert cached("--resume", "--store", tmp_path / "other.db") == 0


def test_devices_and_budget_of_the_command_line_win(job, tmp_path):
    result = run("tune", job, "--devices", "sim:b,sim:c", "--report", tmp_path / "r.json", "--budget", "60")
    assert result.exit_code == 0, result.output
    devices = {entry["device"] for entry in json.loads((tmp_path / "r.json").read_text())["results"]}
    assert devices <= {"sim:b", "sim:c"}


def test_nothing_is_ok(job):
    job.write_text(JOB.replace("{ range = [1, 5] }", "[3]").replace("default = { n = 4 }", ""))
    result = run("tune", job)
    assert result.exit_code == 1
    assert "No candidate is ok, so there is no winner." in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--report", "report.txt"], "must be one of .json, .csv, .html"),
        (["--report", "nowhere/report.csv"], "its directory does not exist"),
        (["--devices", "gpu:0"], "gpu:0"),
        (["--devices", "sim:a,sim:a"], "sim:a"),
        (["--devices", "cuda:77"], "there is no 'cuda:77'"),
        (["--store", "."], "is a directory"),
        (["--budget", "0"], "0.0 is not in the range"),
    ],
)
def test_what_cannot_begin_ends_with_2_and_says_why(job, arguments, message):
    result = run("tune", job, *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("text", "message"), [("op = 1", "op: must be the name of what is tuned, got 1"), (JOB + "[x]", "x: means nothing")]
)
def test_a_wrong_file_ends_with_2_and_names_the_key(job, text, message):
    job.write_text(text)
    result = run("tune", job)
    assert result.exit_code == 2
    assert f"{job}: {message}" in result.stderr


def test_a_file_that_is_not_there(tmp_path):
    result = run("tune", tmp_path / "no.toml")
    assert result.exit_code == 2
    assert "does not exist" in result.stderr


def test_an_interrupted_search_says_what_it_found_and_goes_on(job, tmp_path):
    job.write_text(JOB.replace("naps:make", "naps:endless").replace("default = { n = 4 }", ""))
    command = [sys.executable, "-m", "ostinato", "tune", str(job), "--report", str(tmp_path / "r.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            deadline = time.monotonic() + 60
            while not (tmp_path / "waiting").exists():
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert b"The winner is n=" in out
    assert err == b"interrupted: the same command goes on from here\n"
    saved = json.loads((tmp_path / "r.json").read_text())
    assert {entry["candidate"]["config"]["n"] for entry in saved["results"]} == {1, 2, 3}
    job.write_text(job.read_text().replace("[1, 5]", "[1, 4]"))
    again = run("tune", job, "--report", tmp_path / "r.json")
    assert again.exit_code == 0, again.output
    assert "measure" not in {span["what"] for span in json.loads((tmp_path / "r.json").read_text())["stretches"]}


def test_devices_are_listed():
    result = run("devices")
    assert result.exit_code == 0, result.output
    assert "cpu:0" in result.stdout
