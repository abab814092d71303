"""Reading what profilers print: the faults of the ancestor, X1 to X7, by the input that provoked them."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato.profiler_runner as pr
from ostinato import Candidate, Status
from ostinato.profiler_runner import ProfileResult, extract_profile_result
from ostinato.tune.legacy.profile import Profile
from ostinato.tune.workers.command import CommandRun
from ostinato.tune.workers.loop import Loop
from ostinato.tune.workers.protocol import Reading
from ostinato.tune.workers.reaper import Reaper
from profilers import MASKS, Delegate, line, sh

FAILED = (None, True)


@pytest.fixture(autouse=True)
def unmasked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MASKS:
        monkeypatch.delenv(name, raising=False)


def test_the_least_time_wins():
    stdout = f"loading\n{line('a', 3, 7)}\n{line('b', 1.5, 9)}\n{line('c', 2, 8)}\ndone\n"
    assert extract_profile_result(stdout) == (ProfileResult("b", 1.5, 9), False)


def test_return_ops_gives_every_line_of_these_in_the_order_of_the_output():
    stdout = "\n".join([line("a", 3), line("b", 1), line("c", 2), line("a", 1)])
    assert extract_profile_result(stdout, return_ops=["c", "a"]) == ([("a", 3, 0), ("c", 2, 0), ("a", 1, 0)], False)


@pytest.mark.parametrize("stdout", ["", "hello", "OP:a", "TIME:", "WS:3", "\n\n", "OP:a,TIME:,WS:", "OP:,TIME:1,WS:0x"])
def test_what_says_nothing_fails(stdout):
    assert extract_profile_result(stdout) == FAILED


@pytest.mark.parametrize("stdout", [None, 3, b"\xff"])
def test_what_is_no_text_fails(stdout):
    assert extract_profile_result(stdout) == FAILED


def test_x1_scientific_notation_is_read():
    stdout = f"{line('slow', 2.5)}\n{line('fast', '9.5e-05')}\n"
    assert extract_profile_result(stdout) == (("fast", 9.5e-5, 0), False)
    assert extract_profile_result(line("big", "1E+3"))[0].duration == 1000
    assert extract_profile_result("TIME:1e-05") == (("", 1e-5, 0), False)
    assert extract_profile_result("took TIME:2.5E-3, WS:12 bytes") == (("", 2.5e-3, 12), False)


@pytest.mark.parametrize("name", ["ns::k-1", "k<128>", "a.b", "f(x, y)", "a b", "späť", "HOP::x", "::x", "k:1,WS:2"])
def test_x2_names_may_hold_anything(name):
    assert extract_profile_result(line(name, 0.5, 3)) == ((name, 0.5, 3), False)


@given(
    st.text(st.characters(exclude_categories=("C", "Z")), min_size=1),
    st.floats(1e-300, 1e300),
    st.integers(0, 10**18 - 1),
)
def test_x2_whatever_is_printed_is_read(name, time_ms, workspace):
    assert extract_profile_result(f"before\n{line(name, time_ms, workspace)}\nafter") == (
        (name, time_ms, workspace),
        False,
    )


@pytest.mark.parametrize(
    "time_ms", ["nan", "inf", "-inf", "-1.0", "0", "0.0", "1.2.3", "fast", "", "1e999", "1_0", "0x1p3", "٣"]
)
def test_x3_a_time_that_is_none_costs_only_its_line(time_ms):
    assert extract_profile_result(line("bad", time_ms)) == FAILED
    stdout = f"{line('before', 3)}\n{line('bad', time_ms)}\n{line('after', 2)}"
    assert extract_profile_result(stdout) == (("after", 2, 0), False)
    assert extract_profile_result(stdout, ["bad", "before"]) == ([("before", 3, 0)], False)


@pytest.mark.parametrize("time_ms", ["nan", "inf", "-1.0", "0", "1.2.3", "1e999"])
def test_x3_nameless_times_too(time_ms):
    assert extract_profile_result(f"TIME:{time_ms}") == FAILED
    assert extract_profile_result(f"TIME:{time_ms}\nTIME:2\n") == (("", 2, 0), False)


@pytest.mark.parametrize("workspace", ["-1", "1.5", "", "nan", "many"])
def test_x3_a_workspace_that_is_none_costs_only_its_line(workspace):
    assert extract_profile_result(f"{line('bad', 1, workspace)}\n{line('good', 2)}") == (("good", 2, 0), False)


@given(st.lists(st.text(max_size=30), max_size=8), st.text(max_size=30))
def test_x3_garbage_around_good_lines_changes_nothing(garbage, more):
    quiet = [text for text in (*garbage, more) if "OP:" not in text]
    stdout = "\n".join([*quiet, line("good", 2), *quiet])
    assert extract_profile_result(stdout) == (("good", 2, 0), False)


def test_x4_of_nameless_times_the_least_is_taken():
    assert extract_profile_result("TIME:3\nWS:64\nTIME:1\nTIME:2\n") == (("", 1, 64), False)
    assert extract_profile_result("TIME:3") == (("", 3, 0), False)


def test_x4_a_broken_line_is_not_made_good_by_what_else_is_printed():
    assert extract_profile_result(f"{line('a', 'nan')}\nTIME:3\n") == FAILED


def test_x4_return_ops_always_gives_a_list():
    result, failed = extract_profile_result("TIME:3 WS:1\nTIME:2\n", return_ops=["a"])
    assert (result, failed) == ([("", 2, 1)], False)
    assert extract_profile_result("TIME:3", return_ops=["a", "b"]) == FAILED  # whose would it be?


def test_x4_return_ops_as_a_str_is_one_name():
    stdout = f"{line('a', 1)}\n{line('b', 2)}\n{line('ab', 3)}\n"
    assert extract_profile_result(stdout, return_ops="ab") == ([("ab", 3, 0)], False)


@pytest.mark.parametrize("names", [["z"], "z", (), ["A"]])
def test_x4_nothing_found_is_a_failure(names):
    assert extract_profile_result(line("a"), return_ops=names) == FAILED


@pytest.mark.parametrize(
    "stdout", ["STOP:a,TIME:1,WS:2", "xOP:a,TIME:1,WS:2", "OP:a,TIME:1,WS:2x", "OP:a,TIME:1,WS:2.5"]
)
def test_x5_a_record_is_whole_or_none(stdout):
    assert extract_profile_result(stdout) == FAILED
    assert extract_profile_result(f"{stdout}\n{line('good', 5)}") == (("good", 5, 0), False)


@pytest.mark.parametrize("ending", ["\n", "\r\n", "  \n", "", " done", "\tdone\n", "\x1b[0m\n", ", then more", "."])
@pytest.mark.parametrize("beginning", ["", "  ", "[info] ", "\x1b[1;32m", "...", "loading\x1b(B\x1b[m", "50%\r"])
def test_x5_what_stands_beside_a_record_does_not_matter(beginning, ending):
    assert extract_profile_result(beginning + line("a", 2, 3) + ending) == (("a", 2, 3), False)


def test_x5_what_was_left_out_is_told(caplog):
    assert extract_profile_result(f"OP:cut,TI\n{line('a', 2, 3)}") == (("a", 2, 3), False)
    assert "OP:cut,TI" in caplog.text


def test_x5_a_line_cut_by_a_kill_is_not_read():
    delegate = Delegate()
    runner = pr.ProfilerRunner(["0"], delegate)
    runner.push(sh("printf 'OP:cut,TIME:1,WS:10'; kill -KILL $$"), delegate.add)
    with pytest.raises(RuntimeError, match="SIGKILL"):
        runner.join()
    assert delegate.results == []


def test_x5_a_last_line_without_its_end_is_read_if_all_went_well():
    runner = pr.Runner(["0"], "op")
    runner.push("whole", ["/usr/bin/printf", line("whole", 2, 10)])
    assert runner.pull() == [("whole", ("whole", 2.0, 10))]


def test_x5_nothing_that_a_killed_command_said_is_a_result():
    profile = Profile()
    profile.printed(f"{line('a')}\n{line('cut')}".encode())
    assert profile.finish((Status.CRASH, "killed by SIGKILL")) == ()
    assert profile.results == []


def test_lines_without_end_take_no_memory_without_end():
    profile = Profile()
    piece = f"{line('a')}\n".encode() * 5000
    for _ in range(60):
        profile.printed(piece)
    assert len(profile.finish()) <= 205_000


def test_x6_a_report_says_status_samples_and_message():
    delegate = Delegate()
    runner = pr.ProfilerRunner(["0"], delegate)
    reports = "\n".join(
        [
            '{"v":1,"type":"start","op":"good"}',
            '{"v":1,"type":"sample","op":"good","ns":[3000000,2000000,9000000],"of the future":1}',
            '{"v":1,"type":"result","op":"good","status":"ok","workspace":8}',
            '{"v":1,"type":"result","op":"bad","status":"wrong_result","ns":1,"message":"off by one"}',
        ]
    )
    runner.push(sh('eval "echo \\"\\$1\\" >&$OSTINATO_REPORT_FD"', reports), delegate.add)
    runner.join()
    assert delegate.results == [("good", 3.0, 8)]


def test_x7_sums_over_different_numbers_of_iterations_compare():
    """A time is what the profiler printed; how many runs it is the sum of, a candidate says."""
    ten = Candidate.command(["/bin/echo", line("ten", 10.0)], iterations=10)
    five = Candidate.command(["/bin/echo", line("five", 10.0)], iterations=5)
    assert samples(ten) == (1e6,)
    assert samples(five) == (2e6,)


def samples(candidate):
    """What a run of a candidate's command is measured to take, in ns."""
    loop, reaper, outcomes = Loop(), Reaper(), []
    try:
        CommandRun(
            loop,
            reaper,
            candidate.words,
            env=os.environ,
            cwd=None,
            seconds=30,
            memory=None,
            ended=outcomes.append,
            reading=Reading(iterations=candidate.iterations),
        )
        while not outcomes:
            loop.turn(30)
        return outcomes[0].ops[0].samples
    finally:
        reaper.close()
        loop.close()


def test_reading_needs_no_reaper_and_no_array_library():
    script = (
        "import sys; from ostinato.profiler_runner import extract_profile_result;"
        "print(extract_profile_result('OP:a,TIME:1e-3,WS:4'), 'numpy' in sys.modules, 'ostinato._core' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "(ProfileResult(op_config='a', duration=0.001, workspace=4), False) False False\n"


def test_results_order_by_duration():
    slow, fast = ProfileResult("a", 9.0, 0), ProfileResult("z", 1.0, 64)
    assert min(slow, fast) is fast
    assert sorted([slow, fast]) == [fast, slow]
    assert max(slow, fast) is slow
    assert fast <= fast
    assert fast >= fast
    assert not fast < fast
    assert tuple(fast) == ("z", 1.0, 64)
    assert fast == ("z", 1.0, 64)
    assert hash(fast) == hash(("z", 1.0, 64))
    assert math.isfinite(fast.duration)
