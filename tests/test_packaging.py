"""What is built depends on nothing but the system's C and C++ libraries."""

import re
import shutil
import subprocess

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
