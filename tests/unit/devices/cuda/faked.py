"""A driver of CUDA without a GPU, built from fake/ when first used; see fake/fake.h."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from ostinato.devices.cuda import CudaDevice, devices

HERE = Path(__file__).parent
CORE = Path(__file__).parents[4] / "core"


@cache
def library() -> str:
    """Build it; the path of the library, which lies alone in its folder and is called as the driver's."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler for the fake driver of CUDA")
    if not CORE.is_dir():
        pytest.skip("no sources of the core for the fake driver of CUDA")
    folder = tempfile.TemporaryDirectory(prefix="ostinato-fake-cuda-")
    _kept.append(folder)
    path = Path(folder.name) / "libcuda.so.1"
    options = ["-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"]
    # As one file: most of the time goes into reading the standard library.
    source = "".join(f'#include "{file}"\n' for file in sorted((HERE / "fake").glob("*.cpp")))
    command = [compiler, *options, f"-I{CORE}", "-x", "c++", "-", "-o", path, "-pthread", "-ldl"]
    subprocess.run(command, check=True, input=source, text=True)
    return str(path)


_kept: list[tempfile.TemporaryDirectory[str]] = []


@cache
def fake_devices() -> tuple[CudaDevice, ...]:
    """Its two devices, in this process, whose own driver of CUDA, if it has one, stays as it is."""
    return tuple(devices(library()))


class Controls:
    """What tests ask of the fake driver."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(library())
        self._library.fake_cuda_calls.restype = ctypes.c_uint64
        self._library.fake_cuda_graph.restype = ctypes.c_char_p

    def fail(self, failures: str) -> None:
        """``"cuMemAlloc_v2@3=2"``: the third call from now returns code 2."""
        self._library.fake_cuda_fail(failures.encode())

    def calls(self, name: str) -> int:
        """How often a function was called."""
        return int(self._library.fake_cuda_calls(name.encode()))

    def graph(self) -> list[tuple[str, set[int]]]:
        """The nodes of the graph that was made executable last: what each is, and which ones it comes after."""
        lines = self._library.fake_cuda_graph().decode().splitlines()
        return [
            (kind, {int(number) for number in after.split()}) for kind, after in (line.split(":") for line in lines)
        ]

    def heal(self) -> None:
        """Make devices that broke whole again."""
        self._library.fake_cuda_heal()
