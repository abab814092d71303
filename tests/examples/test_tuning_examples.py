"""The examples of tuning run in their quick mode, describe what they say, and refuse what computes something else."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import ostinato as ost
from ostinato.profiler_runner import extract_profile_result
from ostinato.tune.searching.job import load

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Import the program of an example, as running it does; its other modules are found where it is."""
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OSTINATO_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))

    def program(name: str, directory: Path = EXAMPLES) -> ModuleType:
        monkeypatch.syspath_prepend(directory / name)
        spec = importlib.util.spec_from_file_location(f"example_{name}", directory / name / "tune.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield program
    for name in ("stencil", "matmul_check"):
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_matmul_is_tuned_and_every_product_is_right(example, tmp_path, capsys):
    page = tmp_path / "matmul.html"
    assert example("tune_matmul").main(["--quick", "--report", str(page)]) == 0
    out = capsys.readouterr().out
    assert "Results: 18 ok." in out
    assert "rows=1 lanes=1" in out, "the default is named"
    assert "<h1>Tuning of matmul</h1>" in page.read_text()


def test_matmul_that_computes_something_else_is_refused(example, tmp_path):
    shutil.copytree(EXAMPLES / "tune_matmul", tmp_path / "tune_matmul")
    source = tmp_path / "tune_matmul" / "matmul.cpp"
    text = source.read_text()
    assert "k < end" in text
    source.write_text(text.replace("k < end", "k < end - 1"))
    matmul = example("tune_matmul", tmp_path)
    config = {"rows": 4, "lanes": 8, "depth": 96, "unroll": 1, "optimize": "-O2", "target": "-mtune=native"}
    with ost.Tuner("sim:matmul") as tuner:
        report = tuner.tune(
            "matmul", [matmul.candidate(config, 96, 0.01)], key={"n": 96}, verify="matmul_check:product"
        )
    assert [result.status for result in report.results] == ["wrong_result"]
    assert "of 9216 elements differ" in report.results[0].message


def test_the_job_file_of_matmul_describes_what_its_program_does(example):
    matmul, job = example("tune_matmul"), load(EXAMPLES / "tune_matmul" / "matmul.toml")
    candidates = [matmul.candidate(config, 384, 0.3) for config in matmul.space(384, quick=False)]
    assert list(job.candidates()) == candidates
    assert len(candidates) > 100
    assert job.default == candidates[0]
    assert (job.op, job.key, job.verify) == ("matmul", {"n": 384}, "matmul_check:product")


@pytest.mark.slow
def test_stencil_is_tuned_and_every_plate_is_right(example, capsys):
    pytest.importorskip("numba", reason="needs the extra numba")
    assert example("tune_stencil").main(["--quick"]) == 0
    out = capsys.readouterr().out
    assert "3 candidates" in out
    assert "wrong_result" not in out
    assert "default" in out


@pytest.mark.parametrize("block", [(7, 9, 4), (30, 62, 8)])
def test_stencil_is_right_for_blocks_that_do_not_fit(example, block):
    pytest.importorskip("numba", reason="needs the extra numba")
    stencil = example("tune_stencil").stencil
    key = {"size": 60}
    field = stencil.heat(*block, None, stencil.plate(key))()
    stencil.same(field, key)
    field[40, 40] += 1
    with pytest.raises(AssertionError, match=r"most at \(40, 40\)"):
        stencil.same(field, key)


def test_profiler_binary_is_run_in_both_ways(example, monkeypatch, capfd):
    profiler = example("tune_profiler_binary")
    monkeypatch.setattr(profiler, "PROBLEMS", {"small": (96, 64), "long": (32, 256)})
    assert profiler.main([]) == 0
    out = capfd.readouterr().out
    by_runner, by_tuner = out.split("small, by the tuner:")
    assert [line.split()[0] for line in by_runner.strip().splitlines()] == ["small", "long"]
    assert "1 candidate with 12 results" in by_tuner
    assert "Results: 12 ok." in by_tuner


def test_profiler_binary_leaves_out_kernels_that_cannot_do_a_problem(example, tmp_path):
    profiler = example("tune_profiler_binary")
    program = tmp_path / "gemm_profiler"
    subprocess.run([*profiler.BUILD, program], cwd=profiler.HERE, check=True)
    ran = subprocess.run([program, "12", "16", "8"], capture_output=True, text=True, check=True)
    names = [result.op_config for result in extract_profile_result(ran.stdout, ["gemm_4x16", "gemm_8x16"])[0]]
    assert names == ["gemm_4x16"]
    assert "gemm_8x16 cannot do 12 x 16" in ran.stderr
    assert np.isclose(extract_profile_result(ran.stdout, ["gemm_4x16_packed"])[0][0].workspace, 4 * 16 * 8)
    assert subprocess.run([program, "12", "x"], capture_output=True, check=False).returncode == 2


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/tune.py")), ids=lambda path: path.parent.name)
def test_help_and_length(example, path, capsys):
    if path.parent.name == "tune_stencil":
        pytest.importorskip("numba", reason="needs the extra numba")
    with pytest.raises(SystemExit) as caught:
        example(path.parent.name).main(["--help"])
    assert caught.value.code == 0
    assert "--quick" in capsys.readouterr().out
    for file in path.parent.glob("*.[pct]*"):
        assert len(file.read_text().splitlines()) <= 130, file
    assert f"({path.parent.name})" in (EXAMPLES / "README.md").read_text()


def test_matmul_that_no_compiler_takes_is_told_with_the_error(example, tmp_path):
    shutil.copytree(EXAMPLES / "tune_matmul", tmp_path / "tune_matmul")
    with open(tmp_path / "tune_matmul" / "matmul.cpp", "a") as source:
        source.write("#error this machine is too small\n")
    job = load(tmp_path / "tune_matmul" / "matmul.toml")
    with ost.Tuner("sim:matmul") as tuner:
        report = tuner.tune(job.op, [job.default], key=job.key, default=job.default)
    assert [result.status for result in report.results] == ["compile_error"]
    assert report.results[0].message.partition("\n")[0].endswith("error: #error this machine is too small")
    assert [(span.what, span.status) for span in report.spans] == [("build", "compile_error")]


@pytest.mark.ray
@pytest.mark.slow
def test_a_fleet_of_this_machine_finds_the_fastest(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    command = [sys.executable, "-W", "ignore", EXAMPLES / "tune_fleet" / "tune.py", "--quick"]
    environment = {**os.environ, "OSTINATO_CACHE_DIR": str(tmp_path), "OSTINATO_LEASE_DIR": str(tmp_path / "leases")}
    environment["RAY_ADDRESS"] = "local"  # a cluster of its own
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    assert "The winner is at_once=" in ran.stdout
    assert "/cpu:0" in ran.stdout
