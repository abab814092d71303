"""What contestants share in all applications: two threads each, limits of BLAS, C++ libraries, stages of calls."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

import ostinato as ost
from benchmarks.peers import library

THREADS = 2
PACKAGES = ("scipy", "numba", "jax", "joblib", "dask", "tbb", "threadpoolctl")

#: What runs the loops of the applications in C++, and what their source file is called after.
LOOPS = {"OpenMP": "openmp", "oneTBB": "tbb", "Taskflow": "taskflow"}

#: Runs so many more steps, and returns the newest result.
Advance = Callable[[int], Any]
#: A function and its arguments.
Call = tuple[Callable[..., object], tuple[Any, ...]]
#: The calls of a step; those of one stage do not depend on each other.
Stages = Sequence[Sequence[Call]]


def versions() -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@dataclass
class Here:
    """What a contestant may use; what it enters into the stack is closed when its case has been measured."""

    machine: ost.Machine
    stack: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        """The pool of the contestants that need one."""
        return self.stack.enter_context(ThreadPoolExecutor(THREADS))

    def compile(self, step: Callable[..., object], *arguments: object) -> ost.Program:
        """Compile as anybody would, with no option set."""
        return self.stack.enter_context(ost.compile(step, *arguments, machine=self.machine))


def limit_blas(threads: int) -> None:
    """Have every BLAS library of the process use so many threads in one call."""
    _controller().limit(limits=threads, user_api="blas")


def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _WithoutNumba:
    """Makes functions that say that Numba is missing."""

    def njit(self, *functions: object, **_: object) -> Any:
        def refuse(*_: object) -> None:
            raise ImportError("this benchmark needs Numba: pip install 'ostinato[numba]'")

        return refuse if functions else lambda function: refuse


def import_numba() -> Any:
    """Numba, with two threads of OpenMP, which are faster than those of its other layers.

    Where it is missing, as for free-threaded Pythons, other benchmarks can still run.
    """
    try:
        import numba
    except ModuleNotFoundError:
        return _WithoutNumba()

    numba.config.THREADING_LAYER = "omp"
    numba.set_num_threads(min(THREADS, numba.config.NUMBA_NUM_THREADS))
    return numba


def import_jax() -> Any:
    """JAX, with two threads and double precision."""
    os.environ.setdefault("NPROC", str(THREADS))
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax


def loops(threading: str) -> ctypes.CDLL:
    """Return the applications as C++, with loops run by "openmp", "tbb" or "taskflow"."""
    return library(f"applications_{threading}")


def address(array: np.ndarray) -> ctypes.c_void_p:
    """Return where an array begins, for C++."""
    return ctypes.c_void_p(array.ctypes.data)


def fortran(name: str) -> ctypes.c_void_p:
    """Return the address of a routine of the BLAS or LAPACK that SciPy has."""
    from scipy.linalg import cython_blas, cython_lapack

    capsules = {**cython_lapack.__pyx_capi__, **cython_blas.__pyx_capi__}
    get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_void_p(get_pointer(capsules[name], get_name(capsules[name])))


def by_loop(here: Here, stages: Stages) -> Callable[[], None]:
    """Run the calls one after the other."""

    def step() -> None:
        for stage in stages:
            for function, arguments in stage:
                function(*arguments)

    return step


def by_pool(here: Here, stages: Stages) -> Callable[[], None]:
    """``ThreadPoolExecutor``: a stage is submitted when the one before it has ended."""

    def step() -> None:
        for stage in stages:
            for future in [here.pool.submit(function, *arguments) for function, arguments in stage]:
                future.result()

    return step


def by_joblib(here: Here, stages: Stages) -> Callable[[], None]:
    """joblib with threads: a stage is one call of ``Parallel``."""
    from joblib import Parallel, delayed

    parallel = here.stack.enter_context(Parallel(n_jobs=THREADS, prefer="threads"))

    def step() -> None:
        for stage in stages:
            parallel(delayed(function)(*arguments) for function, arguments in stage)

    return step


def by_dask(here: Here, stages: Stages) -> Callable[[], None]:
    """Dask's threaded scheduler: the step as one graph, made once; a node without work joins a stage."""
    from dask._task_spec import Task, TaskRef
    from dask.threaded import get

    def call_after(call: Call, *sources: object) -> None:
        call[0](*call[1])

    graph: dict[Any, Any] = {}
    sources: list[Any] = []
    for number, stage in enumerate(stages):
        keys = [(number, i) for i in range(len(stage))]
        graph |= {
            key: Task(key, lambda *sources, call=call: call_after(call, *sources), *sources)
            for key, call in zip(keys, stage, strict=True)
        }
        end = ("stage", number)
        graph[end] = Task(end, lambda *sources: None, *map(TaskRef, keys))
        sources = [TaskRef(end)]

    def step() -> None:
        get(graph, ("stage", len(stages) - 1), pool=here.pool)

    return step


#: What can run stages of calls, by name.
SCHEDULERS = {"thread pool": by_pool, "joblib": by_joblib, "Dask": by_dask}
