"""Progress: what a search tells, and the display of it on a terminal."""

import io
import subprocess
import sys
import threading

import pytest
from rich.console import Console

import ostinato as ost
from ostinato.tune.progress import Display, Progress, listener
from ostinato.tune.result import Result
from ostinato.tune.searching.job import SoFar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def display():
    display = Display(Console(file=io.StringIO(), width=100))
    display.begin("matmul", 40)
    yield display
    display.end(None)


def candidate(tile=16, **others):
    return ost.Candidate.call("json:dumps", {"tile": tile, **others})


def shown(display) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(display._drawn())
    return console.file.getvalue()


def test_nobody_is_told_unless_standard_error_is_a_terminal(monkeypatch):
    assert type(listener(None)) is Progress
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert isinstance(listener(None), Display)
    assert type(listener(False)) is Progress


def test_an_object_of_the_users_own_is_told():
    class Mine(Progress):
        pass

    mine = Mine()
    assert listener(mine) is mine


def test_an_object_that_lacks_methods_is_refused():
    with pytest.raises(TypeError, match=r"progress lacks begin, .*derive it from ostinato\.tune\.progress\.Progress"):
        listener(print)


def test_what_runs_where_and_what_is_best(display):
    best = Result(candidate=candidate(32), op="matmul", status=ost.Status.OK, time_ns=12500.0)
    display.running("cpu:0", candidate(64), "measure")
    display.building("build:0", candidate(128))
    display.waiting("cpu:1", "process 77 (python other.py)")
    display.ended(best, best)
    display.ended(Result(candidate=candidate(1), op="matmul", status=ost.Status.CRASH), best)
    text = shown(display)
    assert "matmul: 2/40  1 ok, 1 crash" in text
    assert "best 12.5 µs  tile=32" in text
    assert text.split("cpu:0")[1].split()[:2] == ["measure", "tile=64"]
    assert "tile=128" in text.split("build:0")[1].splitlines()[0]
    assert "for process 77 (python other.py)" in text.split("cpu:1")[1].splitlines()[0]
    display.idle("cpu:0")
    assert "tile=64" not in shown(display)


def test_a_command_of_several_ops_counts_as_one_candidate(display):
    for op in ("a", "b", "c"):
        display.ended(Result(candidate=candidate(), op=op, status=ost.Status.OK, time_ns=1.0), None)
    assert "1/40  3 ok" in shown(display)
    assert "nothing ok so far" in shown(display)


def test_many_devices_are_folded(display):
    for number in range(64):
        display.running(f"sim:{number:02}", candidate(number), "measure")
    text = shown(display)
    assert "sim:15" in text
    assert "sim:16" not in text
    assert "48 more, 48 of them busy" in text


def test_words_of_candidates_do_nothing_to_the_terminal(display):
    display.running("cpu:0", candidate("[bold]\x1b[2J\n"), "measure")
    text = shown(display)
    assert "[bold]\\x1b[2J\\n" in text
    assert "\x1b" not in text


def test_it_is_drawn_on_a_terminal_and_taken_away(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    before = set(threading.enumerate())
    terminal = Terminal()
    display = Display(Console(file=terminal, width=100))
    display.begin("matmul", None)
    display.note("the store is read-only\x07")
    display.end(None)
    display.end(None)
    assert "matmul: 0 candidates" in terminal.getvalue()
    assert "the store is read-only\\x07" in terminal.getvalue()
    assert "\x1b[?25h" in terminal.getvalue()  # the cursor is back
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_what_is_so_far_found_is_kept_and_everything_is_told_on():
    told = []

    class Listener(Progress):
        pass

    names = [name for name in vars(Progress) if not name.startswith("_")]
    for name in names:
        setattr(Listener, name, lambda self, *arguments, name=name: told.append((name, *arguments)))
    so_far = SoFar(Listener())
    default, other = candidate(1), candidate(2)
    results = [
        Result(candidate=default, op="matmul", status=ost.Status.OK, time_ns=20.0),
        Result(candidate=other, op="matmul", status=ost.Status.CRASH),
        Result(candidate=other, op="matmul", status=ost.Status.OK, time_ns=10.0),  # measured again: this one counts
    ]
    calls = [
        ("begin", "matmul", 2),
        ("waiting", "cpu:0", "another"),
        ("building", "build:0", default),
        ("running", "cpu:0", default, "measure"),
        ("idle", "cpu:0"),
        ("note", "hello"),
        *(("ended", result, results[0]) for result in results),
        ("end", None),
    ]
    for name, *arguments in calls:
        getattr(so_far, name)(*arguments)
    assert told == calls
    assert {name for name, *_ in calls} == set(names)
    report = so_far.report({"n": 1}, ost.Policy(), default)
    assert report.results == (results[0], results[2])
    assert (report.op, report.key, report.best, report.default) == ("matmul", {"n": 1}, results[0], results[0])
    assert report.ties == (results[0],)


def test_a_tuner_without_a_display_does_not_import_rich():
    code = "import sys, ostinato; ostinato.Tuner; from ostinato.tune.progress import listener; listener(False); "
    subprocess.run([sys.executable, "-c", code + "assert 'rich' not in sys.modules"], check=True, timeout=60)
