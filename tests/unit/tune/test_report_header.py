"""The header with which native profilers report: every line that it writes is read back as it was meant."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import ostinato as ost
from ostinato.tune.workers.protocol import Reading

SOURCE = Path(__file__).parent / "profiler.c"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]


def compiled(folder: Path, compiler: str, *options: str) -> Path:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    program = folder / "profiler"
    subprocess.run([compiler, *options, *WARNINGS, f"-I{ost.get_include()}", SOURCE, "-o", program], check=True)
    return program


@pytest.fixture(scope="module")
def profiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("profiler"), "cc", "-std=c99", "-O1")


def run(profiler: Path, *words: str, status: int = 0, **env: str) -> bytes:
    """Run the profiler, and return what it wrote to the report descriptor."""
    ours, theirs = os.pipe()
    with open(ours, "rb") as reports:
        try:
            done = subprocess.run(
                [profiler, *words],
                env={**os.environ, "OSTINATO_REPORT_FD": str(theirs), **env},
                pass_fds=[theirs],
                stdout=subprocess.PIPE,
                timeout=60,
            )
        finally:
            os.close(theirs)
        assert done.returncode == status
        return reports.read() + done.stdout


def messages(profiler: Path, *words: str, **env: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in run(profiler, *words, **env).splitlines()]


def test_the_header_compiles_as_cpp(tmp_path: Path) -> None:
    profiler = compiled(tmp_path, "c++", "-std=c++11", "-xc++")
    assert messages(profiler, "start", "a") == [{"v": 1, "type": "start", "op": "a"}]


def test_what_is_reported_is_read(profiler: Path) -> None:
    reading = Reading()
    reading.reported(run(profiler, "start", "op", "times", "3", "end", ""))
    (outcome,) = reading.finish()
    assert (outcome.op, outcome.status, outcome.samples, outcome.workspace) == (
        "op",
        "ok",
        (0.1, 1.1, 2.1),
        (1 << 63) - 1,
    )


def test_a_failure_with_its_message(profiler: Path) -> None:
    (message,) = messages(profiler, "failed", "no such tile")
    assert message == {
        "v": 1, "type": "result", "op": "op", "status": "invalid", "workspace": 0, "message": "no such tile",
    }  # fmt: skip


@given(name=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
@example(name='a "b" \\ \n \x01 \x7f é 😀')
def test_names_come_through(profiler: Path, name: str) -> None:
    assert messages(profiler, "start", name)[0]["op"] == name


def test_a_name_that_is_no_utf8_costs_nothing_else(profiler: Path) -> None:
    reading = Reading()
    reading.reported(run(profiler, "start", os.fsdecode(b"\xff"), "ok", "1"))
    assert [(outcome.op, outcome.status) for outcome in reading.finish()] == [("�", "bad_output"), ("op", "ok")]


@given(ns=st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_numbers_come_through_in_full(profiler: Path, ns: float) -> None:
    assert messages(profiler, "ok", ns.hex())[0]["ns"] == ns


@pytest.mark.parametrize("ns", ["nan", "inf", "-inf", "0", "-1"])
def test_a_time_that_is_none_is_bad_output(profiler: Path, ns: str) -> None:
    reading = Reading()
    reading.reported(run(profiler, "ok", ns))
    (outcome,) = reading.finish()
    assert outcome.status == "bad_output"


def test_a_locale_with_a_comma_changes_nothing(profiler: Path, tmp_path: Path) -> None:
    locale = tmp_path / "de_DE.UTF-8"
    make = ["localedef", "-i", "de_DE", "-f", "UTF-8", str(locale)]
    if shutil.which("localedef") is None or subprocess.run(make, capture_output=True).returncode > 1:
        pytest.skip("no German locale can be made here")
    env = {"LOCPATH": str(tmp_path), "LC_ALL": "de_DE.UTF-8"}
    assert messages(profiler, "ok", "0,5", **env)[0]["ns"] == 0.5  # read with a comma: the locale is in force
    assert run(profiler, "print", "500000", **env) == b"OP:op,TIME:0.5,WS:8\n"


def test_many_samples_are_lines_that_a_pipe_takes_whole(profiler: Path) -> None:
    lines = run(profiler, "times", "1000").splitlines()
    assert [ns for line in lines for ns in json.loads(line)["ns"]] == [index + 0.1 for index in range(1000)]
    assert max(map(len, lines)) < 4096


def test_a_long_message_is_cut(profiler: Path) -> None:
    (message,) = messages(profiler, "failed", "x" * 100_000)
    assert message["message"] == "x" * (1 << 15)


@pytest.mark.parametrize("descriptor", ["", "stdout", "1x", "-1", "99999999999999999999"])
def test_without_a_tuner_nothing_is_written(profiler: Path, descriptor: str) -> None:
    assert run(profiler, "start", "a", "times", "3", "ok", "1", status=1, OSTINATO_REPORT_FD=descriptor) == b""


def test_a_descriptor_that_is_closed_is_an_error_and_no_crash(profiler: Path) -> None:
    assert run(profiler, "start", "a", status=1, OSTINATO_REPORT_FD="77") == b""


def test_lines_for_older_tools(profiler: Path) -> None:
    reading = Reading()
    reading.printed(run(profiler, "print", "123456.789"))
    (outcome,) = reading.finish()
    assert (outcome.samples, outcome.workspace) == ((pytest.approx(123456.789),), 8)
