"""The command line: what it runs, and what bad input gets."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ostinato.cli import main

needs_demo = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("numba", "matplotlib", "PIL")),
    reason="needs the extra demo",
)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_importing_ostinato_imports_none_of_the_heavy_packages():
    heavy = ("click", "rich", "matplotlib", "numba", "PIL")
    code = f"import sys, ostinato; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_first_compile_imports_no_more_than_it_needs():
    heavy = ("asyncio", "bz2", "hashlib", "numpy.ma", "ostinato.view.simulation", "shutil", "ssl", "statistics")
    code = f"""if True:
        import sys, numpy as np, ostinato as ost
        before = set(sys.modules)
        @ost.task
        def add(x: ost.ReadWrite): x += 1
        with ost.Machine(cpus=2) as machine, ost.compile(lambda x: add(x), np.zeros(2), machine=machine) as program:
            program.replay()
        print([name for name in {heavy} if name in set(sys.modules) - before])
    """
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_the_module_is_the_command():
    shown = subprocess.check_output([sys.executable, "-m", "ostinato", "--help"], text=True)
    assert shown.startswith("Usage: ostinato ")
    for command in ("demo", "bench", "trace"):
        assert command in shown


@needs_demo
@pytest.mark.slow
def test_demo_tunes_once_is_exact_and_writes_its_pictures(tmp_path, measures_little, monkeypatch):
    from ostinato.demo import photograph

    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OSTINATO_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setattr(photograph, "LARGEST_SIDE", 128)
    for steps, folder in ((20, "[folder]"), (1, "again")):
        output = tmp_path / "new" / folder
        result = run("demo", "--steps", steps, "--output", output)
        assert result.exit_code == 0, result.output
        assert result.output.count("plain loop") >= 2
        assert "bit for bit" in result.output
        assert "pairs(quotient=1)" in result.output
        assert "wrong result: never chosen" in result.output
        assert "measured" in result.output
        remembered = "is remembered: the next run finds it in the store" in result.output
        assert remembered == (folder == "[folder]")
        assert ("All of this was in the store" in result.output) != remembered
        for name in ("demo.png", "landscape.png", "timeline.png", "predicted.png"):
            assert (output / name).read_bytes().startswith(b"\x89PNG")
            assert str(output / name) in result.output


@needs_demo
@pytest.mark.slow
@pytest.mark.parametrize(("mode", "size"), [("L", (3, 5)), ("RGBA", (40, 30)), ("P", (1, 1))])
def test_demo_takes_the_users_image_of_any_mode_and_size(tmp_path, mode, size):
    from PIL import Image

    Image.new(mode, size).save(tmp_path / "mine.png")
    result = run("demo", "--image", tmp_path / "mine.png", "--steps", 2, "--no-tune", "--output", tmp_path)
    assert result.exit_code == 0, result.output
    assert f"{size[0]} x {size[1]}" in result.output


def test_demo_with_a_path_that_is_no_file(tmp_path):
    for path in (tmp_path / "missing.jpg", tmp_path):
        result = run("demo", "--image", path, "--output", tmp_path / "out")
        assert result.exit_code == 2
        assert str(path) in result.output
    assert not (tmp_path / "out").exists()


@needs_demo
@pytest.mark.parametrize("content", [b"", b"no image", b"\xff\xd8\xff\xe0 cut short"])
def test_demo_with_a_file_that_is_no_image(tmp_path, content):
    (tmp_path / "text.jpg").write_bytes(content)
    result = run("demo", "--image", tmp_path / "text.jpg", "--output", tmp_path / "out")
    assert result.exit_code == 1
    assert "text.jpg as an image" in result.output
    assert not (tmp_path / "out").exists()


@needs_demo
def test_demo_with_an_output_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("demo", "--output", tmp_path / "file" / "folder")
    assert result.exit_code == 1
    assert "cannot write to" in result.output


def test_demo_without_its_extra_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = run("demo")
    assert result.exit_code == 1
    assert "pip install 'ostinato[demo]'" in result.output


@pytest.mark.parametrize("steps", ["0", "-1", "many"])
def test_demo_with_impossible_steps(steps):
    assert run("demo", "--steps", steps).exit_code == 2


def test_bench_outside_a_checkout_says_where_it_lives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("bench", "--quick")
    assert result.exit_code == 1
    assert "clone" in result.output


def test_bench_passes_its_arguments_and_status_on(tmp_path, monkeypatch):
    (tmp_path / "src" / "ostinato").mkdir(parents=True)
    (tmp_path / "benchmarks").mkdir()
    script = "import sys; open('arguments', 'w').write(' '.join(sys.argv[1:])); sys.exit(3)"
    (tmp_path / "benchmarks" / "run.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    assert run("bench", "--quick", "chain").exit_code == 3
    assert (tmp_path / "arguments").read_text() == "--quick chain"


@pytest.fixture
def script(tmp_path, monkeypatch) -> Path:
    """A script that replays a program as often as its argument says, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "work.py"
    path.write_text(
        "import sys, numpy as np, ostinato as ost\n"
        "@ost.task\n"
        "def count(x: ost.ReadWrite): x += 1\n"
        "x = np.zeros(1)\n"
        "with ost.capture() as graph: count(x)\n"
        "with ost.Machine(cpus=1) as machine, graph.compile(machine) as program:\n"
        "    program.replay(int(sys.argv[1]))\n"
        "sys.exit(int(x[0]) if x[0] > 100 else 0)\n"
    )
    return path


def test_trace_of_a_script(script):
    result = run("trace", script, 5)
    assert result.exit_code == 0, result.output
    path = script.parent / "work.trace.json"
    assert str(path) in result.output
    events = json.loads(path.read_text())["traceEvents"]
    assert [event["args"]["step"] for event in events if event["ph"] == "X"] == [0, 1, 2, 3, 4]
    assert {event["args"]["recorded at"].split("/")[-1] for event in events if event["ph"] == "X"} == {
        "work.py:5 in <module>"
    }


def test_trace_goes_where_asked_and_passes_the_status_on(script):
    result = run("trace", "--output", "here.json", script, 101)
    assert result.exit_code == 101
    assert json.loads((script.parent / "here.json").read_text())


def test_trace_of_a_script_that_replays_nothing(tmp_path):
    (tmp_path / "idle.py").write_text("")
    result = run("trace", "--output", tmp_path / "trace.json", tmp_path / "idle.py")
    assert result.exit_code == 1
    assert "no trace" in result.output


def test_trace_of_a_script_that_dies_of_a_signal(tmp_path):
    (tmp_path / "dies.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert run("trace", tmp_path / "dies.py").exit_code == 128 + 15
    assert run("trace", tmp_path / os.devnull.strip("/")).exit_code == 2
