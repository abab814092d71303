"""What is built depends on the system's C and C++ libraries only; wheels have what users need, and nothing else."""

import re
import shutil
import subprocess
from importlib import metadata

import pytest

from ostinato import _core
from ostinato.tune.workers import reaper as reaper_process

SYSTEM = r"lib(stdc\+\+|gcc_s|c|m|pthread)\.so\.\d+|ld-linux.*"
SANITIZERS = r"lib(asan|ubsan|tsan)\.so\.\d+"


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs readelf")
@pytest.mark.parametrize("file", [_core.__file__, reaper_process.program()], ids=["core", "reaper"])
def test_only_system_libraries_are_linked(file: str) -> None:
    output = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"\(NEEDED\).*\[(.*)\]", output)
    assert libraries
    assert [name for name in libraries if not re.fullmatch(f"{SYSTEM}|{SANITIZERS}", name)] == []


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs readelf")
@pytest.mark.parametrize("file", [_core.__file__, reaper_process.program()], ids=["core", "reaper"])
def test_wheels_have_no_debug_symbols(file: str, installed: list[str]) -> None:
    sections = subprocess.run(["readelf", "-SW", file], capture_output=True, text=True, check=True).stdout
    assert ".text" in sections
    assert not re.search(r"\.debug_|\.symtab", sections)


def test_wheels_have_neither_sources_nor_what_is_for_tests(installed: list[str]) -> None:
    assert "ostinato/include/ostinato.h" in installed
    assert "ostinato/py.typed" in installed
    suffixes = (".py", ".pyi", ".typed", ".h", ".so", "page.css", "page.js", "/ostinato-reaper")
    others = [name for name in installed if not name.endswith(suffixes) and ".dist-info/" not in name]
    assert others == ["../../../bin/ostinato"]
    assert [name for name in installed if "fake" in name or name.startswith(("tests", "benchmarks"))] == []


@pytest.fixture
def installed() -> list[str]:
    """The files that Ostinato's wheel has brought; skips where it is installed in place."""
    files = [str(file) for file in metadata.files("ostinato") or () if file.suffix != ".pyc"]
    if not any(name == "ostinato/__init__.py" for name in files):
        pytest.skip("Ostinato is installed in place")
    return files
