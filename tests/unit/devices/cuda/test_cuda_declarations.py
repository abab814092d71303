"""What we declare of CUDA's driver API is what its headers do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CORE = Path(__file__).parents[4] / "core"


def _headers() -> Path | None:
    roots = [
        os.environ.get("CUDA_HOME"),
        os.environ.get("CUDA_PATH"),
        "/usr/local/cuda",
        *Path("/usr/local").glob("cuda-*"),
    ]
    for root in filter(None, roots):
        include = Path(root) / "include"
        if (include / "cuda.h").is_file() and (include / "cudaTypedefs.h").is_file():
            return include
    return None


def test_declarations_are_those_of_cudas_headers() -> None:
    headers = _headers()
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if headers is None or compiler is None or not CORE.is_dir():
        pytest.skip("no headers of CUDA 13 (CUDA_HOME), or no C++ compiler")
    options = ["-std=c++20", "-fsyntax-only", f"-I{CORE}", "-isystem", headers]
    subprocess.run([compiler, *options, HERE / "declarations.cpp"], check=True)
