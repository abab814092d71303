"""Whether a variant does what the default does, in every circumstance that the ops of a case are in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostinato.tune.graphs.measuring.on_device import subject_of
from ostinato.tune.graphs.measuring.problem import Problem
from ostinato.tune.graphs.measuring.subject import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostinato.devices.device import Device
    from ostinato.graph.op import Op
    from ostinato.graph.variant import Variant
    from ostinato.runtime.machine import Machine

__all__ = ["Comparison", "Incomparable"]

_MOST_KEPT = 256 << 20
"""Bytes of the default's outputs that are kept; the others are computed again."""


class Incomparable(Exception):
    """Why there is nothing to compare with."""


class Comparison:
    """Calls variants once on each of several ops, and compares what they did with what the default did.

    Parameters
    ----------
    problem
        The first op.
    others
        The other ops.
    default
        The default.
    rtol
        By what part floating-point numbers may differ.
    machine
        Where they run.
    device
        Where those run that are for devices; None if none is.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> from ostinato.graph.variant import variants_of
    >>> @ost.task
    ... def double(src: ost.Read, dst: ost.Write):
    ...     np.multiply(src, 2, out=dst)
    >>> @double.variant
    ... def triple(src: ost.Read, dst: ost.Write):
    ...     np.multiply(src, 3, out=dst)
    >>> with ost.capture() as graph:
    ...     op = double(np.ones(4), np.zeros(4))
    >>> with ost.Machine(cpus=1) as machine:
    ...     default, other = variants_of(op.body)
    ...     comparison = Comparison(Problem(op), (), default, 0.0, machine)
    ...     comparison.difference(default), comparison.difference(other)
    ('', "argument 2 'dst' (shape (4,), float64): at index (0,) it gives 3.0 instead of 2.0")
    """

    def __init__(
        self,
        problem: Problem,
        others: Sequence[Op],
        default: Variant,
        rtol: float,
        machine: Machine,
        device: Device | None = None,
    ) -> None:
        self._problem = problem
        self._others = others
        self._default = default
        self._rtol = rtol
        self._machine = machine
        self._device = device
        self._wanted: dict[int, list[object]] = {}
        self._kept = 0
        self._unsteady: dict[int, str] = {}  # in what the default differs from itself
        self._failed: set[int] = set()  # of the other ops, those on which the default fails
        self._times: dict[Variant, int] = {}  # that each was looked at

    def difference(self, variant: Variant) -> str:
        """Say in what a variant differs from the default, and where; an empty text if in nothing.

        The first time it looks at all ops; then, since what was right mostly stays so, at the first op, and ever more
        seldom. Of an op whose arguments a variant cannot take nothing is said, as that op is never given to it, nor of
        one on which the default fails. Neither is anything of the default.

        Raises
        ------
        Incomparable
            The default does not do the same twice.
        Failure
            The variant failed.
        """
        times = self._times[variant] = self._times.get(variant, -1) + 1
        if times & (times - 1):  # no power of two
            return ""
        found = self._difference(variant, self._problem, 0)
        for place, op in enumerate(self._others, 1) if not (times or found) else ():
            if place in self._failed or (variant is not self._default and variant.body(op.body) is None):
                continue
            found = self._difference(variant, Problem(op), place)
            if found:
                found = f"{found}, in the call at {op.call_site}"
                break
        if found:
            self._problem.renew()  # it may have spoilt what others read
        return found

    def _difference(self, variant: Variant, problem: Problem, place: int) -> str:
        wanted = self._wanted.get(place)
        if wanted is None:
            try:
                self._call(self._default, problem)
            except Failure:
                if not place:
                    raise
                self._failed.add(place)
                return ""
            wanted = problem.outputs()
            size = sum(output.nbytes for output in wanted if isinstance(output, np.ndarray))
            if self._kept + size <= _MOST_KEPT:
                self._kept += size
                self._wanted[place] = wanted
        if place not in self._unsteady:
            self._call(self._default, problem)
            self._unsteady[place] = problem.difference(wanted, self._rtol)
        if variant is self._default:
            return ""
        if self._unsteady[place]:
            raise Incomparable(
                f"there is nothing to compare with: called twice, the default does not do the same: "
                f"{self._unsteady[place]}"
            )
        self._call(variant, problem)
        return problem.difference(wanted, self._rtol)

    def _call(self, variant: Variant, problem: Problem) -> None:
        subject_of(problem, variant, self._machine, self._device).once()
