"""`Runner`: the faults of its ancestor, R1 to R14, by the input that provoked them."""

from __future__ import annotations

import ctypes
import logging
import os
import time
from types import SimpleNamespace

import pytest

import ostinato as ost
import ostinato.profiler_runner as pr
from profilers import (
    MISSING,
    interrupt_when_there,
    line,
    meets,
    pid_in,
    runs,
    says,
    sh,
    until,
)

pytestmark = pytest.mark.usefixtures("unmasked", "nothing_stays")


@pytest.fixture
def runner() -> pr.Runner:
    return pr.Runner([0], "gemm")


def test_results_in_the_order_of_pushes(tmp_path):
    runner = pr.Runner([0, 1], "gemm")
    runner.push("late", sh('while [ ! -e "$1" ]; do sleep 0.005; done; echo "$2"', tmp_path / "go", line("a", 2.0, 16)))
    runner.push(7, sh('touch "$1"; echo "$2"', tmp_path / "go", line("b")))
    runner.join()
    assert runner.pull() == [("late", ("a", 2.0, 16)), (7, ("b", 1.0, 0))]
    assert runner.failures == {}


def test_return_ops_are_found_in_the_order_of_the_output(runner):
    lines = [line("a", 3), line("b", 1), line("c", 2), line("a", 0.5)]
    runner.push("all", ["/usr/bin/printf", "%s\n", *lines], return_ops=["c", "a"])
    runner.push("none", ["/usr/bin/printf", "%s\n", *lines], return_ops=["d"])
    runner.join()
    assert runner.pull() == [("all", [("a", 3.0, 0), ("c", 2.0, 0), ("a", 0.5, 0)])]
    assert set(runner.failures) == {"none"}


def test_r1_waiting_takes_no_processor(runner):
    runner.push("nap", sh('sleep 0.5; echo "$1"', line("nap")))
    before = time.process_time()
    runner.join()
    assert time.process_time() - before < 0.15  # the ancestor took all of it
    assert len(runner.pull()) == 1


@pytest.mark.parametrize("devices", [[0], [0, 1]])
def test_r2_an_index_given_twice_is_refused(devices):
    runner = pr.Runner(devices, "gemm")
    runner.push("a", says("first"))
    with pytest.raises(ValueError, match="'a'"):
        runner.push("a", says("second"))
    runner.join()
    with pytest.raises(ValueError, match="'a'"):
        runner.push("a", says("second"))
    assert runner.pull() == [("a", ("first", 1.0, 0))]
    runner.push("a", says("third"))  # pull has given the index back
    assert runner.pull() == [("a", ("third", 1.0, 0))]


@pytest.mark.parametrize("devices", [[], (), 0])
def test_r3_no_devices_are_refused(devices):
    with pytest.raises(ValueError, match="device"):
        pr.Runner(devices, "gemm")


@pytest.mark.parametrize("printed", ["hello", line("zero", 0), line("nan", "nan"), ""])
def test_r4_what_says_nothing_is_no_result_of_zero_duration(runner, caplog, printed):
    runner.push("garbage", ["/bin/echo", printed])
    runner.push("good", says("good", 5.0))
    with caplog.at_level(logging.WARNING, logger="ostinato"):
        runner.join()
    assert runner.pull() == [("good", ("good", 5.0, 0))]
    assert list(runner.failures) == ["garbage"]
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "garbage" in warning
    assert "gemm" in warning
    assert runner.failures["garbage"] in warning


@pytest.mark.parametrize("where", ["", ">&2"])
def test_r5_much_output_blocks_nobody(runner, where):
    floods = [f'head -c 1000000 /dev/zero | tr "\\0" "{what}" {where}' for what in ("x", "\\n")]
    runner.push("chatty", sh(f'{floods[0]}; echo; echo "$1"; {floods[1]}', line("chatty")))
    assert runner.pull() == [("chatty", ("chatty", 1.0, 0))]


CHECKS = 'kill -0 "$1" 2>/dev/null && exit 5; echo "$2"'


@pytest.mark.parametrize(
    "leaves",
    [
        "sleep 600 & echo $! > pid; wait",  # killed at the limit of time, with its child
        "(sleep 600 & echo $! > pid); echo OP:a,TIME:1,WS:0",  # ends itself
        "setsid sh -c 'echo $$ > pid; trap \"\" HUP; sleep 600' & while [ ! -s pid ]; do sleep .01; done; echo TIME:1",
    ],
)
def test_r6_no_process_of_a_command_outlives_it(tmp_path, monkeypatch, leaves):
    monkeypatch.chdir(tmp_path)
    runner = pr.Runner([0], "gemm", timeout=1.0)
    runner.push("leaves", sh(leaves))
    runner.push("looks", sh('kill -0 "$(cat pid)" 2>/dev/null && exit 5; echo "$1"', line("alone")))
    runner.join()
    assert runner.pull()[-1] == ("looks", ("alone", 1.0, 0))
    assert not runs(pid_in(tmp_path / "pid"))


def test_r7_who_ended_in_time_did_even_if_nobody_looked(tmp_path):
    runner = pr.Runner([0], "gemm", timeout=0.3)
    runner.push("started", sh('touch "$1"; sleep 0.05; echo "$2"', tmp_path / "started", line("started")))
    until((tmp_path / "started").exists, "the command runs")
    ctypes.PyDLL(None).usleep(700_000)  # holds the GIL: no thread of this process polls anything
    runner.join()
    assert runner.pull() == [("started", ("started", 1.0, 0))]


def test_r8_a_command_that_cannot_be_started_costs_only_itself(runner, tmp_path):
    runner = pr.Runner([0, 1], "gemm")
    runner.push(1, says("first"))
    runner.push(2, [MISSING])
    runner.push(3, says("third"))
    runner.join()
    assert runner.pull() == [(1, ("first", 1.0, 0)), (3, ("third", 1.0, 0))]
    assert "No such file" in runner.failures[2]
    runner.push(1, meets(tmp_path / "a", tmp_path / "b", "a"))  # both devices are back
    runner.push(2, meets(tmp_path / "b", tmp_path / "a", "b"))
    assert len(runner.pull()) == 2


def test_r9_pull_waits_for_what_runs(runner):
    assert runner.pull() == []
    runner.push("slow", sh('sleep 0.1; head -c 300000 /dev/zero >&2; echo "$1"', line("slow")))
    assert runner.pull() == [("slow", ("slow", 1.0, 0))]
    assert runner.pull() == []


def test_r10_a_byte_that_is_no_text_costs_no_results(runner):
    runner.push("good", says("good"))
    runner.push("bytes", sh(r'printf "\377\n" >&2; printf "\377\n"; echo "$1"', line("bytes")))
    runner.push("only bytes", sh(r'printf "\377\377"'))
    assert runner.pull() == [("good", ("good", 1.0, 0)), ("bytes", ("bytes", 1.0, 0))]
    assert set(runner.failures) == {"only bytes"}


def test_ctrl_c_kills_what_runs_and_keeps_what_had_ended(runner, tmp_path):
    runner.push("ended", says("ended"))
    runner.push("runs", sh('echo $$ > "$1"; trap "" INT; sleep 600; sleep 600', tmp_path / "pid"))
    runner.push("waits", says("waits"))
    interrupt_when_there(tmp_path / "pid")
    with pytest.raises(KeyboardInterrupt):
        runner.join()
    assert not runs(pid_in(tmp_path / "pid"))
    assert runner.pull() == [("ended", ("ended", 1.0, 0))]
    assert list(runner.failures) == ["runs", "waits"]
    assert all("cancelled" in reason for reason in runner.failures.values())


@pytest.mark.parametrize("printed", ["TIME:0.5 WS:64", "WS:64\nTIME:0.5\nTIME:0.75"])
def test_r11_a_warning_on_stderr_fails_nobody(runner, printed):
    runner.push("warns", sh('echo "warning: clocks are not locked" >&2; echo "$1"', printed))
    assert runner.pull() == [("warns", ("", 0.5, 64))]


@pytest.mark.parametrize("devices", [(0, 1), [1, 0], ["0", "1"], 2])
def test_r12_all_devices_are_used(tmp_path, devices):
    runner = pr.Runner(devices, "gemm")
    see = '; echo "$CUDA_VISIBLE_DEVICES" >> "$4"'
    for index in range(3):
        mine, other = (tmp_path / f"{index}{side}" for side in "ab")
        for first, second in ((mine, other), (other, mine)):
            command = meets(first, second, "op")
            runner.push(first.name, [command[0], command[1], command[2] + see, *command[3:], str(tmp_path / "seen")])
    assert len(runner.pull()) == 6
    assert set((tmp_path / "seen").read_text().split()) == {"0", "1"}


@pytest.mark.parametrize("devices", [[0, 0], ["0", 0]])
def test_r12_a_device_named_twice_is_refused(devices):
    with pytest.raises(ValueError, match="twice"):
        pr.Runner(devices, "gemm")


def test_r13_a_command_that_takes_too_long_is_a_failure_that_is_told(caplog):
    runner = pr.Runner([0], "build", timeout=0.1)
    runner.push("cc", sh("sleep 600 & sleep 600"))
    with caplog.at_level(logging.WARNING, logger="ostinato"):
        runner.join()
        runner.join()
    assert runner.pull() == []
    assert "0.1 s" in runner.failures["cc"]
    assert len(caplog.records) == 1  # once


@pytest.mark.parametrize(
    ("build", "status"), [("sleep 600 & sleep 600", "compile_timeout"), ("exit 1", "compile_error")]
)
def test_r13_a_build_that_fails_is_told(tmp_path, build, status):
    candidate = ost.Candidate.command(["/bin/echo", line("op")], build=sh(build))
    with ost.Tuner("sim:a", store=tmp_path / "tune.db", timeout=0.5, progress=False) as tuner:
        report = tuner.tune("op", [candidate])
    assert [result.status for result in report.results] == [status]
    assert report.best is None


def test_r14_the_exit_status_counts(runner):
    runner.push("liar", sh('echo "$1"; exit 7', line("liar", 0.1)))
    runner.push("honest", says("honest", 3.0))
    assert runner.pull() == [("honest", ("honest", 3.0, 0))]
    assert "exit status 7" in runner.failures["liar"]


def test_r14_the_exit_status_counts_in_process_task():
    task = SimpleNamespace(
        _idx=3,
        _stdout=line("liar"),
        _stderr="",
        _kwargs={},
        _ret=None,
        _failed=False,
        _proc=SimpleNamespace(returncode=7),
    )
    pr.process_task(task)
    assert (task._ret, task._failed) == (None, True)
    task._proc.returncode = 0
    pr.process_task(task)
    assert (task._ret, task._failed) == (("liar", 1.0, 0), False)
    assert pr.process_return(task) == (3, ("liar", 1.0, 0))


@pytest.mark.parametrize("stderr", ["", "warning: something"])
@pytest.mark.parametrize("stdout", [line("a", 2), "TIME:2"])
def test_process_task_reads_stdout_whatever_stderr_says(stdout, stderr):
    task = SimpleNamespace(_idx="i", _stdout=stdout, _stderr=stderr, _kwargs={}, _ret=None, _failed=False)
    pr.process_task(task)
    assert not task._failed
    assert pr.process_return(task)[1].duration == 2.0


def test_process_task_finds_return_ops():
    task = SimpleNamespace(_idx=0, _stdout=line("a") + "\n" + line("b"), _stderr="", _kwargs={"return_ops": ["b"]})
    pr.process_task(task)
    assert pr.process_return(task) == (0, [("b", 1.0, 0)])


def test_failures_are_those_of_the_last_batch(runner):
    runner.push("bad", ["/bin/false"])
    runner.push("good", says("good"))
    assert len(runner.pull()) == 1
    assert set(runner.failures) == {"bad"}
    runner.push("bad", says("better"))
    assert runner.failures == {}
    assert len(runner.pull()) == 1


def test_the_parents_environment_reaches_the_child(runner, monkeypatch):
    monkeypatch.setenv("OP_NAME", "inherited")
    runner.push(0, sh('echo "OP:$OP_NAME,TIME:1,WS:0"'))
    assert runner.pull() == [(0, ("inherited", 1.0, 0))]
    assert "OSTINATO_REPORT_FD" not in os.environ
