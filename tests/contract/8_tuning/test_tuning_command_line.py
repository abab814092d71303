"""The contract on tuning: the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.usefixtures("places")


@pytest.fixture
def ostinato(tmp_path):
    """Run the command line; return how it ended."""

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "ostinato", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
        )

    return run


@pytest.fixture
def job(tmp_path, script, lines):
    """Write a file that says what to tune."""

    def write(text="", argv=None):
        prog = script(f"echo $1 >> {lines.path}; echo OP:mm,TIME:$(( ($1 - 3) * ($1 - 3) + 1 )),WS:0\n", name="prog")
        path = tmp_path / "job.toml"
        path.write_text(
            textwrap.dedent(
                f"""
                op = "mm"
                devices = ["sim:a"]
                key = {{ n = 512 }}

                [space]
                tile = [1, 2, 3, 4]

                [command]
                argv = {json.dumps(argv or [prog, "{tile}"])}

                [policy]
                max_seconds = 0.05
                """
            )
            + textwrap.dedent(text)
        )
        return path

    return write


def test_tune(ostinato, job, tmp_path):
    done = ostinato("tune", job())
    assert done.returncode == 0, done.stderr
    assert "tile=3" in done.stdout


def test_devices_of_the_command_line_win(ostinato, job, tmp_path):
    done = ostinato("tune", job(), "--devices", "sim:x,sim:y", "--report", "out.json")
    assert done.returncode == 0, done.stderr
    saved = json.loads((tmp_path / "out.json").read_text())
    assert {entry["device"] for entry in saved["results"]} <= {"sim:x", "sim:y"}


@pytest.mark.parametrize("suffix", ["html", "json", "csv"])
def test_reports(ostinato, job, tmp_path, suffix):
    done = ostinato("tune", job(), "--report", f"out.{suffix}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"out.{suffix}").stat().st_size > 100


def test_resume(ostinato, job, lines):
    path = job()
    assert ostinato("tune", path).returncode == 0
    ran = lines()
    for arguments in ([], ["--resume"]):  # the store answers, as it does in `Tuner.tune`
        done = ostinato("tune", path, *arguments)
        assert done.returncode == 0, done.stderr
        assert lines() == ran
    assert ostinato("tune", path, "--anew").returncode == 0
    assert len(lines()) > len(ran)


def test_nothing_is_ok(ostinato, job):
    done = ostinato("tune", job(argv=["false", "{tile}"]))
    assert done.returncode == 1
    assert "crash" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[zebra]\nx = 1\n", "zebra"),
        ("stripes = 3\n", "stripes"),
        ("[budget]\nseconds = -1\n", "seconds"),
        ("[budget]\nminutes = 1\n", "minutes"),
        ("[call]\nfactory = 'a:b'\n", "call"),
        ("[\n", "job.toml"),
    ],
)
def test_mistakes_in_the_file_are_named(ostinato, job, text, named):
    done = ostinato("tune", job(text))
    assert done.returncode == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr


def test_no_such_file(ostinato):
    done = ostinato("tune", "absent.toml")
    assert done.returncode == 2
    assert "absent.toml" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_such_device(ostinato, job):
    done = ostinato("tune", job(), "--devices", "cpu:77777")
    assert done.returncode != 0
    assert "cpu:77777" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_report_that_cannot_be_written_is_told_before_all_else(ostinato, job, lines):
    done = ostinato("tune", job(), "--report", "out.zebra")
    assert done.returncode == 2
    assert "zebra" in done.stderr
    assert lines() == []


def test_an_interrupt_tells_what_was_found(job, tmp_path, lines, script, eventually):
    slow = script(f"echo $1 >> {lines.path}; [ $1 -gt 2 ] && sleep 600; echo OP:mm,TIME:$1,WS:0\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "ostinato", "tune", str(job(argv=[slow, "{tile}"]))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    eventually(lambda: "3" in lines())
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "1" in output


def test_devices(ostinato):
    done = ostinato("devices")
    assert done.returncode == 0, done.stderr
    assert "cpu:0" in done.stdout


@pytest.mark.parametrize("command", ["tune", "devices", "demo", "bench", "trace"])
def test_help(ostinato, command):
    done = ostinato(command, "--help")
    assert done.returncode == 0
    assert command in done.stdout
