"""Searches that end early, start again from the store, or lose a part of what they run on."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ostinato as ost
from ostinato.tune.candidate import Call, Candidate, Command
from ostinato.tune.outcome import OpOutcome, Outcome
from ostinato.tune.progress import Progress
from ostinato.tune.racing.race import Race
from ostinato.tune.result import Result, Span
from ostinato.tune.searching.results import Results
from ostinato.tune.store.store import Search, StoreError
from ostinato.tune.trial import Trial
from ostinato.tune.workers.loop import Loop
from ostinato.tune.workers.reaper import Event, Exited, Reaper, Stuck
from ostinato.tune.workers.slot import Slot

PATIENCE = 20  # seconds; what must not hang takes a small part of it


def null(number: int) -> Call:
    return ost.Candidate.call("tune.candidates:null", {"number": number})


def shell(code: str, **config: object) -> Command:
    return ost.Candidate.command(["sh", "-c", code], config)


# Budgets


def test_a_budget_of_time_ends_candidates_without_end(tmp_path: Path) -> None:
    with ost.Tuner(["sim:a"], store=tmp_path / "db", progress=False) as tuner:
        report = tuner.tune("op", (null(number) for number in range(10**9)), budget=0.3)
    assert report.seconds < PATIENCE
    assert {result.status for result in report.results} <= {"ok", "raced", "cancelled"}


def test_a_default_is_not_begun_when_there_is_no_time(tmp_path: Path) -> None:
    default = null(0)
    with ost.Tuner(["sim:a"], store=tmp_path / "db", progress=False) as tuner:
        report = tuner.tune("op", iter([default]), default=default, budget=1e-9)
    assert (report.best, report.default, report.spans) == (None, None, ())


class HoldsUpFinals(Progress):
    def __init__(self, path: Path) -> None:
        self._path = path

    def running(self, device: str, candidate: Candidate | None, what: str) -> None:
        if what == "final":
            self._path.touch()


def test_a_budget_of_time_ends_a_turn_of_the_final(tmp_path: Path) -> None:
    path = tmp_path / "held"
    script = f"while test -e {path}; do sleep 0.01; done; echo OP:op,TIME:1,WS:0"
    began, worked = time.monotonic(), time.process_time()
    with ost.Tuner(["sim:a?noise=0.05"], store=tmp_path / "db", progress=HoldsUpFinals(path)) as tuner:
        report = tuner.tune("op", [shell(script, n=n) for n in (1, 2)], budget=0.5)
    assert time.monotonic() - began < PATIENCE
    assert time.process_time() - worked < 0.4, "it waited without rest"
    assert [span.status for span in report.spans if span.what == "final"] == ["cancelled"]
    assert [result.status for result in report.results] == ["ok", "ok"]
    assert report.best is not None


class TakesAllTime(Progress):
    """As soon as anything is measured, more time has passed than any search here may take."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def running(self, device: str, candidate: Candidate | None, what: str) -> None:
        self._patch.setattr(Loop, "now", staticmethod(lambda: time.monotonic() + 10_000))


def test_what_was_cut_in_another_search_stays_known_when_the_budget_ends_before_it_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast, slow = (ost.Candidate.call("tune.candidates:spinning", {"ns": ns}) for ns in (100_000, 30_000_000))
    with ost.Tuner(["sim:a"], store=tmp_path / "db", progress=False) as tuner:
        before = tuner.tune("op", [fast, slow]).results[1]
    with ost.Tuner(["sim:a"], store=tmp_path / "db", progress=TakesAllTime(monkeypatch)) as tuner:
        report = tuner.tune("op", [slow], budget=1_000)
    (after,) = report.results
    assert (before.status, after.status) == ("raced", "raced")
    assert after.samples == before.samples
    assert report.seconds > 1_000, "nothing was to be measured again"


class IsSlowToLook(Progress):
    """Looks at the first command that ended for so long that the others end, and the budget is spent."""

    looked = False

    def idle(self, where: str) -> None:
        if not self.looked:
            self.looked = True
            time.sleep(0.6)


def test_what_ended_when_the_budget_did_and_was_not_checked_is_not_ok(tmp_path: Path) -> None:
    candidates = [shell("sleep {s}; echo OP:op,TIME:1,WS:0", s=s) for s in (0, 0.1)]
    with ost.Tuner(["sim:a", "sim:b"], store=tmp_path / "db", progress=IsSlowToLook()) as tuner:
        report = tuner.tune("op", candidates, verify="tune.candidates:no", budget=0.5)
        assert {result.status for result in report.results} <= {"cancelled", "wrong_result"}
    assert report.best is None


# Reference candidates


def test_an_anchor_is_an_op_that_was_measured(tmp_path: Path) -> None:
    command = shell("echo OP:a,TIME:nan,WS:0; echo OP:b,TIME:1,WS:0")
    with ost.Tuner(["sim:a", "sim:b"], store=tmp_path / "db", progress=False) as tuner:
        report = tuner.tune("op", [command, *(shell("echo OP:b,TIME:2,WS:{n}", n=n) for n in range(150))])
    assert [result.status for result in report.results[:2]] == ["bad_output", "ok"]
    assert any(span.what == "anchor" for span in report.spans)


# What is built


def test_what_was_prepared_before_its_module_changed_is_prepared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "preparing_for_a_search.py"
    module.write_text("def prepare(workspace):\n    return {'workspace': 1}\n")
    with ost.Tuner(["sim:a"], store=tmp_path / "db", progress=False) as tuner:
        for said in (1, 20):
            module.write_text(f"def prepare(workspace):\n    return {{'workspace': {said}}}\n")
            candidate = ost.Candidate.call(
                "tune.candidates:with_prepared", {"workspace": said}, prepare="preparing_for_a_search:prepare"
            )
            (result,) = tuner.tune("op", [candidate]).results
            assert (result.status, result.workspace) == ("ok", said)


def test_who_takes_the_place_of_a_finalist_that_failed_is_built(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    program = f"test -e {broken} && test {{n}} -lt 4 && exit 3; echo OP:op,TIME:1,WS:0"
    candidates = [
        ost.Candidate.command(
            ["sh", "{scratch}/program"], {"n": n}, build=["sh", "-c", f"echo '{program}' > {{scratch}}/program"]
        )
        for n in range(10)
    ]
    newcomer = shell("echo OP:op,TIME:1,WS:0")
    # So noisy that there is a final, and of eight of them.
    with ost.Tuner(["sim:a?noise=0.05"], store=tmp_path / "db", progress=False) as tuner:
        tuner.tune("op", candidates)
        broken.touch()
        report = tuner.tune("op", [newcomer, *candidates])
    failed = [result for result in report.results if result.status != "ok"]
    assert failed
    assert {result.message for result in failed} == {"exit status 3"}
    assert report.best is not None


def finals(report: ost.Report) -> list[Span]:
    return [span for span in report.spans if span.what == "final"]


def noisy(names: str) -> list[str]:
    return [f"sim:{name}?noise=0.05" for name in names]


class Together(Progress):
    """Notes how many turns of the final run at once."""

    def __init__(self) -> None:
        self.most = 0
        self._running: set[str] = set()

    def running(self, device: str, candidate: Candidate | None, what: str) -> None:
        if what == "final":
            self._running.add(device)
            self.most = max(self.most, len(self._running))

    def idle(self, where: str) -> None:
        self._running.discard(where)


def test_devices_that_are_alike_play_a_round_of_the_final_each(tmp_path: Path) -> None:
    listener = Together()
    candidates = [shell("sleep 0.02; echo OP:op,TIME:1,WS:0", n=n) for n in range(8)]
    with ost.Tuner(noisy("abcdefgh"), store=tmp_path / "db", progress=listener) as tuner:
        report = tuner.tune("op", candidates)
    assert listener.most >= 6  # the rounds that are needed to tell who has won
    played: dict[str, list[str]] = {}
    for span in sorted(finals(report), key=lambda span: span.begin):
        assert span.candidate is not None
        played.setdefault(span.where, []).append(span.candidate.id)
    for turns in list(played.values())[:6]:
        assert len(set(turns[:8])) == 8  # a round with all finalists
    assert f"for {len(finals(report))} turns of the final on {len(played)}" in report.why()


@pytest.mark.parametrize("devices", [["sim:a?noise=0.05", "sim:b?noise=0.06"], ["cpu:0", "cpu:1"]])
def test_devices_that_are_unlike_or_disturb_each_other_hold_the_final_on_one(
    tmp_path: Path, devices: list[str]
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core")
    with ost.Tuner(devices, store=tmp_path / "db", progress=False) as tuner:
        report = tuner.tune("op", [shell(f"echo OP:op,TIME:1.{n}$(date +%N),WS:0", n=n) for n in range(3)])
    assert finals(report)
    assert len({span.where for span in finals(report)}) == 1


def test_who_fails_in_one_round_is_out_of_all(tmp_path: Path) -> None:
    counted = tmp_path / "count"
    code = f"echo >> {counted}; test {{n}} = 1 && test $(wc -l < {counted}) -gt 12 && exit 3; echo OP:op,TIME:1,WS:0"
    with ost.Tuner(noisy("abcd"), store=tmp_path / "db", progress=False) as tuner:
        report = tuner.tune("op", [shell(code, n=n) for n in range(4)])
    assert [result.status for result in report.results] == ["ok", "crash", "ok", "ok"]
    assert report.best is not None
    assert report.best.candidate.config["n"] != 1
    assert report.results[1] not in report.ties
    assert len({span.where for span in finals(report)}) == 4


class LosesOne(Progress):
    """Kills the reaper of a device when a turn of the final begins there: what runs is gone, and nobody says how."""

    def __init__(self, lost: str, most: int) -> None:
        self.tuner: ost.Tuner | None = None
        self._lost = lost
        self._left = most

    def running(self, device: str, candidate: Candidate | None, what: str) -> None:
        assert self.tuner is not None
        if what == "final" and device.startswith(self._lost) and self._left:
            self._left -= 1
            worker = next(worker for worker in self.tuner._searcher._workers if worker.name == device)
            for reaper in worker._reapers.values():
                os.kill(reaper.pid, signal.SIGKILL)


@pytest.mark.parametrize("most", [1, 100])
def test_a_final_goes_on_without_a_device_whose_reaper_dies(tmp_path: Path, most: int) -> None:
    listener = LosesOne("sim:b", most)
    with ost.Tuner(noisy("abc"), store=tmp_path / "db", progress=listener) as tuner:
        listener.tuner = tuner
        report = tuner.tune("op", [shell("echo OP:op,TIME:1,WS:0", n=n) for n in range(4)])
        assert [result.status for result in report.results] == ["ok"] * 4
        assert report.best is not None
        assert tuner.tune("op", [shell("echo OP:op,TIME:1,WS:0", n=n) for n in range(4)]).spans == ()  # decided


# What cannot be killed


@pytest.fixture
def one_cannot_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What first ends in the compile pool counts as not ended."""
    real_init, real_read = Reaper.__init__, Reaper.read
    builders: set[Reaper] = set()
    first = itertools.count()

    def init(self: Reaper, **arguments: object) -> None:
        real_init(self, **arguments)  # type: ignore[arg-type]
        if arguments.get("idle_priority"):
            builders.add(self)

    def events(self: Reaper) -> Iterator[Event]:
        for event in real_read(self):
            if isinstance(event, Exited) and self in builders and next(first) == 0:
                self._running = True
                yield Stuck((4711,))
            else:
                yield event

    monkeypatch.setattr(Reaper, "__init__", init)
    monkeypatch.setattr(Reaper, "read", lambda self: list(events(self)))


@pytest.mark.usefixtures("one_cannot_be_killed")
def test_the_rest_of_the_compile_pool_goes_on_without_who_cannot_be_killed(tmp_path: Path) -> None:
    dies = ost.Candidate.call(
        "tune.candidates:null", {"path": str(tmp_path / "died")}, prepare="tune.candidates:dying_once"
    )
    others = [
        ost.Candidate.call("tune.candidates:with_prepared", {"workspace": n}, prepare="tune.candidates:prepared_from")
        for n in range(50)
    ]
    with ost.Tuner(["sim:a"], store=tmp_path / "db", progress=False) as tuner:
        searcher = tuner._searcher
        if len(searcher._builders) == 1:  # a host of one core
            searcher._builders.append(Slot(searcher._loop, "build:1", environment={}, memory=None))
        first, *rest = tuner.tune("op", [dies, *others]).results
        assert (first.status, first.message) == ("device_lost", "processes 4711 cannot be killed")
        assert {result.status for result in rest} <= {"ok", "raced"}
        # Another search has all of it again.
        assert [result.status for result in tuner.tune("op", [dies]).results] == ["ok"]


# Listeners


class Bests(Progress):
    def __init__(self, broken: Path) -> None:
        self.seen: list[Result | None] = []
        self._broken = broken

    def running(self, device: str, candidate: Candidate | None, what: str) -> None:
        if what == "final":
            self._broken.touch()

    def ended(self, result: Result, best: Result | None) -> None:
        self.seen.append(best)


def test_who_fails_in_the_final_is_the_best_so_far_no_more(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    code = f"test -e {broken} && test {{n}} = 1 && exit 3; echo OP:op,TIME:{{ms}},WS:0"
    listener = Bests(broken)
    with ost.Tuner(["sim:a?noise=1e-4"], store=tmp_path / "db", progress=listener) as tuner:
        report = tuner.tune("op", [shell(code, n=1, ms=1.0), shell(code, n=2, ms=1.2)])
    assert [result.status for result in report.results] == ["crash", "ok"]
    assert [best and best.candidate.config["n"] for best in listener.seen] == [1, 1, 2]
    assert report.best is report.results[1]


# The store


def test_a_store_that_can_be_read_no_more_costs_what_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreadable(self: Search) -> None:
        raise StoreError("the store cannot be read")

    monkeypatch.setattr(Search, "_read_others", unreadable)
    with ost.Tuner(["sim:a"], store=tmp_path / "db", progress=False) as tuner:
        report = tuner.tune("op", [shell("echo OP:op,TIME:1,WS:0")])
    assert report.best is not None
    assert "cannot be read; the search goes on" in caplog.text


# Workers


@pytest.mark.parametrize("times", ["[]", "[1.0, NaN]", "[Infinity]", "[-1.0, 5.0]", "[0]", '["1e400"]', "[[1]]", "{}"])
def test_times_that_a_candidate_forged_make_no_sense(
    times: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.tune.workers.tasks._number", itertools.count(1).__next__)
    candidate = ost.Candidate.call("tune.candidates:forging", {"times": times})
    with ost.Tuner(["sim:a"], store=tmp_path / "db", progress=False) as tuner:
        (result,) = tuner.tune("op", [candidate]).results
    assert result.status == "bad_output"
    assert result.message.startswith("the worker's report makes no sense: ")


def test_a_worker_of_which_nothing_is_heard_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(1000)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("ostinato.tune.workers.calls._START_SECONDS", 0.1)
    with (
        ost.Tuner(["sim:a"], store=tmp_path / "db", progress=False) as tuner,
        pytest.raises(ost.TuningError, match=r"cannot be started: nothing was heard of it for 0\.1 s"),
    ):
        tuner.tune("op", [null(1)])


# What is given to setups, and what is not remembered


def test_data_reach_setups_and_belong_to_no_key(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("words")
    candidate = ost.Candidate.call("tune.candidates:reading", setup="tune.candidates:set_up_with")
    with ost.Tuner(["sim:a"], store=tmp_path / "db", progress=False) as tuner:
        (found,) = tuner.tune("op", [candidate], key={"text": "words"}, data=path).results
        assert (found.status, found.message, found.cached) == ("ok", "", False)
        path.unlink()
        assert tuner.tune("op", [candidate], key={"text": "words"}, data=str(path)).results[0].cached
        with pytest.raises(TypeError):
            tuner.tune("op", [candidate], data=1)  # type: ignore[arg-type]


def test_a_tuner_without_a_store_remembers_nothing(tmp_path: Path) -> None:
    with ost.Tuner(["sim:a"], store=False, progress=False) as tuner:
        for _ in range(2):
            report = tuner.tune("op", [null(1), null(2)])
            assert report.best is not None
            assert not any(result.cached for result in report.results)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("alike", [True, False])
def test_no_time_is_stored_for_a_model_that_it_was_not_measured_on(alike: bool) -> None:
    """A final takes place on one device; an op that reported nothing there has its time of another device."""
    trial, race = Trial(null(0)), Race(default=None, policy=ost.Policy())
    results = Results("op", None, alike, race, Progress())
    ops = tuple(OpOutcome(op, ost.Status.OK, (ns,)) for op, ns in (("one", 1.0), ("other", 2.0)))
    results.record(trial, Outcome(ost.Status.OK, ops), "sim:b")
    results.turned(trial.candidate.id, OpOutcome("one", ost.Status.OK, (3.0,)), "sim:a")
    confirmed = [(each.device, each.first, [op.samples for op in each.outcome.ops]) for each in results.confirmed()]
    assert confirmed == ([("sim:a", "sim:b", [(1.0, 3.0), (2.0,)])] if alike else [])


def test_a_finalist_with_two_ops_that_the_store_answered_is_prepared_once(tmp_path: Path) -> None:
    two = shell("echo OP:one,TIME:1,WS:0; echo OP:two,TIME:1,WS:0", n=0)
    with ost.Tuner(noisy("a"), store=tmp_path / "db", progress=False) as tuner:
        tuner.tune("op", [two])
        report = tuner.tune("op", [two, shell("echo OP:op,TIME:1,WS:0", n=1)])
    assert [result.status for result in report.results] == ["ok"] * 3
    assert {span.candidate.id for span in finals(report) if span.candidate is not None} >= {two.id}
