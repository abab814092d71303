"""Whether a replay that uses devices gives what sequential execution gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.errors import ContractError
from ostinato.runtime.copies import Allocation, StandIns, allocations
from ostinato.runtime.memory import Bytes, assign, contents
from ostinato.runtime.sequential import AsCaptured, run_sequentially
from ostinato.runtime.verify import compare, replayed

if TYPE_CHECKING:
    from ostinato.runtime.program import Program

__all__ = ["verify_on_devices"]


def verify_on_devices(
    program: Program,
    steps: int,
    params: Mapping[str, Any],
    values: list[float] | None,
    objects: list[object] | None,
) -> None:
    """Run steps sequentially and as a replay, both on copies, and compare.

    Memory of devices is looked at in the end only: what a task does to arrays that it did not declare shows where it
    makes a difference.
    """
    ops, binding = program._scheduled.recorded, program._binding or AsCaptured()
    originals = allocations(ops, binding)
    plain = [original for original in originals if not original.objects]
    before = [contents(original.bytes).copy() for original in plain]
    try:
        sequential = StandIns(ops, binding, originals)
        done = run_sequentially(ops, steps, 0, sequential, params)
        _check_untouched(plain, before)
        stand_ins = StandIns(ops, binding, originals)
        ended = replayed(program, stand_ins, steps, values, objects)
        _check_untouched(plain, before)
        compare(ops, sequential.substitute, done, stand_ins, ended)
    finally:
        for original, block in zip(plain, before, strict=True):
            if not np.array_equal(contents(original.bytes), block):
                assign(original.bytes, block)


def _check_untouched(originals: Sequence[Allocation], before: Sequence[Bytes]) -> None:
    for original, block in zip(originals, before, strict=True):
        if not np.array_equal(contents(original.bytes), block):
            raise ContractError(
                f"a task wrote to the array of {original.high - original.low} bytes that it was captured with itself, "
                "not through an argument"
            )
