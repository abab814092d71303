"""Every example runs, and its replay equals its plain loop."""

import importlib.util
import io
import itertools
import re
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices import device as discovery

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def beside_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples import what lies beside them, as in a run of the file."""
    monkeypatch.syspath_prepend(EXAMPLES)


@pytest.fixture(scope="module")
def heat() -> ModuleType:
    """Compiled once."""
    pytest.importorskip("numba", reason="needs the extra numba")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        return load("heat_2d")


@pytest.mark.parametrize("steps", [0, 1, 2, 7, 50])
def test_heat_2d_for_any_number_of_steps(steps, heat):
    replay = heat.Replay(32, 4)
    with replay.program:
        expected = heat.whole_plate(heat.plate(32), heat.plate(32), 0.2, steps)
        assert np.array_equal(replay.run(steps, 0.2), expected)
        assert np.array_equal(replay.run(steps, 0.2), expected)


def test_heat_2d_takes_another_rate(heat):
    replay = heat.Replay(32, 4)
    with replay.program:
        assert (replay.run(20, 0.1) == heat.whole_plate(heat.plate(32), heat.plate(32), 0.1, 20)).all()
        assert (replay.run(20, 0.1) != replay.run(20, 0.2)).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "ways"),
    [
        ("heat_2d", ["--size", "24", "--steps", "5", "--strips", "3"], 3),
        ("matrix_chains", ["--arms", "3", "--length", "4", "--size", "3", "--steps", "9"], 3),
        ("matrix_chains", ["--arms", "1", "--length", "2", "--size", "1", "--steps", "0"], 3),
        ("particles", ["--particles", "1001", "--parts", "3"], 2),
        ("particles", ["--particles", "50", "--most", "7"], 2),
        ("asyncio_producer", ["--packets", "5"], 2),
    ],
)
def test_examples_that_are_timed_give_equal_results(name, arguments, ways, capsys):
    if name in ("heat_2d", "matrix_chains"):
        pytest.importorskip("numba", reason="needs the extra numba")
    assert load(name).main(arguments) == 0
    out = capsys.readouterr().out
    assert "results equal: yes" in out
    assert len(re.findall(r"Ostinato is [\d.]+ times as fast", out)) == ways - 1


def test_the_comparison_sees_one_changed_bit(capsys):
    comparison = importlib.import_module("comparison")
    one, other = np.ones(4), np.ones(4)
    other.view(np.uint64)[2] ^= 1
    ways = [comparison.Way("one", lambda: one), comparison.Way("other", lambda: other)]
    assert comparison.compare(ways, turns=1) == 1
    assert "results equal: NO" in capsys.readouterr().out
    assert comparison.compare([ways[0], ways[1]._replace(tolerance=1e-9)], turns=1) == 0


def test_the_reason_is_printed_where_another_way_is_faster(capsys):
    comparison = importlib.import_module("comparison")
    slow = comparison.Way("slow", lambda: time.sleep(0.05), "never printed: it is the first")
    fast = comparison.Way("fast", lambda: None, "it does not sleep")
    comparison.compare([slow, fast], turns=3)
    assert "because it does not sleep" in capsys.readouterr().out
    comparison.compare([fast, slow], turns=3)
    assert "because" not in capsys.readouterr().out


@pytest.mark.parametrize("tolerance", [1e-1, 1e-4, 1e-9])
def test_conjugate_gradient_stops_where_the_loop_stops(tolerance, capsys):
    example = load("conjugate_gradient")
    assert example.main(["--size", "24", "--tolerance", str(tolerance)]) == 0
    assert "bit for bit: yes" in capsys.readouterr().out


def test_conjugate_gradient_solves_the_system():
    example = load("conjugate_gradient")
    system, fresh = example.System(24, 500), example.System(24, 500)
    steps = example.replayed(system, 1e-9)
    assert 10 < steps < 500
    padded = example.np.pad(system.x, 1)
    applied = 4 * system.x - padded[:-2, 1:-1] - padded[2:, 1:-1] - padded[1:-1, :-2] - padded[1:-1, 2:]
    assert abs(applied - fresh.r).max() < 1e-8


def test_conjugate_gradient_runs_out_of_iterations():
    assert load("conjugate_gradient").main(["--size", "24", "--tolerance", "0", "--most", "9"]) == 0


@pytest.fixture(scope="module")
def jacobi() -> ModuleType:
    """Compiled once."""
    pytest.importorskip("numba", reason="needs the extra numba")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        return load("jacobi_numba")


@pytest.mark.parametrize("most", [15, 20, 5000])
def test_jacobi_stops_where_the_loop_stops(most, jacobi, capsys):
    assert jacobi.main(["--size", "24", "--tolerance", "1e-4", "--most", str(most)]) == 0
    assert "results equal: yes" in capsys.readouterr().out


def test_image_pipeline_writes_the_files_of_the_loop(tmp_path, capsys):
    pytest.importorskip("PIL", reason="needs Pillow, from the extra demo")
    example = load("image_pipeline")
    inputs = example.draw_inputs(7, tmp_path)
    output = tmp_path / "output"
    assert example.main([*map(str, inputs), "--size", "64", "--output", str(output)]) == 0
    assert "results equal: yes" in capsys.readouterr().out
    assert [path.name for path in sorted(output.iterdir())] == [f"{k:04}-waves-{k}.png" for k in range(7)]


def smoothed_by_numpy(noisy, reach, like):
    values = noisy.astype(np.int32)
    here = values[reach:-reach, reach:-reach]
    weights, total = np.zeros((2, *here.shape), np.int32)
    for i, j in itertools.product(range(2 * reach + 1), repeat=2):
        other = values[i : i + len(here), j : j + here.shape[1]]
        weight = np.maximum(0, like**2 - (other - here) ** 2)
        weights += weight
        total += weight * other
    return (total + weights // 2) // weights


def test_device_pipeline_gives_the_files_of_the_loop(tmp_path, capsys):
    pytest.importorskip("PIL", reason="needs Pillow, from the extra demo")
    if not discovery.usable():
        pytest.skip("no device")
    example = load("device_pipeline")
    assert example.main(["--count", "9", "--size", "32", "--output", str(tmp_path)]) == 0
    assert "byte for byte: yes" in capsys.readouterr().out
    assert (tmp_path / "device_pipeline.png").read_bytes().startswith(b"\x89PNG")


def test_device_pipeline_smooths_as_numpy_does():
    image = pytest.importorskip("PIL.Image", reason="needs Pillow, from the extra demo")
    if not discovery.usable():
        pytest.skip("no device")
    example = load("device_pipeline")
    (photograph,) = example.take(1, 64)
    noisy, _ = example.buffers(64)
    example.decode([photograph], 0, noisy)
    (result,) = example.plain_loop([photograph], 64)
    with image.open(io.BytesIO(result)) as clean:
        assert np.array_equal(np.asarray(clean), smoothed_by_numpy(noisy, example.REACH, example.LIKE))


@pytest.mark.parametrize("installed", [True, False])
def test_device_pipeline_without_a_device_says_what_is_missing(installed, capsys, monkeypatch):
    pytest.importorskip("PIL", reason="needs Pillow, from the extra demo")
    example = load("device_pipeline")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if installed else None)
    with discovery.using(()):
        assert example.main(["--count", "1", "--size", "32"]) == installed
    assert "ostinato[opencl]" in capsys.readouterr().out


@pytest.mark.parametrize("blocks", [1, 3, 60])
def test_waterfall_draws_the_picture_of_the_loop(blocks, capsys):
    assert load("waterfall").main(["--blocks", str(blocks)]) == 0
    assert "equal bit for bit: yes" in capsys.readouterr().out


def test_waterfall_whose_recording_breaks_off_ends():
    example = load("waterfall")
    quiet, recording = example.record(9)
    with pytest.raises(example.ost.PoisonError, match="broadcast"):
        example.linked(quiet, recording[: 5 * example.BLOCK], example.np.zeros((9, example.BLOCK // 2)))


def test_parameter_sweep_finds_the_best_factor(capsys):
    assert load("parameter_sweep").main(["--size", "24", "--sweeps", "60", "--runs", "12"]) == 0
    out = capsys.readouterr().out
    assert "equal bit for bit: yes" in out
    found, theory = map(float, re.search(r"best factor ([\d.]+), by theory ([\d.]+)", out).groups())
    assert abs(found - theory) < 0.06


def test_tuned_graph_finds_the_second_time_what_it_measured(tmp_path, capsys):
    example = load("tuned_graph")
    arguments = ["--size", "64", "--steps", "7", "--store", str(tmp_path / "store.db")]
    for known in ("5 of 6 ok  ", "5 of 6 ok, from the store"):
        assert example.main(arguments) == 0
        out = capsys.readouterr().out
        assert "bit for bit: yes" in out
        assert known in out
        assert "reordered: wrong_result" in out
        assert "measured 20" in out
        for machine in ("a step on 64 cores", "on each of 8 nodes"):
            assert machine in out


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 10])
def test_tuned_graph_whatever_variant_it_takes(steps):
    example = load("tuned_graph")
    expected = example.plain_loop(70, steps)
    for variant in example.advance.variants:
        water = [example.basin(70) for _ in range(3)]
        with example.ost.capture() as graph:
            field = example.ost.ring(*water)
            ends = example.np.linspace(1, 71, 5).astype(int).tolist()
            for top, bottom in itertools.pairwise(ends):
                inner = slice(top, bottom), slice(1, -1)
                halo = field[0][top - 1 : bottom + 1]
                variant.task(field[-1][inner], halo, field[1][inner], example.SPEED, **variant.passed)
        with graph.compile(costs={}) as program:
            program.replay(steps)
        same = example.np.array_equal(water[steps % 3], expected)
        assert same or variant.name == "reordered"
        assert example.np.allclose(water[steps % 3], expected, atol=1e-9)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_help_and_length(path, capsys):
    if path.stem in ("heat_2d", "jacobi_numba", "matrix_chains"):
        pytest.importorskip("numba", reason="needs the extra numba")
    if path.stem in ("image_pipeline", "device_pipeline"):
        pytest.importorskip("PIL", reason="needs Pillow, from the extra demo")
    with pytest.raises(SystemExit) as caught:
        load(path.stem).main(["--help"])
    assert caught.value.code == 0
    assert "usage:" in capsys.readouterr().out
    assert len(path.read_text().splitlines()) <= 160
    assert f"({path.name})" in (EXAMPLES / "README.md").read_text()


def test_heat_on_ranks_equals_a_plain_loop(capsys):
    example = load("heat_on_ranks")
    plate, peak = example.simulate(ost.Ranks(), steps=7)
    a = example.initial((slice(0, example.SIDE + 2), slice(0, example.SIDE + 2)))
    b = a.copy()
    for _ in range(7):
        example.relax(a, b[1:-1, 1:-1], 0.2)
        a, b = b, a
    assert plate.tobytes() == a.tobytes()
    assert peak == a[1:-1, 1:-1].max()
    example.main(["--steps", "3"])
    assert "digest" in capsys.readouterr().out
