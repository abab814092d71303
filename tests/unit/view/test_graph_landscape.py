"""The picture of what tuning a graph found: every case, winner and failure is in it, whatever there is."""

import numpy as np
import pytest

import ostinato as ost
from ostinato.tune.graphs import landscape
from ostinato.tune.graphs.landscape import plot
from ostinato.tune.outcome import Status

pytest.importorskip("matplotlib", reason="needs the extra plot")


def result(name: str, time: float | None, status: Status = Status.OK, **config: object) -> ost.Result:
    candidate = ost.Candidate.call("json:dumps", {"variant": name, **config})
    interval = None if time is None else (time * 0.97, time * 1.04)
    samples = () if time is None else (time,) * 8
    return ost.Result(candidate=candidate, op="op", status=status, time_ns=time, interval_ns=interval, samples=samples)


def report(*results: ost.Result, best: int | None = 0, ties: tuple[int, ...] = ()) -> ost.Report:
    return ost.Report(
        op="op",
        key={},
        policy=ost.Policy(),
        best=None if best is None else results[best],
        ties=tuple(results[place] for place in ties),
        results=results,
        default=results[0] if results else None,
    )


REPORTS = {
    "relax[64x64 float64]": report(
        result("relax", 8000.0),
        result("tiled", 2000.0, block=8),
        result("tiled", 2050.0, block=16),
        result("slow", 90000.0, Status.RACED),
        result("broken", None, Status.CRASH),
        result("sloppy", None, Status.WRONG_RESULT),
        result("stuck", None, Status.HANG_KILLED),
        best=1,
        ties=(1, 2),
    ),
    "copy <&> $x_1$ é": report(result("copy", 30.0)),
    "lost": report(result("lost", None, Status.CRASH), best=None),
    "alone": report(result("default", None, Status.CRASH), result("other", 5.0), best=1),
    "cancelled": report(result("c", None, Status.CANCELLED), result("d", None, Status.CANCELLED), best=None),
    "none": report(best=None),
    "a" * 300: report(result("b" * 300, 1e10), result("c" * 300, 1.0, text="\n" * 50), best=1),
}


def words(path) -> str:
    import re
    from html import unescape

    return unescape(" ".join(re.findall(r"<!-- (.*?) -->", path.read_text(), re.S)))


def test_says_what_won_and_what_failed(tmp_path):
    path = tmp_path / "landscape.svg"
    plot(REPORTS, path)
    said = words(path)
    for expected in (
        "7 cases, 15 variants: 2 cases faster than by default",
        "tiled(block=8): 4.00x",
        "broken: crash, sloppy: wrong result, 1 more",
        "has no other variant",
        "no variant is ok",
        "the default has no time",
        "nothing was measured",
        "default 8 µs",
        "given up early",
        "tie with the winner",
        "copy <&> $x_1$ é",
    ):
        assert expected in said, expected


@pytest.mark.parametrize("cases", [0, 1, 30])
def test_grows_with_the_cases(cases, tmp_path):
    from matplotlib.image import imread

    several = {f"case {k}": report(result("a", 10.0), result("b", 5.0 + k), best=1) for k in range(cases)}
    plot(several, tmp_path / "landscape.png")
    height, width, _ = imread(tmp_path / "landscape.png").shape
    assert width == 1650
    assert 150 <= height <= 400 + 75 * cases


@pytest.mark.parametrize("label", ["lost", "none"])
def test_draws_what_has_no_time_alone(label, tmp_path):
    plot({label: REPORTS[label]}, tmp_path / "landscape.png")
    assert (tmp_path / "landscape.png").stat().st_size > 1000


def test_draws_times_that_are_far_apart(tmp_path):
    times = np.logspace(0, 10, 11).tolist()
    plot({"x": report(*(result(f"v{k}", time) for k, time in enumerate(times)))}, tmp_path / "landscape.png")


def test_a_format_that_is_none_writes_nothing(tmp_path):
    with pytest.raises(ValueError, match="nonsense"):
        plot(REPORTS, tmp_path / "landscape.nonsense")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("slowest", [3, 28, 300, 10**6])
def test_the_axis_of_times_is_labelled_along_its_length(slowest):
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    case = report(result("default", 1.0), result("quick", 0.16), result("slow", float(slowest)), best=1)
    landscape._time_axis(axes, {"case": case})
    low, high = axes.get_xlim()
    assert 3 <= sum(low <= tick <= high for tick in axes.get_xticks()) <= 12
