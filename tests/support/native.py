"""C sources of the tests, compiled when first used."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

import ostinato as ost


@cache
def load(source: str) -> ctypes.CDLL:
    """Compile a C file, named from the folder of the tests, and load it."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "library.so"
        options = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{ost.get_include()}"]
        subprocess.run([compiler, *options, Path(__file__).parents[1] / source, "-o", library], check=True)
        return ctypes.CDLL(str(library))
