"""Calls of tasks and kernels outside captures, beside the functions that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Contestant, Run
from benchmarks.peers import Absent

BENCHMARK = "eager"
FUNCTION, TASK, NJIT, KERNEL = "the function", "a task", "numba.njit", "a kernel"
ONE, THREE, LIST = "a task of 1 array", "a task of 3 arrays", "a task of a list of 3 arrays"
LOOP = "a kernel of 3 arrays"


def _one(x: ost.ReadWrite) -> None:
    pass


def _three(a: ost.Read, b: ost.Read, out: ost.Write) -> None:
    pass


def _list(arrays: ost.Read) -> None:
    pass


def _add(a: ost.Read, b: ost.Read, out: ost.Write) -> None:
    for i in range(out.size):
        out[i] = a[i] + b[i]


def _calls(function: Callable[..., object], args: Sequence[Any]) -> Run:
    def run(times: int) -> None:
        for _ in range(times):
            function(*args)

    return run


def run(context: Context) -> None:
    """Time a call of each; what the functions do is next to nothing."""
    arrays = np.zeros((3, 8))
    cases: dict[str, tuple[Callable[..., None], list[Any]]] = {
        ONE: (_one, [arrays[0]]),
        THREE: (_three, [*arrays]),
        LIST: (_list, [[*arrays]]),
    }
    for case, (function, args) in cases.items():
        task = ost.task(function)
        contestants = [Contestant(FUNCTION, _calls(function, args)), Contestant(TASK, _calls(task, args))]
        context.compare(BENCHMARK, case, contestants, FUNCTION, "ns/call")
    if find_spec("numba") is None:
        context.absent.append(Absent(KERNEL, "numba is not installed"))
        return
    import numba

    compiled, kernel = numba.njit(_add), ost.kernel(_add)
    for who, function in ((NJIT, compiled), (KERNEL, kernel)):
        arrays[:] = [[1.0], [2.0], [0.0]]
        function(*arrays)
        if arrays[2].tolist() != [3.0] * 8:
            raise AssertionError(f"{who}: 1 + 2 gives {arrays[2]}")
    contestants = [Contestant(NJIT, _calls(compiled, [*arrays])), Contestant(KERNEL, _calls(kernel, [*arrays]))]
    context.compare(BENCHMARK, LOOP, contestants, NJIT, "ns/call")
