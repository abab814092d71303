"""Lower a schedule, whether it uses devices or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.compiler.lower import Lowered, Outside, Substitution, lower

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.compiler.schedule import Scheduled

__all__ = ["lower_scheduled"]


def lower_scheduled(
    scheduled: Scheduled,
    processors: int,
    substitute: Substitution | None = None,
    outside: Outside | None = None,
    streams: list[_core.devices.Stream] | None = None,
) -> Lowered:
    """Return the plan of a schedule; see `lower` and, for graphs that use devices, `lower_on_devices`."""
    if scheduled.staged is None:
        return lower(scheduled.ops, scheduled.core, scheduled.slots, substitute, outside)
    from ostinato.compiler.lower_devices import lower_on_devices

    return lower_on_devices(scheduled, processors, substitute, outside, streams)
