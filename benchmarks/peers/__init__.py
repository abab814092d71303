"""The C++ peers: each a small shared library with the same four symbols, built when needed, called through ctypes."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from benchmarks.patterns import Flat

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
_BUILT = _ROOT / "build" / "benchmarks"
_COMPILER = os.environ.get("CXX", "g++")
_FLAGS = ["-std=c++20", "-O3", "-march=native", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra"]
#: TBB may come from the system or from the wheel tbb-devel.
_TBB = [f"-L{sys.prefix}/lib", f"-Wl,-rpath,{sys.prefix}/lib", "-ltbb"]
#: As Numba compiles: no contraction to multiply-add; nobody looks at errno or at floating-point exceptions.
_SAME_ARITHMETIC = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
#: What each peer needs beyond a C++ compiler.
_EXTRA = {
    "tbb": _TBB,
    "openmp": ["-fopenmp"],
    "applications_openmp": ["-fopenmp", *_SAME_ARITHMETIC],
    "applications_tbb": ["-fopenmp-simd", *_SAME_ARITHMETIC, *_TBB],
    "applications_taskflow": ["-fopenmp-simd", *_SAME_ARITHMETIC],
}
PEERS = ("loop", "pair", "flags", "queue", "tbb", "taskflow", "openmp")


@dataclass(frozen=True)
class Absent:
    """A contestant that is not here, and why."""

    name: str
    reason: str


def compiler() -> str:
    """The compiler's own name for itself."""
    return subprocess.run([_COMPILER, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def library(name: str) -> ctypes.CDLL:
    """Build the library of a source file unless it is there already, and load it."""
    source = _HERE / f"{name}.cpp"
    include = ["-I", str(_ROOT / "core" / "include"), "-isystem", f"{sys.prefix}/include"]
    command = [_COMPILER, *_FLAGS, *include, str(source), *_EXTRA.get(name, [])]
    built = _BUILT / f"{name}-{zlib.crc32(' '.join(command).encode()):08x}.so"
    newest = max(path.stat().st_mtime for path in (source, *_HERE.glob("*.h")))
    if not built.exists() or built.stat().st_mtime < newest:
        _BUILT.mkdir(parents=True, exist_ok=True)
        subprocess.run([*command, "-o", str(built)], capture_output=True, text=True, check=True)
    return ctypes.CDLL(str(built))


class Kernels:
    """Addresses of the task bodies."""

    def __init__(self) -> None:
        built = library("kernels")
        self.call_empty: Callable[[None], int] = built.task_empty
        self.empty, self.check, self.stamp, self.work, self.validate = (
            ctypes.cast(getattr(built, f"task_{name}"), ctypes.c_void_p).value or 0
            for name in ("empty", "check", "stamp", "work", "validate")
        )


class _Graph(ctypes.Structure):
    _fields_ = (
        ("n_ops", ctypes.c_int32),
        ("n_edges", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("source", "target", "distance", "half", "order", "task", "users")),
        *((name, ctypes.c_void_p) for name in ("data", "data_begin")),
    )


def _pointers(flat: Flat, buffers: np.ndarray) -> np.ndarray:
    """What each op writes and reads, in steps of each phase: the addresses, one op after the other."""
    n_ops, phases, words = buffers.shape
    address = buffers.ctypes.data + np.arange(n_ops * phases).reshape(n_ops, phases) * words * buffers.itemsize
    return np.array(
        [
            address[of, (phase - distance) % phases]
            for phase in range(phases)
            for op in range(n_ops)
            for of, distance in ((op, 0), *flat.reads[op])
        ],
        np.uint64,
    )


class PeerProgram:
    """A graph as one peer prepared it; `run` runs so many more steps of it."""

    def __init__(
        self, library: ctypes.CDLL, flat: Flat, task: int, users: np.ndarray, buffers: np.ndarray | None
    ) -> None:
        self._library = library
        begin = np.cumsum([0, *(1 + len(reads) for reads in flat.reads)], dtype=np.int32)
        data = None if buffers is None else _pointers(flat, buffers)
        columns = (flat.source, flat.target, flat.distance, flat.half, flat.order)
        graph = _Graph(flat.n_ops, len(flat.source), *(c.ctypes.data for c in columns), task, users.ctypes.data)
        if data is not None:
            graph.data, graph.data_begin = data.ctypes.data, begin.ctypes.data
        self._handle = ctypes.c_void_p(library.peer_create(ctypes.byref(graph)))
        self._kept = users, buffers, data, begin

    def run(self, steps: int) -> None:
        """Run steps, a multiple of 64."""
        if self._library.peer_run(self._handle, ctypes.c_int64(steps)):
            raise RuntimeError("a task failed")

    def __enter__(self) -> PeerProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library.peer_destroy(self._handle)


class Peer:
    """One C++ peer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._library = library(name)
        self._library.peer_create.restype = ctypes.c_void_p
        self._library.peer_version.restype = ctypes.c_char_p
        self.version: str = self._library.peer_version().decode()

    def program(self, flat: Flat, task: int, users: np.ndarray, buffers: np.ndarray | None = None) -> PeerProgram:
        """Prepare a graph whose op i runs `task` with `users[i]` (addresses, or zeros).

        `buffers`: by op and phase, the lines that the op writes in turn; see `Flat.reads` for what it reads.
        """
        return PeerProgram(self._library, flat, task, users, buffers)


def load() -> tuple[dict[str, Peer], list[Absent]]:
    """Build and load every peer that this machine can build, and say which it cannot."""
    found: dict[str, Peer] = {}
    absent: list[Absent] = []
    for name in PEERS:
        try:
            found[name] = Peer(name)
        except subprocess.CalledProcessError as error:
            reasons = [line.replace(f"{_ROOT}/", "") for line in str(error.stderr).splitlines() if "error" in line]
            absent.append(Absent(name, reasons[0] if reasons else f"{_COMPILER} failed"))
    return found, absent
