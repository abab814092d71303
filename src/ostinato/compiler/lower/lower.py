"""Lower an executable onto arrays, whether it uses devices or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.compiler.lower.tables import Lowered, Outside, Substitution, lower_nodes

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.compiler.ir import Executable


def lower(
    executable: Executable,
    processors: int,
    substitute: Substitution | None = None,
    outside: Outside | None = None,
    streams: list[_core.devices.Stream] | None = None,
) -> Lowered:
    """Return the plan of an executable; see `lower_nodes` and, for steps that use devices, `lower_on_devices`."""
    if not executable.step.uses_devices:
        return lower_nodes(executable.step.nodes, executable.core, executable.slots, substitute, outside)
    from ostinato.compiler.lower.devices import lower_on_devices

    return lower_on_devices(executable, processors, substitute, outside, streams)
