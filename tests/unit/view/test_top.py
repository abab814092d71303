"""``ostinato top``: what the threads of a script do, on a terminal and elsewhere."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato.runtime import workers
from ostinato.view.activity import Activity
from ostinato.view.top import History

SCRIPT = """
import os, signal, subprocess, sys, time
import numpy as np, ostinato as ost

@ost.task
def count(x: ost.ReadWrite): x += 1

x = np.zeros(1)
program = ost.compile(count, x, machine=ost.Machine(cpus=2, gpus=0))
"""


def top(tmp_path: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "script.py").write_text(code)
    command = [sys.executable, "-m", "ostinato", "top", str(tmp_path / "script.py"), *arguments]
    return subprocess.run(command, text=True, capture_output=True, check=False, timeout=60)


def on_terminal(tmp_path: Path, code: str, keys: bytes = b"", after: str = "") -> tuple[int, str]:
    """Return the exit status and what a terminal of 70 columns got; `keys` are pressed once it shows `after`."""
    (tmp_path / "script.py").write_text(code)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": "70", "LINES": "24"}
        os.execv(sys.executable, [sys.executable, "-m", "ostinato", "top", str(tmp_path / "script.py")])
    shown = b""
    while True:
        try:
            found = os.read(terminal, 1 << 16)
        except OSError:  # Linux's way to say that nobody has the other end
            break
        if not found:
            break
        shown += found
        if keys and after.encode() in shown:
            os.write(terminal, keys)
            keys = b""
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


def test_lines_where_there_is_no_terminal(tmp_path):
    ended = top(tmp_path, SCRIPT + "program.replay(int(sys.argv[1])); time.sleep(1.2); print(x[0])", "1000")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "1000.0\n"
    *lines, whole = ended.stderr.splitlines()
    assert len(lines) >= 2
    for line in lines:
        assert re.fullmatch(r"\d+ s; [\d,.]+ steps/s; \d runs? in flight; work: cpu:0 \d+ %, cpu:1 \d+ %", line), line
    assert re.fullmatch(r"[\d.]+ s in all: 1,000 steps, [\d,.]+ steps/s; work: cpu:0 \d+ %, cpu:1 \d+ %", whole)


def test_a_table_on_a_terminal_below_what_the_script_prints(tmp_path):
    code = SCRIPT + "print('hello'); program.replay(1000); time.sleep(1.2); sys.exit('good bye')"
    status, shown = on_terminal(tmp_path, code)
    assert status == 1
    for words in ("script.py", "thread", "work", "waiting", "cpu:0", "cpu:1", "runs in flight", "1,000 steps", "hello"):
        assert words in shown
    assert shown.index("good bye") > shown.index("hello")
    assert "\x1b[?25h" in shown  # the cursor is back


def test_ctrl_c_is_the_scripts(tmp_path):
    code = (
        SCRIPT
        + """
try:
    print("begun")
    program.replay(10**9)
except KeyboardInterrupt:
    sys.exit(7)
"""
    )
    status, shown = on_terminal(tmp_path, code, b"\x03", "begun")
    assert status == 7
    assert "Traceback" not in shown


def test_the_end_of_the_script_is_its_own(tmp_path):
    failed = top(tmp_path, SCRIPT + "program.replay(); raise ValueError('on purpose')")
    assert failed.returncode == 1
    assert "ValueError: on purpose" in failed.stderr
    assert " in all: 1 step, " in failed.stderr
    killed = top(tmp_path, SCRIPT + "program.replay(); os.kill(os.getpid(), signal.SIGKILL)")
    assert killed.returncode == 128 + 9
    assert top(tmp_path, "import sys; sys.exit(5)").returncode == 5


def test_a_script_without_a_program(tmp_path):
    ended = top(tmp_path, "print('nothing')")
    assert ended.returncode == 1
    assert "script.py made no machine: did it compile a program?" in ended.stderr


def test_no_script(tmp_path):
    for arguments in ([], [str(tmp_path / "missing.py")], [str(tmp_path)]):
        command = [sys.executable, "-m", "ostinato", "top", *arguments]
        ended = subprocess.run(command, text=True, capture_output=True, check=False, timeout=60)
        assert ended.returncode == 2
        assert "SCRIPT" in ended.stderr


def test_processes_of_the_script_are_not_watched(tmp_path):
    code = (
        SCRIPT
        + """
assert "OSTINATO_ACTIVITY" not in os.environ
child = os.fork()
if child == 0:
    with ost.Machine(cpus=1, gpus=0) as machine, ost.compile(count, x, machine=machine) as own:
        own.replay(10)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
list_open = "import os; print(*os.listdir('/proc/self/fd'))"
open_there = subprocess.check_output([sys.executable, "-c", list_open], close_fds=False)
assert len(open_there.split()) <= 5, open_there
program.replay(5)
"""
    )
    ended = top(tmp_path, code)
    assert ended.returncode == 0, ended.stderr
    assert " in all: 5 steps" in ended.stderr


def test_a_process_that_stays_behind_is_not_waited_for(tmp_path):
    code = SCRIPT + "program.replay(); print(f\"pid {subprocess.Popen(['sleep', '600'], stderr=2).pid}.\")"
    status, shown = on_terminal(tmp_path, code)
    assert status == 0
    found = re.search(r"pid (\d+)\.", shown)
    assert found, shown
    os.kill(int(found[1]), 9)


@pytest.fixture
def watched(monkeypatch):
    """An activity of this process, and a function that reads its last line."""
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    activity = Activity(writes)
    monkeypatch.setattr(activity, "_tell_often", lambda: None)
    monkeypatch.setattr(workers, "process_activity", lambda: activity)

    def last():
        activity.tell()
        return json.loads(os.read(reads, 1 << 20).splitlines()[-1])

    yield last
    os.close(reads)
    os.close(writes)


def test_threads_without_work_are_idle(watched):
    @ost.task(releases_gil=True)
    def rest(x: ost.Write):
        time.sleep(0.05)

    @ost.task
    def follow(x: ost.Read, y: ost.Write):
        y[:] = x

    with ost.Machine(cpus=2, gpus=0) as machine:
        x, y = np.zeros(1), np.zeros(1)
        with ost.capture() as graph:
            graph.task(rest, x, on="cpu:1")
            graph.task(follow, x, y, on="cpu:0")
        with graph.compile(machine, adapt=False) as program:
            before = watched()["machines"]["1"]
            program.replay(4)
            after = watched()["machines"]["1"]
            assert after["steps"] == 4
            assert after["runs"] == 0
            assert after["busy"][1] - before["busy"][1] >= 0.15e9  # the clock is coarse
            passed, busy = (after["ns"] - before["ns"], after["busy"][0] - before["busy"][0])
            assert 0 <= busy <= passed - 0.1e9  # it waits for each rest; the first looks are not counted
            time.sleep(0.02)
            again = watched()["machines"]["1"]
            assert again["ns"] > after["ns"]
            assert again["busy"][0] == after["busy"][0]


def test_steps_of_runs_in_flight_and_of_all_that_have_ended(watched):
    @ost.task
    def count(x: ost.ReadWrite):
        x += 1

    with ost.Machine(cpus=2, gpus=0) as machine:
        goes_on = threading.Event()

        @ost.task(blocking=True)
        def wait(x: ost.ReadWrite):
            goes_on.wait()

        programs = [ost.compile(count, np.zeros(1), machine=machine) for _ in range(2)]
        held = machine.spawn(wait, np.zeros(1))
        for program in programs:
            program.replay(1000)
        programs[0].close()
        del programs[0]
        found = watched()["machines"]["1"]
        assert found["steps"] == 2000
        assert found["runs"] == 1
        goes_on.set()
        held.result()
    assert watched()["machines"] == {}  # it is closed, and was told a last time


def test_what_devices_do(watched, opencl_machine):
    from ostinato.view.top import Sample

    x = opencl_machine.memories[-1].empty(64, np.float32)
    with ost.capture() as graph:
        graph.fill(x, 1.0)
    with graph.compile(opencl_machine) as program:
        program.replay(3)
        sample: Sample = watched()
    ((name, (calls, copies, copied)),) = sample["devices"].items()
    assert name == opencl_machine.processors[-1].name
    assert calls >= 3
    assert copies >= 0
    assert copied >= 0
    rates = History().add(sample, 2.0)
    assert rates.devices == [(name, calls / 2, copies / 2, copied / 2)]


@pytest.fixture
def opencl_machine(watched):
    pytest.importorskip("pyopencl", reason="needs the extra opencl")
    with ost.Machine(cpus=2) as machine:
        if not any(processor.kind == "opencl" for processor in machine.processors):
            pytest.skip("needs an OpenCL device")
        yield machine


def test_rates_are_differences():
    history = History()
    first = {"machines": {"1": {"ns": 100, "busy": [50, 0], "steps": 10, "runs": 1}}, "devices": {}}
    second = {
        "machines": {
            "1": {"ns": 300, "busy": [250, 50], "steps": 40, "runs": 1},
            "2": {"ns": 100, "busy": [25], "steps": 5, "runs": 2},
        },
        "devices": {"opencl:0": [4, 2, 1000]},
    }
    history.add(first, 1.0)
    rates = history.add(second, 0.5)
    assert rates.steps_per_second == 35 / 0.5
    assert rates.runs == 3
    assert rates.threads == [("cpu:0", 1.0), ("cpu:1", 0.25), ("machine 2 cpu:0", 0.25)]
    assert rates.devices == [("opencl:0", 8, 4, 2000)]
    assert history.steps == 45
