"""Simulations of programs: on the machine as it was measured, unless another one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.compiler.schedule.simulation import Prediction, simulate
from ostinato.compiler.target import MachineModel
from ostinato.one_line import brief
from ostinato.runtime.calibrate import measure_host

if TYPE_CHECKING:
    from ostinato.compiler.ir import Executable

__all__ = ["simulated"]


def simulated(executable: Executable, model: MachineModel | None, processors: int, copies: int) -> Prediction:
    """Return how a schedule runs on a model of a machine; None: of this one, with so many processors.

    Raises
    ------
    TypeError, ValueError
        The model is none, or the copies cannot share the machine evenly.
    """
    if model is not None and not isinstance(model, MachineModel):
        raise TypeError(f"machine_model must be an ostinato.MachineModel, got {brief(model)}")
    return simulate(executable, measure_host(processors) if model is None else model, copies=copies)
