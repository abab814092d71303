"""`ProfilerRunner`: the faults of its ancestor, P1 to P16, by the input that provoked them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time

import pytest

import ostinato.profiler_runner as pr
from ostinato.errors import DeviceError, TuningError
from ostinato.tune.leases.cuda import host_gpus
from ostinato.tune.legacy import command_queue
from ostinato.tune.workers import command as command_module
from ostinato.tune.workers.reaper import NotStarted, Reaper
from profilers import (
    MISSING,
    Delegate,
    interrupt_when_there,
    line,
    meets,
    pid_in,
    python,
    runs,
    says,
    sh,
    until,
)

pytestmark = pytest.mark.usefixtures("unmasked", "nothing_stays")

PRELUDE = """
import sys
from ostinato.profiler_runner import ProfilerRunner
from profilers import *
"""


@pytest.fixture
def delegate() -> Delegate:
    return Delegate()


def failing(runner: pr.ProfilerRunner) -> str:
    """What join says has failed."""
    with pytest.raises(TuningError) as caught:
        runner.join()
    assert isinstance(caught.value, RuntimeError)
    return str(caught.value)


def test_good_commands_reach_their_callbacks_and_the_delegate(delegate):
    runner = pr.ProfilerRunner(["0", "1"], delegate)
    runner.push(sh('echo "$1"; echo "$2"', line("slow", 2.5, 7), line("fast", 0.25, 1 << 40)), delegate.add)
    runner.push(says("only", "1e-05", 3), delegate.add)
    runner.join()
    assert delegate.results == [("fast", 0.25, 1 << 40), ("only", 1e-5, 3)]
    assert all(type(result) is pr.ProfileResult for result in delegate.results)
    assert delegate.postprocessed == [delegate.results]


def test_a_command_may_be_a_path(delegate, tmp_path):
    program = tmp_path / "a profiler; with spaces"
    program.write_text(f'#!/bin/sh\necho "{line("script")}"\n')
    program.chmod(0o755)
    runner = pr.ProfilerRunner([0], delegate)
    runner.push(str(program), delegate.add)
    runner.push(program, delegate.add)
    runner.join()
    assert delegate.ops == ["script", "script"]


def test_a_command_may_report_by_descriptor(delegate):
    runner = pr.ProfilerRunner([0], delegate)
    report = '{"v":1,"type":"result","op":"json","status":"ok","ns":2500000,"workspace":64,"message":""}'
    runner.push(sh('eval "echo \\"\\$1\\" >&$OSTINATO_REPORT_FD"', report), delegate.add)
    runner.join()
    assert delegate.results == [("json", 2.5, 64)]


@pytest.mark.parametrize("command", [[], "", ["/bin/echo", 3], 7, None])
def test_what_is_no_command_is_refused_at_once(delegate, command):
    runner = pr.ProfilerRunner([0], delegate)
    with pytest.raises((TypeError, ValueError)):
        runner.push(command, delegate.add)
    runner.join()


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "5", True])
def test_a_timeout_that_is_none_is_refused(delegate, timeout):
    with pytest.raises((TypeError, ValueError)):
        pr.ProfilerRunner([0], delegate, timeout=timeout)


def test_p1_a_device_is_back_after_a_failed_launch(delegate, tmp_path):
    runner = pr.ProfilerRunner(["0", "1"], delegate)
    for _ in range(3):
        runner.push([MISSING], delegate.add)
    assert failing(runner).count(f"\n  {MISSING}: ") == 3
    runner.push(meets(tmp_path / "a", tmp_path / "b", "a"), delegate.add)  # these two need both devices at once
    runner.push(meets(tmp_path / "b", tmp_path / "a", "b"), delegate.add)
    runner.join()
    assert delegate.ops == ["a", "b"]


def test_p2_a_failed_launch_on_the_only_device_holds_up_nothing(delegate):
    runner = pr.ProfilerRunner([0], delegate)
    runner.push([MISSING], delegate.add)
    runner.push(says("first"), delegate.add)
    runner.push(says("second"), delegate.add)
    told = failing(runner)
    assert MISSING in told
    assert os.strerror(errno.ENOENT) in told
    assert "echo" not in told  # the innocent are not named
    assert delegate.ops == ["first", "second"]


@pytest.mark.parametrize("end", ["pass", "del runner; import gc; gc.collect()", "raise SystemExit(0)"])
def test_p2_the_interpreter_exits_whatever_still_runs(tmp_path, end):
    script = f"""{PRELUDE}
runner = ProfilerRunner([0], Delegate())
runner.push([MISSING], print)
runner.push(sh('echo $$ > "$1"; exec sleep 600', sys.argv[1]), print)
runner.push(says("never"), print)
pid_in(Path(sys.argv[1]))
{end}
"""
    with python(script, tmp_path / "pid") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")
    until(lambda: not runs(pid_in(tmp_path / "pid")), "the profiler is gone")


def test_p3_a_launch_error_keeps_its_cause_and_the_other_results(delegate):
    runner = pr.ProfilerRunner(["0", "1"], delegate)
    runner.push([MISSING], delegate.add)
    runner.push(says("good"), delegate.add)
    runner.push(["/etc/passwd"], delegate.add)
    told = failing(runner)
    assert os.strerror(errno.ENOENT) in told
    assert os.strerror(errno.EACCES) in told
    assert delegate.postprocessed == [[("good", 1.0, 0)]]


def test_p4_a_hung_profiler_is_killed_and_named(delegate, tmp_path):
    runner = pr.ProfilerRunner([0], delegate, timeout=0.2)
    runner.push(sh('echo $$ > "$1"; trap "" TERM INT; sleep 600; sleep 600', tmp_path / "pid"), delegate.add)
    runner.push(says("good"), delegate.add)
    told = failing(runner)
    assert "sleep 600" in told
    assert "0.2 s" in told
    assert "echo OP" not in told
    assert not runs(pid_in(tmp_path / "pid"))
    assert delegate.ops == ["good"]


def test_p5_partial_results_are_kept_and_postprocessed_once(delegate):
    runner = pr.ProfilerRunner(["0", "1"], delegate, timeout=0.5)
    bad = [[MISSING], sh("exit 3"), sh("kill -ABRT $$"), sh("sleep 600"), ["/bin/echo", "nothing of use"]]
    for index, command in enumerate(bad):
        runner.push(command, delegate.add)
        runner.push(says(f"good{index}"), delegate.add)
    told = failing(runner)
    for reason in ("No such file", "exit status 3", "SIGABRT", "0.5 s", "nothing of use"):
        assert reason in told
    assert delegate.ops == [f"good{index}" for index in range(len(bad))]
    assert delegate.postprocessed == [delegate.results]


def test_p6_a_callback_that_raises_is_told_and_costs_only_its_result(delegate):
    def refuses(result, delegate):
        raise ValueError("no such algorithm")

    runner = pr.ProfilerRunner([0], delegate)
    runner.push(says("refused"), refuses)
    runner.push(says("good"), delegate.add)
    with pytest.raises(TuningError, match=r"refused.*ValueError: no such algorithm") as caught:
        runner.join()
    assert isinstance(caught.value.__cause__, ValueError)
    assert delegate.postprocessed == [[("good", 1.0, 0)]]


def test_p6_output_that_says_nothing_is_told(delegate):
    runner = pr.ProfilerRunner([0], delegate)
    runner.push(["/bin/echo", "segv"], delegate.add)
    runner.push(["/bin/true"], delegate.add)
    told = failing(runner)
    assert "'segv'" in told
    assert "/bin/true" in told
    assert delegate.postprocessed == [[]]


def test_p6_a_delegate_that_raises_is_heard_and_failures_with_it(delegate):
    def fails():
        raise LookupError("no such operator")

    delegate.postprocess_results = fails
    runner = pr.ProfilerRunner([0], delegate)
    runner.push([MISSING], delegate.add)
    with pytest.raises(LookupError, match="no such operator") as caught:
        runner.join()
    assert any(MISSING in note for note in caught.value.__notes__)


@pytest.mark.parametrize(("ending", "reason"), [("kill -SEGV $$", "killed by SIGSEGV"), ("exit 7", "exit status 7")])
def test_p7_a_good_line_before_a_bad_end_is_no_result(delegate, ending, reason):
    runner = pr.ProfilerRunner([0], delegate)
    runner.push(sh(f'echo "$1"; echo "no kernel image" >&2; {ending}', line("liar", 0.001)), delegate.add)
    runner.push(says("honest", 5.0), delegate.add)
    told = failing(runner)
    assert reason in told
    assert "no kernel image" in told
    assert delegate.ops == ["honest"]


def test_p8_a_byte_that_is_no_text_costs_nothing_and_is_run_once(delegate, tmp_path):
    runner = pr.ProfilerRunner([0], delegate)
    runner.push(
        sh(r'echo run >> "$1"; printf "\377\376 noise \377\n"; echo "$2"', tmp_path / "log", line("op")), delegate.add
    )
    runner.join()
    assert delegate.ops == ["op"]
    assert (tmp_path / "log").read_text() == "run\n"


def test_p9_join_again_and_push_after_join(delegate):
    runner = pr.ProfilerRunner([0], delegate)
    runner.join()
    runner.push(says("first"), delegate.add)
    runner.join()
    runner.join()
    runner.push(says("second"), delegate.add)
    runner.push([MISSING], delegate.add)
    assert MISSING in failing(runner)
    runner.join()  # a failure is told once
    assert delegate.postprocessed == [
        [],
        [("first", 1.0, 0)],
        [("first", 1.0, 0)],
        [("first", 1.0, 0), ("second", 1.0, 0)],
        [("first", 1.0, 0), ("second", 1.0, 0)],
    ]


def test_p9_instances_leave_no_threads(delegate):
    before = set(threading.enumerate())
    runners = [pr.ProfilerRunner([0], delegate) for _ in range(8)]
    for runner in runners:
        runner.push(says("op"), delegate.add)
    for runner in runners:
        runner.join()
    until(lambda: set(threading.enumerate()) <= before, "the threads ended")
    assert len(delegate.results) == 8


@pytest.mark.parametrize("devices", [["0", "0"], [0, "0"], ["1", "0", "1"]])
def test_p10_a_device_named_twice_is_refused(delegate, devices):
    with pytest.raises(ValueError, match="twice"):
        pr.ProfilerRunner(devices, delegate)


ALONE = """
for i in 1 2 3 4; do :; done
mkdir "$1/held" || echo overlap >> "$1/overlaps"
sleep 0.02
rmdir "$1/held"
echo "OP:alone,TIME:1,WS:0"
"""


def test_p10_no_two_commands_share_a_device_within_a_process_and_between(delegate, tmp_path):
    script = f"""{PRELUDE}
delegate = Delegate()
runner = ProfilerRunner(["0"], delegate)
for _ in range(5):
    runner.push(sh(sys.argv[2], sys.argv[1]), delegate.add)
runner.join()
assert len(delegate.results) == 5
"""
    others = [python(script, tmp_path, ALONE) for _ in range(2)]
    runners = [pr.ProfilerRunner(["0"], delegate) for _ in range(2)]
    for _ in range(5):
        for runner in runners:
            runner.push(sh(ALONE, tmp_path), delegate.add)
    for runner in runners:
        runner.join()
    for other in others:
        with other:
            assert other.communicate(timeout=60) == ("", "")
        assert other.returncode == 0
    assert len(delegate.results) == 10
    assert not (tmp_path / "overlaps").exists()


SEES = 'echo "OP:$CUDA_VISIBLE_DEVICES|$HIP_VISIBLE_DEVICES|$CUDA_DEVICE_ORDER,TIME:1,WS:0"'


@pytest.mark.parametrize("devices", [None, []])
def test_p11_without_devices_the_mask_of_the_parent_is_used(delegate, tmp_path, monkeypatch, devices):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    runner = pr.ProfilerRunner(devices, delegate)
    for mine, other in (("a", "b"), ("b", "a")):
        command = meets(tmp_path / mine, tmp_path / other, mine)
        command[2] += f"; {SEES.replace('TIME:1', 'TIME:0.5')}"
        runner.push(command, delegate.add)
    runner.join()
    assert sorted(op.split("|")[0] for op in delegate.ops) == ["4", "5"]


@pytest.mark.parametrize("devices", [None, []])
def test_p11_without_devices_and_mask_there_is_device_0(delegate, devices):
    runner = pr.ProfilerRunner(devices, delegate)
    runner.push(sh(SEES), delegate.add)
    runner.join()
    assert delegate.ops[0].split("|")[0] == "0"


def test_p11_a_device_reaches_the_child_as_it_stands(delegate, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8d2f0c5a-1111-2222-3333-444455556666,5")
    for device in ("GPU-8d2f0c5a-1111-2222-3333-444455556666", "5", 5):
        runner = pr.ProfilerRunner([device], delegate)
        runner.push(sh(SEES), delegate.add)
        runner.join()
        assert delegate.ops[-1].split("|")[0] == str(device)


@pytest.mark.parametrize("device", ["0", "6", "45", ""])
def test_p11_a_device_outside_the_mask_of_the_parent_is_refused(delegate, monkeypatch, device):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with pytest.raises((DeviceError, ValueError)) as caught:
        pr.ProfilerRunner([device], delegate)
    assert not device or isinstance(caught.value, DeviceError)


@pytest.mark.skipif(bool(host_gpus()), reason="this host has GPUs of NVIDIA")
def test_p11_on_rocm_the_variable_is_that_of_rocm(delegate, monkeypatch):
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2,3")
    runner = pr.ProfilerRunner(["3"], delegate)
    runner.push(sh(SEES), delegate.add)
    runner.join()
    assert delegate.ops[0].split("|")[1] == "3"
    with pytest.raises(DeviceError):
        pr.ProfilerRunner(["0"], delegate)


def test_p12_the_limit_of_time_is_each_commands_own(delegate):
    runner = pr.ProfilerRunner([0], delegate, timeout=1.0)
    for index in range(8):
        runner.push(sh('sleep 0.15; echo "$1"', line(f"op{index}")), delegate.add)  # 1.2 s together
    runner.join()
    assert len(delegate.results) == 8


@pytest.mark.parametrize("command", [sh('echo run >> "$1"; exit 1'), sh('echo run >> "$1"; kill -KILL $$')])
def test_p13_a_command_that_fails_is_not_tried_again(delegate, tmp_path, command):
    runner = pr.ProfilerRunner([0], delegate)
    runner.push([*command, str(tmp_path / "log")], delegate.add)
    failing(runner)
    assert (tmp_path / "log").read_text() == "run\n"


class Scarce(Reaper):
    """A reaper that lacks the resources for the first commands."""

    left = 2
    error = errno.EAGAIN

    def spawn(self, *arguments: object, **options: object) -> None:
        self.short = Scarce.left > 0
        Scarce.left -= 1
        super().spawn([MISSING] if self.short else arguments[0], *arguments[1:], **options)

    def read(self):
        events = super().read()
        return [NotStarted(Scarce.error, "fork") if isinstance(event, NotStarted) else event for event in events]


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.ENOMEM])
def test_p13_a_launch_that_lacks_resources_is_tried_again(delegate, monkeypatch, error):
    monkeypatch.setattr(command_queue, "Reaper", Scarce)
    monkeypatch.setattr(command_module, "PAUSES", (0.01, 0.01, 0.01))
    monkeypatch.setattr(Scarce, "left", 2)
    monkeypatch.setattr(Scarce, "error", error)
    runner = pr.ProfilerRunner([0], delegate)
    runner.push(says("late"), delegate.add)
    runner.join()
    assert delegate.ops == ["late"]
    monkeypatch.setattr(Scarce, "left", 4)
    runner.push(says("never"), delegate.add)
    runner.push(says("after"), delegate.add)
    told = failing(runner)
    assert os.strerror(error) in told
    assert "4 attempts" in told
    assert delegate.ops == ["late", "after"]


def test_p13_a_launch_for_which_descriptors_are_short_is_tried_again():
    script = f"""{PRELUDE}
import os, resource, threading
from ostinato.tune.workers import command
from ostinato.tune.legacy import command_queue
command.PAUSES = command_queue.PAUSES = (0.02,) * 500
delegate = Delegate()
runner = ProfilerRunner([0], delegate)
runner.push(says("before"), delegate.add)
runner.join()
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
for left in range(12):  # runs short in each place where descriptors are needed
    taken = [os.dup(0) for _ in range(65 - len(os.listdir("/proc/self/fd")) - left)]
    enough = threading.Timer(0.05, lambda: [os.close(fd) for fd in taken])
    enough.start()
    runner.push(says(f"short{{left}}"), delegate.add)
    runner.join()
    enough.join()
print(*delegate.ops)
"""
    with python(script) as process:
        short = " ".join(f"short{left}" for left in range(12))
        assert process.communicate(timeout=60) == (f"before {short}\n", "")
    assert process.returncode == 0


INTERRUPTED = f"""{PRELUDE}
delegate = Delegate()
def added(result, delegate):
    delegate.add(result, delegate)
    print("added", result.op_config, flush=True)
runner = ProfilerRunner(["0", "1"], delegate)
runner.push(says("quick"), added)
runner.push(sh('echo $$ > "$1"; trap "" INT; sleep 600; sleep 600', sys.argv[1]), added)
runner.push(says("finished"), added)
runner.push(sh('echo "$$" > "$1"; sleep 600', sys.argv[2]), added)
runner.push(says("queued"), added)
try:
    runner.join()
except KeyboardInterrupt:
    print("interrupted", *delegate.ops, flush=True)
try:
    runner.join()
except RuntimeError as error:
    print(error, flush=True)
print(delegate.postprocessed)
"""


def test_p14_ctrl_c_kills_what_runs_and_keeps_the_results(tmp_path):
    with python(INTERRUPTED, tmp_path / "first", tmp_path / "second", start_new_session=True) as process:
        pids = [pid_in(tmp_path / "first"), pid_in(tmp_path / "second")]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert not any(runs(pid) for pid in pids)
    lines = out.splitlines()
    assert lines[:3] == ["added quick", "added finished", "interrupted quick finished"]
    assert "cancelled" in out
    assert out.count("sleep 600") >= 2
    assert "queued" in out  # named among the cancelled, not added
    assert "added queued" not in out
    assert lines[-1].count("ProfileResult") == 2
    assert (process.returncode, err) == (0, "")


def test_p14_results_that_had_ended_are_delivered_at_ctrl_c(delegate, tmp_path):
    def more(result, delegate):
        delegate.add(result, delegate)
        runner.push(says("more"), more)  # no end of it, if Ctrl-C waited for these

    runner = pr.ProfilerRunner(["0", "1"], delegate)
    runner.push(sh('sleep 600 & echo $! > "$1"; wait', tmp_path / "hangs"), delegate.add)
    runner.push(says("ended"), more)
    runner.push(sh('echo $$ > "$1"; sleep 600; sleep 600', tmp_path / "last"), delegate.add)
    interrupt_when_there(tmp_path / "hangs", tmp_path / "last")
    with pytest.raises(KeyboardInterrupt):
        runner.join()
    assert delegate.ops == ["ended"]
    assert not delegate.postprocessed
    assert not runs(pid_in(tmp_path / "hangs"))
    runner._backlog.stop()
    with pytest.raises(TuningError) as caught:
        runner.join()
    assert len(caught.value.failures) >= 2
    assert len(delegate.postprocessed) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_p14_nothing_outlives_a_killed_parent(tmp_path, number):
    with python(INTERRUPTED, tmp_path / "first", tmp_path / "second", start_new_session=True) as process:
        pids = [pid_in(tmp_path / "first"), pid_in(tmp_path / "second")]
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == -number
    until(lambda: not any(runs(pid) for pid in pids), "the profilers are gone")
    delegate = Delegate()
    runner = pr.ProfilerRunner(["0", "1"], delegate)  # and the devices are free
    runner.push(says("next"), delegate.add)
    runner.join()
    assert delegate.ops == ["next"]


def test_p14_what_is_no_longer_referred_to_is_killed(delegate, tmp_path):
    runner = pr.ProfilerRunner([0], delegate)
    runner.push(sh('echo $$ > "$1"; sleep 600; sleep 600', tmp_path / "pid"), delegate.add)
    pid = pid_in(tmp_path / "pid")
    del runner
    until(lambda: not runs(pid), "the profiler is gone")
    following = pr.ProfilerRunner([0], delegate)
    following.push(says("next"), delegate.add)
    following.join()
    assert delegate.ops == ["next"]


@pytest.mark.forks
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_p14_a_fork_of_the_user_harms_nobody(delegate, tmp_path):
    runner = pr.ProfilerRunner([0], delegate)
    runner.push(
        sh(
            'echo $$ > "$1"; while [ ! -e "$2" ]; do sleep 0.01; done; echo "$3"',
            tmp_path / "pid",
            tmp_path / "go",
            line("op"),
        ),
        delegate.add,
    )
    pid = pid_in(tmp_path / "pid")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            try:
                runner.join()
            except RuntimeError as error:
                status = 0 if "process" in str(error) else 2
            runner = None
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert runs(pid)
    (tmp_path / "go").touch()
    runner.join()
    assert delegate.ops == ["op"]


def test_p15_a_child_reads_nothing_from_the_terminal(delegate):
    read, write = os.pipe()
    before = os.dup(0)
    os.dup2(read, 0)
    try:
        runner = pr.ProfilerRunner([0], delegate, timeout=20)
        runner.push(sh('cat; echo "$1"', line("op")), delegate.add)
        runner.join()
    finally:
        os.dup2(before, 0)
        for fd in (before, read, write):
            os.close(fd)
    assert delegate.ops == ["op"]


@pytest.mark.parametrize("where", ["", ">&2"])
def test_p15_output_without_end_is_cut_off(delegate, where):
    runner = pr.ProfilerRunner(["0", "1"], delegate)
    runner.push(sh(f'echo "$1"; yes "a chatty kernel" {where}', line("chatty")), delegate.add)
    runner.push(says("good"), delegate.add)
    told = failing(runner)
    assert "chatty" in told
    assert "64 MiB" in told
    assert len(told) < 10_000
    assert delegate.ops == ["good"]


def test_p16_callbacks_run_one_at_a_time_where_join_is_called_in_the_order_of_pushes(delegate, tmp_path):
    inside = threading.Lock()
    threads = []

    def added(result, delegate):
        assert inside.acquire(blocking=False)
        time.sleep(0.005)
        threads.append(threading.current_thread())
        delegate.add(result, delegate)
        inside.release()

    runner = pr.ProfilerRunner(["0", "1", "2", "3"], delegate)
    after = 'while [ ! -e "$2" ]; do sleep 0.005; done; touch "$1"; echo "$3"'
    for index in range(4):  # each ends only after the one behind it
        runner.push(
            sh(
                after if index < 3 else 'touch "$1"; echo "$3"',
                tmp_path / f"{index}",
                tmp_path / f"{index + 1}",
                line(f"op{index}"),
            ),
            added,
        )
    runner.join()
    assert delegate.ops == ["op0", "op1", "op2", "op3"]
    assert set(threads) == {threading.current_thread()}


def test_p16_a_callback_may_push_but_not_join(delegate):
    def more(result, delegate):
        delegate.add(result, delegate)
        with pytest.raises(RuntimeError, match="callback"):
            runner.join()
        runner.push(says("second"), delegate.add)

    runner = pr.ProfilerRunner([0], delegate)
    runner.push(says("first"), more)
    runner.join()
    assert delegate.ops == ["first", "second"]
    assert len(delegate.postprocessed) == 1


def test_many_commands_on_many_devices(delegate):
    runner = pr.ProfilerRunner([str(device) for device in range(6)], delegate)
    for index in range(120):
        runner.push([MISSING] if index % 10 == 9 else says(f"op{index}", index + 1), delegate.add)
    told = failing(runner)
    assert told.count(f"\n  {MISSING}: ") == 12
    assert delegate.ops == [f"op{index}" for index in range(120) if index % 10 != 9]


def test_the_environment_of_the_push_counts(delegate, monkeypatch):
    monkeypatch.setenv("A_VARIABLE", "pushed")
    runner = pr.ProfilerRunner([0], delegate)
    runner.push(sh('sleep 0.05; echo "OP:$A_VARIABLE,TIME:1,WS:0"'), delegate.add)
    runner.push(sh('echo "OP:$A_VARIABLE,TIME:1,WS:0"'), delegate.add)
    monkeypatch.setenv("A_VARIABLE", "later")
    runner.join()
    assert delegate.ops == ["pushed", "pushed"]


def test_the_working_directory_of_the_push_counts(delegate, monkeypatch, tmp_path):
    program = tmp_path / "profiler"
    program.write_text(f'#!/bin/sh\necho "{line("here")}"\n')
    program.chmod(0o755)
    runner = pr.ProfilerRunner([0], delegate)
    monkeypatch.chdir(tmp_path)
    runner.push(sh('sleep 0.05; echo "$1"', line("first")), delegate.add)
    runner.push(["./profiler"], delegate.add)
    monkeypatch.chdir("/")
    runner.join()
    assert delegate.ops == ["first", "here"]


def test_a_lease_held_elsewhere_is_waited_for_outside_the_limit_of_time(delegate, tmp_path):
    other = pr.ProfilerRunner(["0"], delegate)
    other.push(sh('echo $$ > "$1"; sleep 0.4; echo "$2"', tmp_path / "pid", line("first")), delegate.add)
    pid_in(tmp_path / "pid")
    runner = pr.ProfilerRunner(["0"], delegate, timeout=0.2)
    runner.push(says("second"), delegate.add)
    runner.join()
    other.join()
    assert delegate.ops == ["second", "first"]


def test_subprocesses_of_the_user_are_left_alone(delegate):
    with subprocess.Popen(["/bin/sleep", "600"]) as mine:
        runner = pr.ProfilerRunner([0], delegate, timeout=0.1)
        runner.push(["/bin/sleep", "600"], delegate.add)
        assert "0.1 s" in failing(runner)
        assert mine.poll() is None
        mine.kill()
