"""What a profile costs, per op: of a run that asks for one, and of a run that does not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Contestant, Run
from benchmarks.native import SPREAD
from benchmarks.ours import native_program, python_program
from benchmarks.patterns import flatten, stencil

OFF, ON = "profile=False", "profile=True"
_WIDTH = 16
_STEPS = 2000  # of a run: so few that every record is kept


def _empty() -> None:
    pass


def _programs(context: Context) -> Iterator[tuple[str, ost.Program]]:
    flat = flatten(stencil(_WIDTH))
    users, seconds = np.zeros(_WIDTH, np.int64), [SPREAD] * _WIDTH
    yield "native", native_program(flat, context.machine, context.kernels.empty, users, seconds, 1)
    yield "Python", python_program(flat, context.machine, [(_empty, ())] * _WIDTH)


def _submits(program: ost.Program, profile: bool, read: bool = False) -> Run:
    def run(steps: int) -> None:
        for _ in range(0, steps, _STEPS):
            submitted = program.submit(_STEPS, profile=profile)
            submitted.result()
            if read:
                for _ in submitted.profile or ():
                    pass

    return run


def run(context: Context) -> None:
    """Time runs of a stencil, submitted with and without."""
    for case, program in _programs(context):
        with program:
            contestants = [
                Contestant(OFF, _submits(program, False), _WIDTH, multiple=_STEPS),
                Contestant(ON, _submits(program, True), _WIDTH, multiple=_STEPS),
                Contestant(f"{ON}, read", _submits(program, True, read=True), _WIDTH, multiple=_STEPS),
            ]
            context.compare("profile", case, contestants, OFF, "ns/op")
