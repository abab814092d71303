"""The contract on tuning: candidates that are command lines, and what they report."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost

pytestmark = pytest.mark.usefixtures("places")

command = ost.Candidate.command


def only(report):
    """Return the one result there is."""
    assert len(report.results) == 1, report.results
    return report.results[0]


def endings(report):
    """How the candidates ended; who was cut, because a run disturbed by others looked slow, counts as ok."""
    return ["ok" if result.status == "raced" else str(result.status) for result in report.results]


def by_op(report):
    """Return the results by their ops."""
    found = {result.op: result for result in report.results}
    assert len(found) == len(report.results)
    return found


def report_line(**fields):
    """Return a shell command that reports a line."""
    return f"echo '{json.dumps({'v': 1} | fields)}' >&$OSTINATO_REPORT_FD\n"


# How it is run


def test_arguments_reach_the_program_as_they_are(tuner, program):
    prog = program(
        """
        assert sys.argv[1:] == ["64", "--tile=64", "a b", "$HOME", "*", "", "é", "{}"], sys.argv
        print("OP:op,TIME:1,WS:0")
        """
    )
    argv = [*prog, "{tile}", "--tile={tile}", "a b", "$HOME", "*", "", "é", "{}"]
    result = only(tuner().tune("op", [command(argv, {"tile": 64})]))
    assert result.status == "ok", result.message
    assert result.candidate.config == {"tile": 64}


def test_where_and_with_which_environment_it_runs(tuner, script, tmp_path, monkeypatch):
    monkeypatch.setenv("INHERITED", "1")
    monkeypatch.setenv("REPLACED", "old")
    (tmp_path / "folder").mkdir()
    prog = script(
        """
        [ "$(pwd -P)" = "$1" ] && [ "$INHERITED" = 1 ] && [ "$ADDED" = "a b" ] && [ "$REPLACED" = new ] || exit 3
        echo OP:op,TIME:1,WS:0
        """
    )
    candidate = command(
        [prog, os.path.realpath(tmp_path / "folder")],
        env={"ADDED": "a b", "REPLACED": "new"},
        cwd=tmp_path / "folder",
    )
    assert only(tuner().tune("op", [candidate])).status == "ok"


def test_it_runs_where_this_process_is(tuner, script, tmp_path, monkeypatch):
    script("echo OP:op,TIME:1,WS:0\n", name="here")
    monkeypatch.chdir(tmp_path)
    assert only(tuner().tune("op", [command(["./here"])])).status == "ok"


def test_programs_are_found_along_the_path(tuner, script, tmp_path, monkeypatch):
    script("echo OP:op,TIME:1,WS:0\n", name="found-along-path")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert only(tuner().tune("op", [command(["found-along-path"])])).status == "ok"


def test_it_has_a_group_a_session_and_no_input(tuner, program):
    prog = program(
        """
        assert os.getpgrp() == os.getpid() == os.getsid(0)
        assert sys.stdin.read() == ""
        assert signal.getsignal(signal.SIGPIPE) is not None
        print("OP:op,TIME:1,WS:0")
        """
    )
    result = only(tuner().tune("op", [command(prog)]))
    assert result.status == "ok", result.message


def test_it_inherits_no_descriptor_but_its_own(tuner, program, tmp_path):
    prog = program(
        """
        own = {0, 1, 2, int(os.environ["OSTINATO_REPORT_FD"])}
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd not in own:
                try:
                    os.fstat(fd)
                except OSError:
                    continue  # the one that listed them
                sys.exit(f"{fd} is {os.readlink(f'/proc/self/fd/{fd}')}")
        print("OP:op,TIME:1,WS:0")
        """
    )
    with open(tmp_path / "held", "w") as held:
        os.set_inheritable(held.fileno(), True)
        result = only(tuner().tune("op", [command(prog)]))
    assert result.status == "ok", result.message


# The old lines


def test_milliseconds_and_bytes(tuner, script):
    result = only(tuner().tune("op", [command([script("echo OP:mm,TIME:2.5,WS:1024\n")])]))
    assert (result.op, result.status, result.workspace) == ("mm", "ok", 1024)
    assert result.time_ns == pytest.approx(2.5e6)
    assert all(sample == pytest.approx(2.5e6) for sample in result.samples)
    assert result.interval_ns[0] <= result.time_ns <= result.interval_ns[1]
    assert result.device == "sim:a"


@pytest.mark.parametrize(
    ("line", "op", "milliseconds"),
    [
        ("OP:a,TIME:9.5e-05,WS:0", "a", 9.5e-5),
        ("OP:a,TIME:1E+2,WS:0", "a", 100),
        ("OP:a,TIME:1e-05,WS:0", "a", 1e-5),
        ("OP:a,TIME:7,WS:0", "a", 7),
        ("OP:a,TIME:.5,WS:0", "a", 0.5),
        ("OP:ns::k-1,TIME:2,WS:0", "ns::k-1", 2),
        ("OP:k<128, 64>,TIME:2,WS:0", "k<128, 64>", 2),
        ("OP:with space.and/more,TIME:2,WS:0", "with space.and/more", 2),
        ("OP:é,TIME:2,WS:0", "é", 2),
        ("OP:a,b=1,TIME:2,WS:0", "a,b=1", 2),
    ],
)
def test_lines_that_are_read(tuner, script, line, op, milliseconds):
    result = only(tuner().tune("op", [command([script(f"echo before\necho '{line}'\necho after\n")])]))
    assert (result.op, result.status) == (op, "ok"), result.message
    assert result.time_ns == pytest.approx(milliseconds * 1e6)


@pytest.mark.parametrize("before", ["  ", "[info] ", "...", r"\033[32m"])
@pytest.mark.parametrize("after", [" done", r"\033[0m", r"\r"])
def test_a_record_is_read_wherever_it_stands(tuner, script, before, after):
    prog = script(
        f"printf 'OP:a,TIME:1,WS:2\\n{before}OP:b,TIME:0.5,WS:2{after}\\nOP:c,TIME:3,WS:1 OP:d,TIME:2,WS:4\\n'\n"
    )
    report = tuner().tune("op", [command([prog])])
    assert {op: result.workspace for op, result in by_op(report).items()} == {"a": 2, "b": 2, "c": 1, "d": 4}
    assert report.best is by_op(report)["b"]


def test_a_record_that_is_cut_is_told(tuner, script):
    prog = script("echo OP:a,TIME:2,WS:3\necho OP:b,TI\n")
    result = only(tuner().tune("op", [command([prog])]))
    assert (result.op, result.status) == ("a", "ok")
    assert "OP:b,TI" in result.message


def workspace(script, number, text="TIME:0\nWS:%d\n"):
    return command([script(f"cat <<'END'\n{text % number}END\n", name=f"workspace{number}")], {"i": number})


@pytest.mark.parametrize("text", ["TIME:0\nWS:%d\n", "OP:op,TIME:0,WS:%d\n", "TIME:0.0 WS:%d\n"])
def test_a_workspace_without_a_time_is_ok(tuner, script, tmp_path, text):
    silent = workspace(script, 4096, text)
    timed = command([script("echo OP:op,TIME:5,WS:1\n")], {"i": 0})
    for _ in range(2):  # the second time out of the store
        report = tuner(store=tmp_path / "store.db").tune("op", [silent, timed], default=silent)
        first, second = report.results
        assert (first.op, first.status, first.time_ns, first.samples, first.workspace) == ("op", "ok", None, (), 4096)
        assert report.best is second
        assert report.ties == (second,)
        for suffix in ("json", "csv", "html"):
            report.save(tmp_path / f"report.{suffix}")
        described = json.loads((tmp_path / "report.json").read_text())["results"][0]
        assert (described["status"], described["time_ns"], described["workspace"]) == ("ok", None, 4096)
        row = next(csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text())))
        assert (row["status"], row["time_ns"], row["workspace"]) == ("ok", "", "4096")
        assert "reported no time" in report.why()


def test_without_any_time_the_default_wins_then_less_workspace(tuner, script):
    candidates = [workspace(script, number) for number in (512, 64, 256)]
    assert tuner().tune("op", candidates).best.workspace == 64
    assert tuner(["sim:b"]).tune("op", candidates, default=candidates[2]).best.workspace == 256


def test_who_is_timed_once_and_not_in_the_final_does_not_win(tuner, script, tmp_path):
    turn = tmp_path / "turn"
    flaky = script(f"if [ -e {turn} ]; then echo OP:op,TIME:0,WS:8; else echo OP:op,TIME:1,WS:8; touch {turn}; fi\n")
    steady = script("echo OP:op,TIME:1.$(date +%N),WS:0\n")
    report = tuner().tune("op", [command([flaky], {"i": 0}), command([steady], {"i": 1})])
    assert report.best.candidate.config == {"i": 1}
    assert (report.results[0].status, report.results[0].time_ns) == ("ok", None)


def test_a_command_may_say_that_it_was_raced(tuner, script):
    raced = command([script(report_line(type="result", op="op", status="raced"))], {"i": 0})
    report = tuner().tune("op", [raced, command([script("echo OP:op,TIME:5,WS:1\n")], {"i": 1})])
    assert [result.status for result in report.results] == ["raced", "ok"]


@pytest.mark.parametrize(
    "output",
    [
        "",
        "hello",
        "STOP:a,TIME:1,WS:2",
        "OP:a,TIME:1.2.3,WS:0",
        "OP:a,TIME:,WS:0",
        "OP:a,TIME:nan,WS:0",
        "OP:a,TIME:inf,WS:0",
        "OP:a,TIME:-1,WS:0",
        "OP:a,TIME:0,WS:0",
        "OP:a,TIME:1e999,WS:0",
        "OP:a,TIME:1e-9999,WS:0",
        "OP:a,TIME:1,WS:-5",
        "OP:a,TIME:0x10,WS:0",
        "OP:a,TIME:1_000,WS:0",
        "TIME:1",
    ],
)
def test_output_that_makes_no_sense(tuner, script, output):
    report = tuner().tune("op", [command([script(f"echo '{output}'\n")])])
    result = only(report)
    assert result.status == "bad_output", (result.status, result.message)
    assert report.best is None
    assert result.message
    assert not any(sample <= 0 for sample in result.samples)


def test_no_output_at_all_is_quoted(tuner, script):
    result = only(tuner().tune("op", [command([script("echo something else >&2\n")])]))
    assert result.status == "bad_output"
    assert "something else" in result.message


def test_several_ops_a_command(tuner, script):
    prog = script("echo OP:slow,TIME:3,WS:30\necho noise\necho OP:fast,TIME:1,WS:10\necho OP:mid,TIME:2,WS:20\n")
    report = tuner().tune("op", [command([prog])])
    found = by_op(report)
    assert set(found) == {"slow", "fast", "mid"}
    assert all(result.status in ("ok", "raced") for result in found.values())
    assert report.best is found["fast"]
    assert {op: result.workspace for op, result in found.items()} == {"slow": 30, "fast": 10, "mid": 20}
    assert len({result.candidate.id for result in found.values()}) == 1


def test_a_wrong_line_costs_its_op_only(tuner, script):
    prog = script("echo OP:a,TIME:2,WS:0\necho OP:b,TIME:0,WS:0\necho OP:c,TIME:1,WS:0\necho OP:d,TIME:x,WS:0\n")
    report = tuner().tune("op", [command([prog])])
    found = by_op(report)
    assert found["a"].status in ("ok", "raced")
    assert found["b"].status == "bad_output"
    assert found["c"].status == "ok"
    assert report.best is found["c"]
    if "d" in found:
        assert found["d"].status == "bad_output"


def test_times_are_divided_by_the_iterations(tuner, script):
    prog = script("echo OP:a,TIME:10,WS:7\n")
    result = only(tuner().tune("op", [command([prog], iterations=5)]))
    assert result.time_ns == pytest.approx(2e6)
    assert all(sample == pytest.approx(2e6) for sample in result.samples)
    assert result.workspace == 7
    lines = script(report_line(type="sample", op="a", ns=[1000, 3000, 2000]))
    result = only(tuner(["sim:b"]).tune("op", [command([lines], iterations=10)]))
    assert result.time_ns == pytest.approx(200)
    assert list(result.samples[:3]) == pytest.approx([100, 300, 200])
    line = script(report_line(type="result", op="a", status="ok", ns=1000))
    assert only(tuner(["sim:c"]).tune("op", [command([line], iterations=4)])).time_ns == pytest.approx(250)


def test_the_fastest_configuration_wins(tuner, script):
    prog = script("echo OP:a,TIME:$(( ($1 - 5) * ($1 - 5) + 1 )),WS:0\n")
    space = ost.Space({"n": range(10)})
    candidates = [command([prog, "{n}"], config) for config in space]
    report = tuner(["sim:a", "sim:b"]).tune("op", candidates)
    assert report.best.candidate.config == {"n": 5}
    assert [result.candidate.config["n"] for result in report.results] == list(range(10))
    assert all(result.status in ("ok", "raced") for result in report.results)


# The report descriptor


def test_samples_and_results(tuner, script):
    prog = script(
        report_line(type="start", op="a")
        + report_line(type="sample", op="a", ns=[3000.5, 1000])
        + report_line(type="sample", op="a", ns=[2000])
        + report_line(type="result", op="a", status="ok", workspace=64, message="done")
    )
    result = only(tuner().tune("op", [command([prog])]))
    assert (result.op, result.status, result.workspace) == ("a", "ok", 64), result.message
    assert list(result.samples[:3]) == [3000.5, 1000, 2000]
    assert result.time_ns == 2000


def test_a_result_with_its_time(tuner, script):
    result = only(tuner().tune("op", [command([script(report_line(type="result", op="a", status="ok", ns=1234.5))])]))
    assert (result.op, result.status, result.time_ns) == ("a", "ok", 1234.5)


def test_samples_alone_are_enough(tuner, script):
    result = only(tuner().tune("op", [command([script(report_line(type="sample", op="a", ns=[5, 7, 6]))])]))
    assert (result.op, result.status, result.time_ns) == ("a", "ok", 6)


def test_unknown_fields_are_ignored(tuner, script):
    prog = script(
        report_line(type="start", op="a", clock="monotonic", extra={"deep": [1]})
        + report_line(type="sample", op="a", ns=[5], sm_clock=1400)
        + report_line(type="result", op="a", status="ok", ns=5, zebra=None)
    )
    assert only(tuner().tune("op", [command([prog])])).time_ns == 5


def test_the_descriptor_wins_over_the_output(tuner, script):
    prog = script("echo OP:a,TIME:1,WS:1\n" + report_line(type="result", op="b", status="ok", ns=5))
    result = only(tuner().tune("op", [command([prog])]))
    assert (result.op, result.time_ns) == ("b", 5)


@pytest.mark.parametrize(
    "status", ["invalid", "crash", "oom", "wrong_result", "bad_output", "compile_error", "contended", "device_lost"]
)
def test_a_program_tells_how_an_op_failed(tuner, script, status):
    prog = script(
        report_line(type="result", op="a", status="ok", ns=5)
        + report_line(type="result", op="b", status=status, message="tile too large")
    )
    report = tuner().tune("op", [command([prog])])
    found = by_op(report)
    assert found["a"].status == "ok"
    assert found["b"].status == status
    assert "tile too large" in found["b"].message
    assert report.best is found["a"]


@pytest.mark.parametrize(
    "line",
    [
        '{"v":1,"type":"result","op":"a","status":"ok","ns":0}',
        '{"v":1,"type":"result","op":"a","status":"ok","ns":-5}',
        '{"v":1,"type":"result","op":"a","status":"ok","ns":NaN}',
        '{"v":1,"type":"result","op":"a","status":"ok","ns":Infinity}',
        '{"v":1,"type":"result","op":"a","status":"ok","ns":1e999}',
        '{"v":1,"type":"result","op":"a","status":"ok","ns":"5"}',
        '{"v":1,"type":"result","op":"a","status":"ok","ns":true}',
        '{"v":1,"type":"result","op":"a","status":"ok","ns":null}',
        '{"v":1,"type":"result","op":"a","status":"ok"}',
        '{"v":1,"type":"result","op":"a","status":"fine","ns":5}',
        '{"v":1,"type":"sample","op":"a","ns":[5,0]}',
        '{"v":1,"type":"sample","op":"a","ns":[5,-1]}',
        '{"v":1,"type":"sample","op":"a","ns":[5,"6"]}',
        '{"v":1,"type":"sample","op":"a","ns":[]}',
        '{"v":1,"type":"start","op":"a"}',
        '{"v":1,"type":"result","op":"a","status":"ok","ns":5',
        "[1, 2]",
        "null",
        "garbage",
        "",
    ],
)
def test_reports_that_make_no_sense(tuner, script, line):
    report = tuner().tune("op", [command([script(f"echo '{line}' >&$OSTINATO_REPORT_FD\n")])])
    result = only(report)
    assert result.status == "bad_output", (result.status, result.message)
    assert report.best is None
    assert result.message


def test_a_wrong_report_costs_its_op_only(tuner, script):
    prog = script(
        report_line(type="result", op="a", status="ok", ns=5)
        + "echo garbage >&$OSTINATO_REPORT_FD\n"
        + report_line(type="result", op="b", status="ok", ns=0)
        + report_line(type="result", op="c", status="ok", ns=4)
    )
    report = tuner().tune("op", [command([prog])])
    found = by_op(report)
    assert found["a"].status in ("ok", "raced")
    assert found["b"].status == "bad_output"
    assert report.best is found["c"]


def test_a_line_may_come_in_pieces_and_several_at_once(tuner, program):
    prog = program(
        """
        fd = int(os.environ["OSTINATO_REPORT_FD"])
        text = "".join(
            json.dumps({"type": "result", "op": f"op {k} é", "status": "ok", "ns": k + 1}, ensure_ascii=False) + "\\n"
            for k in range(50)
        ).encode()
        for begin in range(0, len(text), 7):
            os.write(fd, text[begin:begin + 7])
        """
    )
    found = by_op(tuner().tune("op", [command(prog)]))
    assert {op: result.time_ns for op, result in found.items()} == {f"op {k} é": k + 1 for k in range(50)}


def test_more_reports_than_a_pipe_holds(tuner, program):
    prog = program(
        """
        for k in range(50):
            report(v=1, type="sample", op="a", ns=[1000.25] * 1000)
        """
    )
    result = only(tuner().tune("op", [command(prog)]))
    assert result.status == "ok", result.message
    assert len(result.samples) >= 50_000
    assert result.time_ns == 1000.25


def test_a_program_in_c(tuner, compiled):
    prog = compiled(
        """
        #include <stdio.h>
        #include <stdlib.h>
        #include <time.h>

        int main(int argc, char **argv)
        {
            FILE *report = fdopen(atoi(getenv("OSTINATO_REPORT_FD")), "w");
            int n = atoi(argv[1]);
            (void)argc;
            fprintf(report, "{\\"v\\":1,\\"type\\":\\"start\\",\\"op\\":\\"spin\\"}\\n");
            fflush(report);
            for (int k = 0; k < 5; k++) {
                struct timespec begin, end;
                volatile long sum = 0;
                clock_gettime(CLOCK_MONOTONIC, &begin);
                for (long i = 0; i < n * 100000L; i++)
                    sum += i;
                clock_gettime(CLOCK_MONOTONIC, &end);
                double ns = 1e9 * (end.tv_sec - begin.tv_sec) + (end.tv_nsec - begin.tv_nsec);
                fprintf(report, "{\\"type\\":\\"sample\\",\\"op\\":\\"spin\\",\\"ns\\":[%.17g]}\\n", ns);
            }
            fprintf(report, "{\\"type\\":\\"result\\",\\"op\\":\\"spin\\",\\"status\\":\\"ok\\","
                            "\\"workspace\\":%d}\\n", n);
            fclose(report);
            return 0;
        }
        """
    )
    report = tuner().tune("spin", [command([prog, "{n}"], {"n": n}) for n in (200, 1)])
    assert report.best is report.results[1], report.results
    assert report.best.workspace == 1
    assert len(report.best.samples) >= 5
    assert report.results[0].status in ("ok", "raced")


def test_a_program_in_c_with_the_header(tuner, compiled):
    prog = compiled(
        """
        #include "ostinato_report.h"

        int main(void)
        {
            double ns[3] = {3000.5, 1000, 2000};
            ost_report_start("a \\"quoted\\" op");
            ost_report_sample("a \\"quoted\\" op", ns, 3);
            ost_report_result("a \\"quoted\\" op", "ok", 2000, 64, "two\\nlines");
            return 0;
        }
        """
    )
    result = only(tuner().tune("op", [command([prog])]))
    assert (result.op, result.status, result.time_ns, result.workspace) == ('a "quoted" op', "ok", 2000, 64)


@pytest.mark.parametrize("place", ["line", "descriptor"])
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.dictionaries(
        st.text("abc<>:-, .é_", min_size=1, max_size=8).map(str.strip).filter(bool),
        st.floats(1e-3, 1e9),
        min_size=1,
        max_size=5,
    )
)
def test_what_is_reported_is_what_is_read(tuner, program, place, times):
    prog = program(
        f"""
        for op, ns in json.loads({json.dumps(json.dumps(times))}).items():
            if {place == "line"}:
                sys.stdout.buffer.write(f"OP:{{op}},TIME:{{ns / 1e6!r}},WS:3\\n".encode())
            else:
                report(v=1, type="result", op=op, status="ok", ns=ns, workspace=3)
        """
    )
    session = tuner([f"sim:{place}"])
    with session:
        found = by_op(session.tune("op", [command(prog)]))
    assert {op: result.time_ns for op, result in found.items()} == pytest.approx(times)


# How it fails


def test_no_such_program(tuner, tmp_path):
    report = tuner().tune("op", [command([tmp_path / "absent"]), command(["no-such-program-anywhere"])])
    assert endings(report) == ["invalid", "invalid"]
    assert "No such file" in report.results[0].message
    assert "absent" in report.results[0].message
    assert "no-such-program-anywhere" in report.results[1].message


def test_a_program_that_may_not_be_run(tuner, script, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("no program\n")
    nothing = tmp_path / "nothing"
    nothing.write_bytes(b"\x7fELF")
    nothing.chmod(0o755)
    folder = command([tmp_path])
    here = command([script("echo OP:a,TIME:1,WS:0\n")], cwd=tmp_path / "absent")
    report = tuner().tune("op", [command([plain]), command([nothing]), folder, here])
    assert endings(report) == ["invalid"] * 4, [r.message for r in report.results]
    assert "Permission denied" in report.results[0].message
    assert "absent" in report.results[3].message


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT, signal.SIGFPE, signal.SIGTERM])
def test_a_signal(tuner, script, number):
    prog = script(f"echo OP:a,TIME:1,WS:0\nkill -{int(number)} $$\n")
    report = tuner().tune("op", [command([prog])])
    result = only(report)
    assert result.status == "crash"
    assert number.name in result.message
    assert report.best is None


def test_an_exit_status(tuner, script):
    prog = script("echo OP:a,TIME:1,WS:0\necho 'no such tile' >&2\nexit 7\n")
    report = tuner().tune("op", [command([prog])])
    result = only(report)
    assert result.status == "crash"
    assert "7" in result.message
    assert "no such tile" in result.message
    assert report.best is None


def test_the_culprit_is_known_where_it_said_that_it_starts(tuner, script):
    prog = script(
        report_line(type="start", op="a")
        + report_line(type="result", op="a", status="ok", ns=5)
        + report_line(type="start", op="b")
        + report_line(type="sample", op="b", ns=[1])
        + "kill -SEGV $$\n"
    )
    report = tuner().tune("op", [command([prog])])
    found = by_op(report)
    assert found["a"].status == "ok"
    assert found["b"].status == "crash"
    assert "SIGSEGV" in found["b"].message
    assert report.best is found["a"]


def test_a_line_cut_short_by_a_signal_is_no_line(tuner, script):
    prog = script("printf 'OP:a,TIME:1,WS:10'\nkill -9 $$\n")
    assert only(tuner().tune("op", [command([prog])])).status == "crash"


def test_hanging(tuner, script, lines, alive, eventually):
    prog = script(f"sleep 600 & echo $! >> {lines.path}\necho $$ >> {lines.path}\nwait\n")
    good = script("echo OP:op,TIME:1,WS:0\n")
    report = tuner(timeout=0.5).tune("op", [command([prog]), command([good])])
    assert endings(report) == ["hang_killed", "ok"]
    assert "0.5" in report.results[0].message
    assert len(lines()) == 2
    assert not any(alive(int(pid)) for pid in lines())


def test_a_limit_of_its_own(tuner, script):
    prog = script("sleep 0.7; echo OP:op,TIME:1,WS:0\n")
    candidates = [command([prog, "1"], timeout=0.2), command([prog, "2"], timeout=30), command([prog, "3"])]
    report = tuner(timeout=0.3).tune("op", candidates)
    assert endings(report) == ["hang_killed", "ok", "hang_killed"]


def test_what_it_leaves_behind_is_killed(tuner, program, lines, alive):
    prog = program(
        f"""
        def note():
            with open({lines.path!r}, "a") as file:
                print(os.getpid(), file=file, flush=True)

        ready, tell = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                note()
                os.write(tell, b"x")
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(600)
            os._exit(0)
        os.read(ready, 1)
        report(v=1, type="result", op="a", status="ok", ns=5)
        """
    )
    result = only(tuner().tune("op", [command(prog)]))
    assert result.status == "ok"
    assert lines()
    assert not any(alive(int(pid)) for pid in lines())


def test_memory(tuner, program):
    prog = program(
        """
        held = bytearray(int(sys.argv[1]) << 20)
        held[::4096] = b"x" * len(held[::4096])
        time.sleep(0.2)
        print("OP:op,TIME:1,WS:0")
        """
    )
    candidates = [command([*prog, "{megabytes}"], {"megabytes": megabytes}) for megabytes in (1, 600, 2)]
    report = tuner(memory=300 << 20).tune("op", candidates)
    assert endings(report) == ["ok", "oom", "ok"], report.results[1].message


def test_gigabytes_of_output(tuner):
    loud = command(["sh", "-c", "yes"], timeout=20)
    good = command(["sh", "-c", "echo OP:op,TIME:1,WS:0"])
    report = tuner().tune("op", [loud, good])
    assert endings(report) == ["bad_output", "ok"]


def test_output_that_is_no_text(tuner, script, lines):
    prog = script(
        f"echo run >> {lines.path}; printf '\\377\\376\\000'; echo; echo OP:op,TIME:1,WS:0; printf '\\377' >&2\n"
    )
    result = only(tuner().tune("op", [command([prog])]))
    assert result.status == "ok", result.message


def test_a_program_that_fills_both_outputs(tuner, program):
    prog = program(
        """
        for k in range(50):
            os.write(2, b"e" * 10000)
            os.write(1, b"o" * 9999 + b"\\n")
        print("OP:op,TIME:1,WS:0")
        """
    )
    assert only(tuner().tune("op", [command(prog)])).status == "ok"


def test_a_program_that_closes_everything(tuner, program):
    prog = program(
        """
        report(v=1, type="result", op="a", status="ok", ns=5)
        os.closerange(0, 100)
        time.sleep(0.1)
        """
    )
    assert only(tuner().tune("op", [command(prog)])).status == "ok"


# Builds


def test_a_build_comes_first(tuner, script, tmp_path):
    build = script("mkdir -p $1 && printf '#!/bin/sh\\necho OP:op,TIME:%s,WS:0\\n' $2 > $1/prog && chmod +x $1/prog\n")
    candidates = [
        command(
            [tmp_path / "out-{n}" / "prog"],
            {"n": n},
            build=[build, tmp_path / "out-{n}", "{n}"],
        )
        for n in (3, 1, 2)
    ]
    report = tuner().tune("op", candidates)
    assert endings(report) == ["ok", "ok", "ok"], [r.message for r in report.results]
    assert report.best.candidate.config == {"n": 1}


def test_a_build_in_c(tuner, tmp_path, compiled):
    compiled("int main(void) { return 0; }\n")  # skips where there is no compiler
    source = tmp_path / "kernel.c"
    source.write_text('#include <stdio.h>\nint main(void) { printf("OP:k%d,TIME:%d,WS:0\\n", N, N); }\n')
    candidates = [
        command(["{scratch}/kernel"], {"n": n}, build=["cc", "-DN={n}", source, "-o", "{scratch}/kernel"])
        for n in (2, 1)
    ]
    report = tuner().tune("op", candidates)
    assert [(result.op, result.status) for result in report.results] == [("k2", "ok"), ("k1", "ok")]
    assert report.best.op == "k1"


def test_a_build_that_fails(tuner, script, lines):
    build = script("echo building; echo 'kernel.c:3: error: no such tile' >&2; exit 2\n")
    prog = script(f"echo run >> {lines.path}; echo OP:op,TIME:1,WS:0\n")
    candidates = [
        command([prog, "1"], build=[build]),
        command([prog, "2"], build=["no-such-compiler"]),
        command([prog, "3"], build=["sh", "-c", "kill -SEGV $$"]),
        command([prog, "4"], build=["true"]),
    ]
    report = tuner().tune("op", candidates)
    assert endings(report) == ["compile_error"] * 3 + ["ok"]
    assert "no such tile" in report.results[0].message
    assert "no-such-compiler" in report.results[1].message
    assert "SIGSEGV" in report.results[2].message
    assert all(result.device is None for result in report.results[:3])
    assert report.best is report.results[3]
    assert set(lines()) == {"run"}


def test_a_build_that_hangs(tuner, script, lines, alive):
    build = script(f"echo $$ >> {lines.path}; sleep 600 & wait\n")
    report = tuner(timeout=0.5).tune("op", [command(["true"], build=[build])])
    assert only(report).status == "compile_timeout"
    assert not any(alive(int(pid)) for pid in lines())


def test_a_build_needs_no_device(tuner, script, tmp_path):
    built = tmp_path / "built"
    first = script(f"while [ ! -e {built} ]; do sleep 0.01; done; echo OP:first,TIME:1,WS:0\n")
    candidates = [command([first]), command(["echo", "OP:second,TIME:2,WS:0"], build=["touch", built])]
    report = tuner(timeout=30).tune("op", candidates)
    assert endings(report) == ["ok", "ok"], [r.message for r in report.results]


# Checks


def test_a_check_of_a_command(tuner, script, module):
    prog = script("echo result $1; echo OP:op,TIME:1,WS:0\n")
    name = module("def check(outputs, key):\n    return f\"result {key['n']}\" in outputs.stdout\n")
    candidates = [command([prog, "{n}"], {"n": n}) for n in (1, 2)]
    report = tuner().tune("op", candidates, key={"n": 2}, verify=f"{name}:check")
    assert endings(report) == ["wrong_result", "ok"]
    assert report.best is report.results[1]


# Together


def test_commands_and_callables_side_by_side(tuner, module):
    name = module("import time\ndef factory():\n    return lambda: time.sleep(0.002)\n")
    candidates = [
        command(["echo", "OP:op,TIME:5,WS:0"]),
        ost.Candidate.call(f"{name}:factory"),
        command([sys.executable, "-S", "-E", "-c", "print('OP:op,TIME:0.5,WS:0')"]),
    ]
    report = tuner(["sim:a", "sim:b"]).tune("op", candidates)
    assert report.best is report.results[2]
    assert all(result.status in ("ok", "raced") for result in report.results)


def test_a_generator_of_candidates(tuner):
    candidates = (command(["echo", "OP:op,TIME:{n},WS:0"], config) for config in ost.Space({"n": [3, 1, 2]}))
    report = tuner().tune("op", candidates)
    assert report.best.candidate.config == {"n": 1}
    assert len(report.results) == 3
