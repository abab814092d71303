"""Lower an executable onto arrays, whether it uses devices or not."""

from __future__ import annotations

from functools import partial

from ostinato import _core
from ostinato.compiler.ir import Executable, Step
from ostinato.compiler.lower.tables import Lowered, Outside, Substitution, lower_nodes
from ostinato.devices.device import translate_failures


def lower(
    executable: Executable,
    processors: int,
    substitute: Substitution | None = None,
    outside: Outside | None = None,
    streams: list[_core.devices.Stream] | None = None,
) -> Lowered:
    """Return the plan of an executable: see `lower_nodes`.

    Parameters
    ----------
    executable
        The schedule.
    processors
        How many CPUs the machine has; devices are numbered on from there.
    substitute, outside
        As of `lower_nodes`.
    streams
        Those of an earlier plan for this schedule, to be used again; None: it gets streams of its own.

    Raises
    ------
    DeviceError
        A device has not enough memory.
    """
    step = executable.step
    if not step.uses_devices:
        return lower_nodes(step.summary, executable.core, executable.slots, substitute, outside)
    from ostinato.compiler.lower.devices import DeviceTables

    tables = DeviceTables(executable, streams or _open_streams(step, processors), substitute)
    for op in step.nodes:
        tables.add(op)
    lowered = tables.build_all(outside)
    lowered.again = partial(lower, executable, processors, substitute, lowered.outside)
    return lowered


def _open_streams(step: Step, processors: int) -> list[_core.devices.Stream]:
    streams = []
    for number in step.streams.device.tolist():
        device = step.devices[number]
        with translate_failures(device):
            streams.append(_core.devices.Stream(device.core, device.name, processors + number))
    return streams
