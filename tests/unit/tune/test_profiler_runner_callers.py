"""Choosing among results: the faults of the ancestor's callers, G1 to G3, by the input that provoked them."""

from __future__ import annotations

import itertools
from operator import itemgetter

import pytest

import ostinato.profiler_runner as pr
from profilers import MASKS, Delegate, line, says, sh


@pytest.fixture(autouse=True)
def unmasked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MASKS:
        monkeypatch.delenv(name, raising=False)


class Chooser(Delegate):
    """Chooses as the ancestor's delegate does: neighbours of the same op are a group, and the last group wins."""

    def postprocess_results(self) -> None:
        super().postprocess_results()
        self.chosen, self.cached = {}, {}
        for op, group in itertools.groupby(self.results, key=lambda result: result.op_config):
            best = min(group, key=lambda result: result.duration).duration
            self.chosen[op] = best
            self.cached.setdefault(op, best)


def test_g1_results_arrive_in_the_order_of_pushes_so_groups_stay_together(tmp_path):
    """Completions A9, B5, A1, B7, A8: the ancestor chose A=8, B=7, and cached A=9, B=5."""
    delegate = Chooser()
    completions = [("A", 9), ("B", 5), ("A", 1), ("B", 7), ("A", 8)]
    runner = pr.ProfilerRunner([str(device) for device in range(5)], delegate)
    order = sorted(range(5), key=lambda index: completions[index][0])  # pushed op by op
    for index in order:
        waits = 'while [ "$2" != 0 ] && [ ! -e "$1/$2" ]; do sleep 0.005; done; touch "$1/$(($2+1))"; echo "$3"'
        runner.push(sh(waits, tmp_path, index, line(*completions[index])), delegate.add)
    runner.join()
    assert delegate.chosen == {"A": 1, "B": 5}
    assert delegate.cached == {"A": 1, "B": 5}


def test_g2_the_fastest_wins_and_not_the_first_by_name():
    runner = pr.Runner([0], "softmax")
    runner.push("first", says("k_a", 9.0))
    runner.push("second", says("k_z", 1.0))
    runner.push("third", says("k_m", 1.5))
    assert min(runner.pull(), key=itemgetter(1)) == ("second", ("k_z", 1.0, 0))


@pytest.mark.parametrize("sentinel", ["0", "0.0", "-1", "0e5"])
def test_g3_a_candidate_that_threw_does_not_win_with_time_0(sentinel, caplog):
    delegate = Delegate()
    lines = f"{line('threw', sentinel)}\n{line('good', 4)}\n{line('better', 3)}"
    runner = pr.ProfilerRunner([0], delegate)
    runner.push(["/bin/echo", lines], delegate.add)
    runner.join()
    assert delegate.results == [("better", 3.0, 0)]
    assert pr.extract_profile_result(lines) == (("better", 3.0, 0), False)
    assert pr.extract_profile_result(lines, ["threw"]) == (None, True)
    (warning,) = caplog.records
    assert "threw" in warning.getMessage()  # what was left out is told


def test_many_that_threw_are_told_in_one_line(caplog):
    runner = pr.Runner([0], "conv")
    lines = [line(f"threw{index}", 0) for index in range(1000)]
    runner.push(0, ["/usr/bin/printf", "%s\n", *lines, line("good", 4)])
    assert runner.pull() == [(0, ("good", 4.0, 0))]
    (warning,) = caplog.records
    assert "threw0: " in warning.getMessage()
    assert "999 more" in warning.getMessage()
