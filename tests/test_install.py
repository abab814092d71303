"""`make` says what it does while it installs, and everything when that fails."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "install.py"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Collecting numba>=0.60 (from ostinato==0.1.0)\n", "numba"),
        ("  *** Configuring CMake...\n", "Configuring CMake..."),
        ("  [3/20] Building CXX object CMakeFiles/a.dir/Unity/unity_core.o\n", "[3/20] unity_core.o"),
        ("  [19/20] Linking CXX shared module _core.so\n", "[19/20] Linking CXX shared module _core.so"),
        ("  -- Detecting CXX compile features\n", None),
    ],
)
def test_progress_is_shown(line: str, shown: str | None) -> None:
    spec = importlib.util.spec_from_file_location("install", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.progress(line) == shown


def test_what_fails_is_printed_whole(tmp_path: Path) -> None:
    pytest.importorskip("pip")
    command = [sys.executable, TOOL, tmp_path, tmp_path / "there is nothing here"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    log = (tmp_path / "install.log").read_text()
    assert "there is nothing here" in log
    assert log in done.stdout
