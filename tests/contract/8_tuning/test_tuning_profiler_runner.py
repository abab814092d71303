"""The contract on tuning: `ostinato.profiler_runner`."""

from __future__ import annotations

import logging
import os
import queue
import shutil
import threading
import time

import pytest

import ostinato as ost
from ostinato import profiler_runner
from ostinato.profiler_runner import (
    ProfileResult,
    ProfilerRunner,
    Runner,
    extract_profile_result,
    process_return,
    process_task,
)

pytestmark = pytest.mark.usefixtures("places")


@pytest.fixture(autouse=True)
def _no_mask(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


class Delegate:
    """Notes what it is told."""

    def __init__(self):
        self.results = []
        self.threads = set()
        self.ended = 0
        self.before = None

    def callback(self, result, delegate):
        assert delegate is self
        assert not self.ended
        self.threads.add(threading.get_ident())
        self.results.append(result)

    def postprocess_results(self):
        self.ended += 1


@pytest.fixture
def delegate():
    return Delegate()


def line(op, time=1, workspace=0):
    return ["echo", f"OP:{op},TIME:{time},WS:{workspace}"]


def names(delegate):
    return sorted(result.op_config for result in delegate.results)


# Results


def test_a_result():
    result = ProfileResult("mm", 2.5, 64)
    assert (result.op_config, result.duration, result.workspace) == ("mm", 2.5, 64)
    assert result == ("mm", 2.5, 64)
    assert ProfileResult(op_config="mm", duration=2.5, workspace=64) == result
    assert list(result) == ["mm", 2.5, 64]


def test_extracting():
    text = "hello\nOP:a,TIME:3,WS:1\nOP:b,TIME:9.5e-05,WS:2\nOP:c,TIME:2,WS:3\n"
    assert extract_profile_result(text) == (ProfileResult("b", 9.5e-5, 2), False)
    results, failed = extract_profile_result(text, return_ops=["a", "c"])
    assert not failed
    assert [result.op_config for result in results] == ["a", "c"]
    assert extract_profile_result("TIME:2 x WS:5\n") == (ProfileResult("", 2.0, 5), False)


def test_every_record_is_extracted_wherever_it_stands():
    text = "OP:a,TIME:1,WS:2\n...OP:b,TIME:0.5,WS:2\n  OP:c,TIME:1.5,WS:2 OP:d,TIME:.25,WS:4 done\n"
    text += "\x1b[1mOP:e,TIME:9,WS:1\x1b[0m"
    assert extract_profile_result(text) == (ProfileResult("d", 0.25, 4), False)
    results, failed = extract_profile_result(text, return_ops=list("abcde"))
    assert not failed
    assert [result.op_config for result in results] == list("abcde")


def test_a_workspace_without_a_time(delegate, script):
    assert extract_profile_result("TIME:0\nWS:4096\n") == (ProfileResult("", 0.0, 4096), False)
    assert extract_profile_result("OP:a,TIME:0,WS:16\nOP:b,TIME:2,WS:1") == (ProfileResult("b", 2.0, 1), False)
    runner = ProfilerRunner(["0"], delegate)
    runner.push(script("echo TIME:0\necho WS:4096\n"), delegate.callback)
    runner.join()
    assert delegate.results == [("", 0.0, 4096)]
    old = Runner([0], "topk")
    old.push("topk", script("echo TIME:0\necho WS:4096\n"))
    assert old.pull() == [("topk", ("", 0.0, 4096))]


@pytest.mark.parametrize("text", ["", "hello", "OP:a,TIME:x,WS:0", "OP:a,TIME:nan,WS:0", "OP:a,TIME:0,WS:0"])
def test_extracting_nothing(text):
    assert extract_profile_result(text) == (None, True)


def test_the_names_of_the_ancestor():
    text = "OP:tile_16,TIME:0.5,WS:64\nOP:tile_32,TIME:0.25,WS:128\n"
    found = profiler_runner.PROF_RUNTIME_PATTERN.findall(text)
    assert found == [("tile_16", "0.5", "64"), ("tile_32", "0.25", "128")]
    assert min(found, key=profiler_runner.optimization_key) == found[1]
    assert profiler_runner.RUNTIME_PATTERN.findall("TIME:1.5 x TIME:2") == ["1.5", "2"]
    assert profiler_runner.WORKSPACE_PATTERN.findall("WS:12\n") == ["12"]
    assert profiler_runner.PROFILER_RUN_MAX_ATTEMPTS == 3
    assert profiler_runner.PROFILER_RUN_RETRY_DELAY_SECONDS == 5
    given = {"a": 1}
    assert profiler_runner.update_inplace(given, {"b": 2}) is given == {"a": 1, "b": 2}


def test_running_one_command_on_a_device_of_a_queue(tmp_path, monkeypatch):
    devices = queue.Queue()
    devices.put("7")
    printing = ["sh", "-c", "echo on $HIP_VISIBLE_DEVICES; echo no >&2; exit 3"]
    assert profiler_runner.run_task(printing, devices, "HIP_VISIBLE_DEVICES") == ("on 7\n", "no\n")
    with pytest.raises(FileNotFoundError):  # cannot become better: not tried again
        profiler_runner.run_task(["/nonexistent/profiler"], devices, "CUDA_VISIBLE_DEVICES")
    assert devices.get_nowait() == "7"  # given back, whatever happens


def test_a_program_that_is_being_written_is_run_once_it_is_whole(delegate, tmp_path, monkeypatch):
    monkeypatch.setattr(profiler_runner, "PROFILER_RUN_RETRY_DELAY_SECONDS", 0.2)
    program = tmp_path / "program"
    shutil.copy("/bin/echo", program)
    devices = queue.Queue()
    devices.put("0")
    runner = ProfilerRunner(["0"], delegate)
    with open(program, "ab") as writer:
        timer = threading.Timer(0.3, writer.close)
        timer.start()
        runner.push([program, "OP:a,TIME:1,WS:0"], delegate.callback)
        assert profiler_runner.run_task([program, "hello"], devices, "CUDA_VISIBLE_DEVICES") == ("hello\n", "")
    timer.join()
    runner.join()
    assert names(delegate) == ["a"]


# ProfilerRunner


def test_good_results_are_delivered_by_join(delegate):
    runner = ProfilerRunner(["0", "1"], delegate)
    for k in range(6):
        runner.push(line(f"op{k}", k + 1, k), delegate.callback)
    assert delegate.results == []
    runner.join()
    assert names(delegate) == [f"op{k}" for k in range(6)]
    assert all(isinstance(result, ProfileResult) for result in delegate.results)
    assert delegate.threads == {threading.get_ident()}
    assert delegate.ended == 1


def test_commands_run_before_join(delegate, lines, eventually):
    runner = ProfilerRunner(["0"], delegate)
    runner.push(["sh", "-c", f"echo ran >> {lines.path}; echo OP:a,TIME:1,WS:0"], delegate.callback)
    eventually(lines)
    assert delegate.results == []
    runner.join()
    assert names(delegate) == ["a"]


def test_a_program_path_is_a_command(delegate, script):
    runner = ProfilerRunner(["0"], delegate)
    runner.push(script("echo OP:a,TIME:1,WS:0\n", name="a program"), delegate.callback)
    runner.join()
    assert names(delegate) == ["a"]


def test_failures_are_listed_and_told_once(delegate, script):
    runner = ProfilerRunner(["0"], delegate, timeout=1)
    hanging, signalled = script("sleep 600\n", name="hanging"), script("kill -SEGV $$\n", name="signalled")
    runner.push(line("a"), delegate.callback)
    runner.push(["/nonexistent/profiler"], delegate.callback)
    runner.push(hanging, delegate.callback)
    runner.push(["sh", "-c", "echo OP:b,TIME:1,WS:0; exit 7"], delegate.callback)
    runner.push(signalled, delegate.callback)
    runner.push(["echo", "no such line"], delegate.callback)
    runner.push(line("c"), delegate.callback)
    with pytest.raises(ost.TuningError) as caught:
        runner.join()
    assert isinstance(caught.value, RuntimeError)
    message = str(caught.value)
    for part in ("/nonexistent/profiler", "No such file", "hanging", "exit 7", "SIGSEGV", "signalled", "no such line"):
        assert part in message
    assert "OP:a" not in message
    assert names(delegate) == ["a", "c"]
    assert delegate.ended == 1
    runner.join()  # what was told is told
    assert delegate.ended == 2
    assert names(delegate) == ["a", "c"]


def test_join_again_after_further_pushes(delegate):
    runner = ProfilerRunner(["0"], delegate)
    for k in range(3):
        delegate.ended = 0
        runner.push(line(f"op{k}"), delegate.callback)
        runner.join()
        assert delegate.ended == 1
    assert names(delegate) == ["op0", "op1", "op2"]


def test_join_without_pushes(delegate):
    ProfilerRunner(["0"], delegate).join()
    assert delegate.ended == 1


def test_a_callback_that_raises_is_a_failure(delegate):
    def callback(result, delegate):
        raise ValueError("seven is missing")

    runner = ProfilerRunner(["0"], delegate)
    runner.push(line("a"), callback)
    runner.push(line("b"), delegate.callback)
    with pytest.raises(ost.TuningError, match="seven is missing"):
        runner.join()
    assert names(delegate) == ["b"]
    assert delegate.ended == 1


def test_the_timeout_is_per_command(delegate):
    runner = ProfilerRunner(["0"], delegate, timeout=1)
    for k in range(5):
        runner.push(["sh", "-c", f"sleep 0.4; echo OP:op{k},TIME:1,WS:0"], delegate.callback)
    runner.join()
    assert len(delegate.results) == 5


def test_nothing_is_run_twice(delegate, lines):
    runner = ProfilerRunner(["0"], delegate)
    runner.push(["sh", "-c", f"echo ran >> {lines.path}; printf '\\377'; exit 1"], delegate.callback)
    with pytest.raises(ost.TuningError):
        runner.join()
    assert lines() == ["ran"]


def test_no_two_commands_on_a_device_at_once(delegate, lines):
    runner = ProfilerRunner(["0"], delegate)
    for _ in range(4):
        code = f"echo begin >> {lines.path}; sleep 0.03; echo end >> {lines.path}; echo OP:a,TIME:1,WS:0"
        runner.push(["sh", "-c", code], delegate.callback)
    runner.join()
    assert lines() == ["begin", "end"] * 4


def test_devices_work_at_the_same_time(delegate, tmp_path):
    runner = ProfilerRunner(["0", "1"], delegate)
    for mine, other in ("ab", "ba"):
        code = f"touch {tmp_path}/{mine}; while [ ! -e {tmp_path}/{other} ]; do sleep 0.01; done; echo OP:a,TIME:1,WS:0"
        runner.push(["sh", "-c", code], delegate.callback)
    runner.join()
    assert len(delegate.results) == 2


def seen(delegate, devices, runs=1):
    """Return the devices that commands are told to use."""
    runner = ProfilerRunner(devices, delegate)
    for _ in range(runs):
        runner.push(["sh", "-c", "echo OP:${CUDA_VISIBLE_DEVICES-none},TIME:1,WS:0"], delegate.callback)
    runner.join()
    return set(names(delegate))


@pytest.mark.parametrize("devices", [None, []], ids=str)
def test_devices_by_default(delegate, monkeypatch, devices):
    assert seen(delegate, devices) == {"0"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    other = Delegate()
    assert seen(other, devices, runs=2) <= {"4", "5"}


def test_explicit_devices_reach_the_command_as_they_are(delegate, monkeypatch):
    assert seen(delegate, ["3"]) == {"3"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    other = Delegate()
    assert seen(other, ["5"]) == {"5"}
    assert seen(Delegate(), [4]) == {"4"}
    with pytest.raises(ost.DeviceError, match="0"):
        ProfilerRunner(["0"], delegate)


@pytest.mark.parametrize("devices", [["0", "0"], [0, "0"], [1, 2, 1]], ids=str)
def test_duplicate_devices(delegate, devices):
    with pytest.raises(ValueError, match=r"[01]"):
        ProfilerRunner(devices, delegate)


def test_a_hanging_command_is_killed_with_all_it_started(delegate, lines, alive):
    runner = ProfilerRunner(["0"], delegate, timeout=0.5)
    runner.push(["sh", "-c", f"sleep 600 & echo $! >> {lines.path}; wait"], delegate.callback)
    begin = time.monotonic()
    with pytest.raises(ost.TuningError):
        runner.join()
    assert time.monotonic() - begin < 30
    assert len(lines()) == 1
    assert not alive(int(lines()[0]))


def test_much_output(delegate):
    runner = ProfilerRunner(["0"], delegate)
    code = (
        "head -c 300000 /dev/zero | tr '\\0' x; head -c 300000 /dev/zero | tr '\\0' y >&2; echo; echo OP:a,TIME:1,WS:0"
    )
    runner.push(["sh", "-c", code], delegate.callback)
    runner.join()
    assert names(delegate) == ["a"]


def test_commands_have_no_input(delegate):
    runner = ProfilerRunner(["0"], delegate)
    runner.push(["sh", "-c", "cat; echo OP:a,TIME:1,WS:0"], delegate.callback)
    runner.join()
    assert names(delegate) == ["a"]


def test_the_least_time_is_the_result(delegate):
    runner = ProfilerRunner(["0"], delegate)
    runner.push(["printf", "OP:a,TIME:3,WS:0\nOP:b,TIME:1,WS:0\nOP:c,TIME:2,WS:0\n"], delegate.callback)
    runner.join()
    assert delegate.results == [ProfileResult("b", 1.0, 0)]


@pytest.mark.parametrize(
    "cmds",
    [[], None, 3, ["echo", 3], ["a\0b"], ""],
    ids=str,
)
def test_wrong_commands(delegate, cmds):
    runner = ProfilerRunner(["0"], delegate)
    with pytest.raises((TypeError, ValueError)):
        runner.push(cmds, delegate.callback)
    runner.join()


# Runner


def test_the_old_runner():
    runner = Runner(["0", "1"], "mm")
    runner.push("b", line("k1", 2))
    runner.push("a", line("k2", 1, 7))
    runner.push("ops", ["printf", "OP:x,TIME:3,WS:0\nOP:y,TIME:1,WS:0\nOP:z,TIME:1,WS:0\n"], return_ops=["x", "y"])
    runner.join()
    pulled = runner.pull()
    assert [idx for idx, _ in pulled] == ["b", "a", "ops"]
    assert pulled[0][1] == ProfileResult("k1", 2.0, 0)
    assert pulled[1][1] == ProfileResult("k2", 1.0, 7)
    assert [result.op_config for result in pulled[2][1]] == ["x", "y"]
    assert not runner.failures


def test_the_old_runner_logs_failures(caplog, script):
    runner = Runner(["0"], "mm", timeout=1)
    runner.push(1, line("good"))
    runner.push(2, ["echo", "hello"])
    runner.push(3, ["sh", "-c", "echo OP:a,TIME:1,WS:0; exit 7"])
    runner.push(4, "/nonexistent/profiler")
    runner.push(5, ["sleep", "600"])
    with caplog.at_level(logging.WARNING):
        runner.join()
    assert [idx for idx, _ in runner.pull()] == [1]
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 4
    assert len(runner.failures) == 4
    assert "/nonexistent/profiler" in caplog.text


def test_the_old_runner_refuses():
    with pytest.raises(ValueError, match="device"):
        Runner([], "mm")
    with pytest.raises(ValueError, match="0"):
        Runner(["0", "0"], "mm")
    runner = Runner(["0"], "mm")
    runner.push("a", line("x"))
    with pytest.raises(ValueError, match="a"):
        runner.push("a", line("y"))
    runner.join()
    assert runner.pull() == [("a", ProfileResult("x", 1.0, 0))]


def test_nothing_spins_while_it_waits(delegate):
    runner = ProfilerRunner(["0"], delegate)
    runner.push(["sh", "-c", "sleep 0.5; echo OP:a,TIME:1,WS:0"], delegate.callback)
    before = time.process_time()
    runner.join()
    assert time.process_time() - before < 0.2


def test_every_name_is_there():
    assert callable(process_task)
    assert callable(process_return)
    assert ost.profiler_runner is profiler_runner
    assert os.environ["OSTINATO_LEASE_DIR"]
