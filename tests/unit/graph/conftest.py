"""A shared library of native tasks, compiled once."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ostinato.environment import get_include

SOURCE = Path(__file__).with_name("native_tasks.c")


@pytest.fixture(scope="session")
def compiler():
    found = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        pytest.skip("no C compiler")
    return found


@pytest.fixture(scope="session")
def library(compiler, tmp_path_factory):
    path = tmp_path_factory.mktemp("native") / "tasks.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", f"-I{get_include()}", SOURCE, "-o", path], check=True)
    return ctypes.CDLL(path)
