"""One command under a reaper: how it is started, read, limited and judged."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from pathlib import Path

import pytest

from ostinato import Status
from ostinato.tune.workers import command as module
from ostinato.tune.workers.command import CommandRun, Kept
from ostinato.tune.workers.loop import Loop
from ostinato.tune.workers.protocol import Reading
from ostinato.tune.workers.reaper import Exited, Lost, NotStarted, Reaper, Stuck
from profilers import line, pid_in, runs, sh, until


@pytest.fixture
def loop():
    loop = Loop()
    yield loop
    assert not loop._selector.get_map(), "something is still watched"
    loop.close()


@pytest.fixture
def reaper():
    with Reaper() as reaper:
        yield reaper


pytestmark = pytest.mark.usefixtures("nothing_stays")


class Bench:
    """Runs commands and waits for them."""

    def __init__(self, loop: Loop, reaper: Reaper) -> None:
        self.loop = loop
        self.reaper = reaper
        self.ended: list[object] = []

    def start(self, words, *, seconds=30.0, memory=None, env=None, cwd=None, reading=True, reaper=None):
        return CommandRun(
            self.loop,
            reaper or self.reaper,
            words,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            seconds=seconds,
            memory=memory,
            ended=self.ended.append,
            reading=Reading() if reading is True else reading,
        )

    def finish(self, run):
        deadline = time.monotonic() + 60
        while run.outcome is None:
            assert time.monotonic() < deadline
            self.loop.turn(1)
        assert self.ended.pop() is run.outcome
        assert not self.ended
        return run.outcome

    def run(self, words, **options):
        return self.finish(self.start(words, **options))


@pytest.fixture
def bench(loop, reaper):
    return Bench(loop, reaper)


def reports(*messages: dict[str, object], then: str = "") -> list[str]:
    """A command that reports by descriptor."""
    text = "\n".join(json.dumps({"v": 1, **message}) for message in messages)
    return sh(f'eval "echo \\"\\$1\\" >&$OSTINATO_REPORT_FD"; {then}', text)


def test_old_lines_become_outcomes_of_ops(bench):
    lines = [line("a", 0.5, 8), line("b<1>", "1e-3"), line("a", 0.25)]
    outcome = bench.run(["/usr/bin/printf", "%s\n", "starting", *lines])
    assert (outcome.status, outcome.message) == (Status.OK, "")
    assert [(op.op, op.status, op.samples, op.workspace) for op in outcome.ops] == [
        ("a", Status.OK, (5e5, 2.5e5), 8),
        ("b<1>", Status.OK, (1e3,), 0),
    ]
    assert outcome.stdout.startswith("starting\nOP:a")


def test_reports_by_descriptor(bench):
    outcome = bench.run(
        reports(
            {"type": "sample", "op": "a", "ns": [3, 1, 2]},
            {"type": "result", "op": "a", "status": "ok", "workspace": 16},
            {"type": "result", "op": "b", "status": "wrong_result", "message": "off by one"},
        )
    )
    assert outcome.status is Status.OK
    assert [(op.op, op.status, op.samples, op.message) for op in outcome.ops] == [
        ("a", Status.OK, (3, 1, 2), ""),
        ("b", Status.WRONG_RESULT, (), "off by one"),
    ]


@pytest.mark.parametrize(
    ("ending", "status", "reason"),
    [("kill -SEGV $$", Status.CRASH, "killed by SIGSEGV"), ("exit 3", Status.CRASH, "exit status 3")],
)
def test_the_op_that_was_started_is_the_culprit(bench, ending, status, reason):
    done = {"type": "result", "op": "done", "status": "ok", "ns": 5}
    outcome = bench.run(reports({"type": "start", "op": "done"}, done, {"type": "start", "op": "fatal"}, then=ending))
    assert outcome.status is status
    assert [(op.op, op.status, op.samples) for op in outcome.ops] == [("done", "ok", (5,)), ("fatal", status, ())]
    assert reason in outcome.ops[1].message


@pytest.mark.parametrize(
    "words", [sh('echo "$1"; exit 3', line("a")), reports({"type": "result", "op": "a", "ns": 5}, then="exit 3")]
)
def test_without_a_culprit_all_fail(bench, words):
    outcome = bench.run(words)
    assert [(op.op, op.status, op.samples) for op in outcome.ops] == [("a", Status.CRASH, ())]


def test_a_crash_quotes_the_last_that_was_said(bench):
    outcome = bench.run(sh("echo usual; printf 'first\\nno kernel \\033[31mimage\\n\\n' >&2; kill -ABRT $$"))
    assert outcome.message == "killed by SIGABRT: no kernel \\x1b[31mimage"
    assert bench.run(sh("echo only stdout; exit 1")).message == "exit status 1: only stdout"
    long = bench.run(sh('head -c 5000 /dev/zero | tr "\\0" "x"; exit 1'))
    assert len(long.message) < 400


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["/bin/true"], "it reported no time and printed nothing"),
        (["/bin/echo", "hello"], "it reported no time; the last that it printed is 'hello'"),
        (sh("echo oops >&2"), "it reported no time; the last that it printed is 'oops'"),
        (["/bin/echo", "OP:broken"], "'OP:broken'"),
        (reports({"type": "start", "op": "a"}), "no time"),
    ],
)
def test_nothing_reported_is_bad_output(bench, words, told):
    outcome = bench.run(words)
    assert outcome.status is Status.BAD_OUTPUT
    assert told.strip("'") in outcome.message


def test_a_build_reports_nothing(bench):
    outcome = bench.run(["/bin/echo", "compiled"], reading=None)
    assert (outcome.status, outcome.ops, outcome.stdout) == (Status.OK, (), "compiled\n")
    assert bench.run(sh("echo 'x.c:1: error' >&2; exit 1"), reading=None).message == "exit status 1: x.c:1: error"


def test_what_a_compiler_says_is_told_whole_its_first_error_first(bench):
    warned = (
        "printf 'In file x.h:\\nx.c:1: warning: w\\nx.c:2: error: e\\n  v\\ncompilation terminated.\\n' >&2; exit 1"
    )
    assert bench.run(sh(warned), reading=None).message.split("\n") == [
        "exit status 1: x.c:2: error: e",  # and then all of it
        "In file x.h:",
        "x.c:1: warning: w",
        "x.c:2: error: e",
        "  v",
        "compilation terminated.",
    ]
    long = bench.run(sh("seq 100000 >&2; exit 1"), reading=None).message
    assert long.startswith("exit status 1: 100000\n1\n2\n")
    assert long.endswith("\n100000")
    assert len(long) < 5000


def test_limit_of_time(bench, tmp_path):
    words = sh(f'echo "$1"; echo $$ > {tmp_path / "pid"}; trap "" TERM; sleep 600; sleep 600', line("a"))
    outcome = bench.run(words, seconds=0.1)
    assert outcome.status is Status.HANG_KILLED
    assert "after 0.1 s" in outcome.message
    assert [(op.op, op.status, op.samples) for op in outcome.ops] == [("a", Status.HANG_KILLED, ())]
    assert not runs(pid_in(tmp_path / "pid"))


def test_limit_of_memory(bench):
    outcome = bench.run([sys.executable, "-c", "x = bytearray(1 << 28); input()"], memory=1 << 26)
    assert (outcome.status, str(1 << 26) in outcome.message) == (Status.OOM, True)


@pytest.mark.parametrize("said", ["terminate called after throwing std::bad_alloc", "MemoryError", "Out of memory"])
def test_a_failed_allocation_under_a_limit_is_oom(bench, said):
    words = sh('echo "$1" >&2; exit 1', said)
    assert bench.run(words, memory=1 << 30).status is Status.OOM
    assert bench.run(words).status is Status.CRASH  # there is no limit: nobody took the memory away


def test_what_cannot_be_started(bench, tmp_path):
    outcome = bench.run(["/nonexistent/program", "argument"])
    assert outcome.status is Status.INVALID
    assert outcome.message == "'/nonexistent/program' cannot be started: No such file or directory"
    assert "/nowhere" in bench.run(["/bin/true"], cwd="/nowhere").message
    script = tmp_path / "script"
    script.write_text("#!/nonexistent/python\n")
    assert "Permission denied" in bench.run([str(script)]).message
    script.chmod(0o755)
    assert "interpreter" in bench.run([str(script)]).message
    assert bench.run(["no-such-program"], env={"PATH": str(tmp_path)}).status is Status.INVALID
    assert "environment" in bench.run(["/bin/true"], env={"": "nameless"}).message


def test_what_cannot_be_started_is_not_tried_again(bench):
    run = bench.start(["/nonexistent/program"])
    while run.event is None:
        bench.loop.turn(1)
    assert bench.loop.turn(0) is None  # its end is due at once
    assert run.outcome is not None
    bench.finish(run)


def test_path_cwd_and_environment_are_those_given(bench, tmp_path):
    program = tmp_path / "bin" / "profiler"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "OP:$(pwd)|$NAME,TIME:1,WS:0"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{program.parent}:/bin:/usr/bin", "NAME": "value"}
    outcome = bench.run(["profiler"], env=environment, cwd=str(tmp_path))
    assert outcome.ops[0].op == f"{tmp_path}|value"
    assert bench.run(["bin/profiler"], env=environment, cwd=str(tmp_path)).status is Status.OK


@pytest.mark.parametrize("flood", ["yes", "yes >&2", "yes '{}' >&3", "yes OP:a,TIME:1,WS:2", "cat /dev/zero"])
def test_output_without_end_is_cut_off_and_not_kept(bench, monkeypatch, flood):
    monkeypatch.setattr(module, "MOST_PRINTED", 1 << 20)
    run = bench.start(sh(flood))
    outcome = bench.finish(run)
    assert (outcome.status, "more than 1 MiB" in outcome.message) == (Status.BAD_OUTPUT, True)
    assert len(outcome.stdout) < 200_000
    assert len(run.stderr.text()) < 200_000


def test_much_output_is_read_to_its_end(bench):
    outcome = bench.run(sh('head -c 3000000 /dev/zero; echo; echo "$1"; head -c 3000000 /dev/zero >&2', line("late")))
    assert [op.op for op in outcome.ops] == ["late"]
    assert outcome.stdout.endswith(line("late") + "\n")


def test_a_kill_has_the_status_of_who_killed(bench, tmp_path):
    run = bench.start(sh('echo $$ > "$1"; sleep 600; sleep 600', tmp_path / "pid"))
    while not (tmp_path / "pid").exists():
        bench.loop.turn(0.01)
    run.kill(Status.CANCELLED, "the budget is spent")
    run.kill(Status.CRASH, "too late")
    outcome = bench.finish(run)
    assert (outcome.status, outcome.message) == (Status.CANCELLED, "the budget is spent")
    run.kill(Status.CRASH)
    assert run.outcome is outcome


def test_a_kill_that_comes_too_late_changes_nothing(bench, tmp_path):
    run = bench.start(sh('echo $$ > "$1"; echo "$2"', tmp_path / "pid", line("a")))
    pid = pid_in(tmp_path / "pid")
    until(lambda: not Path(f"/proc/{pid}").exists(), "it has ended")
    run.kill(Status.CANCELLED)
    assert bench.finish(run).status is Status.OK


def test_one_that_is_closed_tells_nobody(bench, tmp_path):
    run = bench.start(sh('echo $$ > "$1"; sleep 600; sleep 600', tmp_path / "pid"))
    pid = pid_in(tmp_path / "pid")
    run.close()
    run.close()
    bench.reaper.close()
    assert not runs(pid)
    assert run.outcome is None
    assert not bench.ended


OPEN = """
import os
def is_open(fd):
    try:
        return os.fstat(fd) is not None
    except OSError:
        return False
print("OP:", [fd for fd in range(1024) if is_open(fd)], ",TIME:1,WS:0", sep="")
"""


def test_descriptors_of_the_parent_are_not_inherited(bench):
    with open("/dev/null") as file:
        os.set_inheritable(file.fileno(), True)
        assert bench.run([sys.executable, "-S", "-c", OPEN]).ops[0].op == "[0, 1, 2, 3]"


class Says(Reaper):
    """A reaper that says something else of the end of a command."""

    def __init__(self, *says: object) -> None:
        super().__init__()
        self.says = list(says)

    def read(self):
        return [self.says.pop(0) if isinstance(event, Exited) and self.says else event for event in super().read()]


@pytest.mark.parametrize(("event", "told"), [(Stuck((17, 18)), "17, 18"), (Lost(-9), "SIGKILL")])
def test_a_device_on_which_something_stays_is_lost(bench, event, told):
    with Says(event) as reaper:
        run = bench.start(["/bin/echo", line("a")], reaper=reaper)
        outcome = bench.finish(run)
    assert outcome.status is Status.DEVICE_LOST
    assert told in outcome.message
    assert run.event == event


def test_a_launch_short_of_resources_is_tried_again(bench, monkeypatch):
    monkeypatch.setattr(module, "PAUSES", (0.01, 0.01))
    short = NotStarted(errno.EAGAIN, "fork")
    with Says(short, short) as reaper:
        assert bench.run(["/bin/echo", line("a")], reaper=reaper).status is Status.OK
    with Says(short, short, short) as reaper:
        outcome = bench.run(["/bin/echo", line("a")], reaper=reaper)
    assert outcome.status is Status.CANCELLED  # no fault of the candidate: another search tries it again
    assert "3 attempts" in outcome.message


def test_a_program_that_is_being_written_is_tried_again(bench, tmp_path):
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/echo").read_bytes())
    program.chmod(0o755)
    with open(program, "ab") as writer:
        run = bench.start([str(program), line("a")])
        while run.event is None:
            bench.loop.turn(1)
        assert run.event.errno == errno.ETXTBSY
        writer.close()
        assert bench.finish(run).status is Status.OK


def test_killed_between_two_attempts(bench, monkeypatch):
    monkeypatch.setattr(module, "PAUSES", (0.05,))
    with Says(NotStarted(errno.ENOMEM, "fork")) as reaper:
        run = bench.start(["/bin/echo", line("a")], reaper=reaper)
        while run.event is None:
            bench.loop.turn(1)
        run.kill(Status.CANCELLED, "no longer wanted")
        assert bench.finish(run).message == "no longer wanted"


def test_kept_is_whole_lines_of_the_beginning_and_the_end():
    kept = Kept(100)
    lines = [f"line {number}\n" for number in range(100)]
    for text in lines:
        kept.add(text.encode())
    text = kept.text()
    first, cut, last = text.partition("[")[0], text[text.index("[") : text.index("]") + 2], text[text.index("]") + 2 :]
    assert "".join(lines).startswith(first)
    assert "".join(lines).endswith(last)
    assert len(first) + len(last) + int(cut.split()[0][1:]) == sum(map(len, lines))
    assert first.endswith("\n")
    assert last.startswith("line")
    assert kept.last_line() == "line 99"
    assert Kept().text() == Kept().last_line() == ""


def test_who_prints_much_does_not_wait_for_a_busy_tuner(bench, tmp_path):
    through = tmp_path / "through"
    run = bench.start(sh(f"head -c 250000 /dev/zero; echo; echo OP:a,TIME:1,WS:0; touch {through}"))
    until(through.exists, "it has printed all, though nobody reads")
    assert bench.finish(run).status is Status.OK
